// Package explain says why a task is not running and what the tasks of a queue wait for, in words that an operator can act on.
//
// A task is explained within a round, from the state and the leader's memory; a queue beside the rounds, from a snapshot and what
// MemoryOf took along. It changes nothing. Of workers it knows what it is told (Workers).
package explain
