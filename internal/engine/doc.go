// Package engine implements the life of a task. Each verb has its own file and is a function over the Round in which it
// runs. A verb reads, decides, and only then writes; a refused verb leaves nothing behind.
//
// To read it top-down: enqueue.go, claim.go, ack.go, fail.go and release.go are what producers and workers do; tick.go
// and lease.go are what the passage of time does; operate.go and cancel.go are what operators do. All of them start a
// Change (change.go), which moves the task: from one set of counters, lanes and deadlines to another (place.go), with
// what its claim uses (claim_use.go), to its end (finish.go), and finally out of the shard (forget.go). limits.go
// decides what may run now. Policies act at the points of policy.go.
//
// Package schema defines the keys and contents of all rows, and package lanes the order in which ready tasks are
// claimed. Packages unique, limit and breaker are rules that hold within a change, and package check verifies that the
// rows agree.
//
// It knows no package above it, no goroutine, no clock, no randomness and nothing of Raft: time and entropy are passed
// in, and what it remembers between rounds (Leader) can be thrown away at any moment.
package engine
