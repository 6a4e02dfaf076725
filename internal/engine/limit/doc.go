// Package limit tracks what queues and their keys use against their limits: token buckets, the claimed tasks of a key,
// and the row in which both are stored.
//
// set.go: taking and refilling tokens. rows.go: claims that begin and end, and their rows. follow.go: changed rates.
// bucket.go and use.go: a single bucket and a single row. space.go, limits.go and wait.go: what a namespace and a queue may use in this
// shard, which is stored in rows, and the queues that wait for room.
//
// It knows the rates of a queue's settings, and neither lanes nor verbs: it asks a Claimer which tasks of a key are claimed. It does not
// know how a quota is divided among shards.
package limit
