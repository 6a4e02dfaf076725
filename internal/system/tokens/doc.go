// Package tokens reads and changes the tokens that authenticate callers, and whether calls need one. It keeps hashes of secrets, and when
// each token was last used.
//
// It knows neither requests nor endpoints: what a token's rights allow is decided by the gateway of each node, by its copy.
package tokens
