// Package explain explains why a task is not running and what the tasks of a queue wait for, in terms that an operator can act on.
//
// A task is explained within a round, from the state and the leader's memory; a queue is explained concurrently with
// rounds, from a snapshot and what MemoryOf has copied. It changes nothing. Of workers it knows only what is passed in
// as Workers.
package explain
