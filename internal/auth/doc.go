// Package auth decides who may call what: what a token looks like, which roles exist and what they allow, which queues and which
// namespace a token is limited to, and whether a caller's token is currently valid.
//
// An Authenticator guards a node's API. It holds the node's copy of the tokens. It ends streams and other long calls when their token is
// revoked or expires, and when the copy is too old to be trusted.
//
// It knows no requests and no endpoints: the gateway's table says which role each call requires. Nor does it know where tokens are
// stored. The tokens themselves are stored nowhere, only their hashes.
package auth
