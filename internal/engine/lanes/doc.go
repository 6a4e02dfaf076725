// Package lanes determines the order in which the ready tasks of a queue are claimed: by priority, fairly among keys, oldest first.
//
// lane.go: the tasks of one priority, key and type. flow.go: the lanes of a key. account.go: what keys have used.
// orders.go: the heaps that order flows and lanes. set.go: all lanes of a queue. claim.go and choice.go: which task
// comes next. cold.go: keys that have waiting tasks only, in little memory. trial.go: held types that run one probe.
// read.go: lanes that a new leader has not read yet. position.go: how many tasks come before a task. turns.go: shares by
// weights. line.go and order.go: the lines of keys in queues with strict order.
//
// The package knows the rows of lanes and nothing of verbs. It reads a queue's settings through Rules.
package lanes
