// Package query reads tasks: one task with all that belongs to it, lists and counts of those that a filter selects,
// dead letters by their errors, and how many tasks wait in each queue.
//
// It knows the rows and no round, so it can read a snapshot concurrently with the leader as well as the state within a
// round. It changes nothing.
package query
