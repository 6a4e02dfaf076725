// Package engine is the life of a task: one file a verb, each a function over the Round in which it runs. A verb reads,
// decides, and only then writes; a refused verb leaves nothing behind.
//
// Package schema says where every row lies and what is in it, lanes in which order ready tasks leave, check what must agree with
// what.
//
// It knows no goroutine, no clock, no randomness and nothing of Raft: time and entropy are given, and what it remembers
// between rounds (Leader) can be thrown away at any moment.
package engine
