// Package stats counts events of tasks over time: for each queue, for a namespace as a whole, and by type. It keeps rates in steps of 1 s,
// 10 s and 5 min, and how long tasks waited and ran, all in memory and all bounded, and merges what several nodes have counted. A file
// keeps them between runs.
//
// It does not know shards, nodes or the life of a task: it gets events as numbers and names, after they are committed. Nor does it know its
// readers, or what a metrics page looks like. It is a projection: nothing is decided by it, and what a process loses is lost.
package stats
