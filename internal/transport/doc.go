// Package transport carries the traffic between nodes: Raft messages, snapshots, calls and streams of frames.
//
// Each peer has three connections, re-established whenever they break, so that large data does not delay urgent messages: one
// for Raft messages without entries and for pings, one for those with entries, one for calls and streams. A snapshot has a
// separate connection for as long as it takes, and all snapshots together share a limited rate.
//
// Every request states its sender, its cluster and the node that it is for. If it reached the wrong node, or its sender does not
// belong to the cluster, it is refused before anything else of it is read. With TLS, the name of a node is in its certificate, and
// every node proves it.
//
// A caller needs to know whether its request may have run. ErrNotSent means that it certainly did not, and a RemoteError that
// it ran and returned an error; after any other error the outcome is unknown.
//
// It knows bytes and Raft messages, but no shards beyond their numbers, no tasks, and no meaning of a call.
package transport
