// Package engine is the life of a task: one file a verb, each a function over the Round in which it runs. A verb reads,
// decides, and only then writes; a refused verb leaves nothing behind.
//
// To read it top-down: enqueue.go, claim.go and ack.go, fail.go, release.go are what producers and workers do; tick.go and lease.go what
// time does; operate.go and cancel.go what operators do. All of them begin a Change (change.go), which moves the task: out of one place
// (place.go) into another, with what its claim uses (claim_use.go), to its end (finish.go), and at last out of the shard (forget.go).
// What may run now is in limits.go. Policies act at the points of policy.go.
//
// Package schema says where every row lies and what is in it, and lanes in which order ready tasks leave. Unique, order, limit,
// breaker and quota are rules that hold within a change. Check says which rows must agree.
//
// It knows no package above it, no goroutine, no clock, no randomness and nothing of Raft: time and entropy are given, and what it remembers
// between rounds (Leader) can be thrown away at any moment.
package engine
