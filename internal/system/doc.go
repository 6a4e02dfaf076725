// Package system is what the parts of the control plane share: this node's replica of the system shard, with rounds and views on it, the
// terms of its leadership, the log of changes that nodes' copies follow, the form of rows, and the list of tables.
//
// It knows no Raft, and of the rows only the cluster's settings: each table is read and changed by one of the packages that
// import it: cluster, and those in the directories below.
package system
