// Package claim claims and settles tasks where their shards are led, and watches what becomes of the claims. A claim whose answer is lost
// on its way between two nodes is given back (claim.go), waiters on one shard share a watch (await.go), and the holder of a claim learns
// that it has ended wherever its shard is led (watch.go).
//
// It does not know which task comes next, nor what ends a claim: that is the broker's.
package claim
