// Package lanes is the order in which the ready tasks of a queue are claimed: by priority, fairly among keys, the oldest first.
//
// lane.go: the tasks of one priority, key and type. flow.go: the lanes of a key. account.go: what keys have used. orders.go: who comes
// before whom. set.go: all lanes of a queue. claim.go and choice.go: which task comes next. cold.go: keys that only wait, in little memory. trial.go: types of which one task is let through.
// read.go: lanes that a new leader has not read yet. position.go: what comes before a task.
//
// The package knows the rows of lanes and nothing of verbs: what a queue's settings say it asks of Rules.
package lanes
