// Package auth says who may call what: what a token looks like, which roles there are and what they may do, which queues and which
// namespace a token is limited to, and whether a caller's token is one of those that are good now.
//
// A Door stands in front of a node's API. It holds the node's copy of the tokens, and ends what goes on longer than a call when its
// token is revoked, has expired, or may have been: when the copy is too old to be trusted.
//
// It knows no requests and no endpoints: which of them wants which role is the gateway's table. It does not know where tokens are
// kept; nobody does know the tokens themselves, since only their hashes are stored.
package auth
