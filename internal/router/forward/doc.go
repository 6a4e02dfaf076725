// Package forward runs a call on the node that leads its shard: on this node, or by forwarding it to another. A call
// that certainly did not run is retried elsewhere until a leader is found; one whose outcome is unknown is retried only
// if repeating it is safe. It also serves the calls that other nodes forward to this one.
//
// A call is one of a verb, whose description says where it runs (do.go, nodes.go). search.go finds the leader, and
// peers.go shows how a call travels.
//
// It knows no Raft, no storage and no network: the broker says who leads, and the other nodes are an interface. It does not know what calls
// do, nor who may make them.
package forward
