// Package cluster is the control plane. It manages the nodes and shards, that is which node has which replica of a shard, and puts together
// the packages that keep the other tables of the system shard: queues, quotas, namespaces, tokens, workers, schedules, webhooks, markers
// and the audit log. Placement reads and changes the rows of nodes and shards where the system shard is led, the Reconciler makes the
// shards' memberships match them, and every node keeps a Copy of what it needs. Nothing is decided by a copy alone that a shard would not
// refuse if the copy were stale.
//
// The plan for a shard is a pure function of the rows, of which nodes were heard from, and of what the shard's leader reports about its
// membership. Each of its steps can be repeated, and the loop that takes them may die at any of them: the next pass sees what is left to
// do.
//
// It knows no tasks, no Raft and no network: it reaches the system shard, the data shards and their groups through small interfaces.
package cluster
