// Package limit is what queues and their keys use at the moment, and may use: token buckets, the claimed tasks of a key, and the row in
// which both are stored.
//
// set.go: tokens that are taken, and that come. rows.go: claims that begin and end, and what is stored of them. follow.go: rates that
// change. bucket.go and use.go: a bucket and a row by themselves.
//
// It knows the rates of a queue's settings, and neither lanes nor verbs: which tasks of a key are claimed it asks of a Claimer.
package limit
