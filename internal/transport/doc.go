// Package transport carries what nodes say to each other: Raft messages, snapshots, calls and streams of frames.
//
// To each peer there are three connections, made anew whenever they break, so that what is large delays nothing that is
// urgent: one for Raft messages without entries and for pings, one for those with entries, one for calls and streams.
// A snapshot has a connection of its own for as long as it lasts, and all snapshots together a bounded rate.
//
// Every request says who makes it, of which cluster it is and which node it wants, and is refused before anything else of
// it is read when it came to the wrong place or its sender does not belong to the cluster. With TLS, the name of a node is in its
// certificate, and every node proves it.
//
// A caller needs to know whether its request may have run. ErrNotSent says that it certainly did not, a RemoteError that
// it ran and was answered with an error; after any other error nobody knows.
//
// It knows bytes and Raft messages; neither shards beyond their number, nor what a call asks for, nor tasks.
package transport
