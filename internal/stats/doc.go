// Package stats counts what happens to tasks, over time: for each queue, for a namespace as a whole, and by type. It holds rates
// in steps of 1 s, 10 s and 5 min, and how long tasks waited and ran, all in memory, all bounded, and adds up what several nodes
// have counted.
//
// It does not know shards, nodes or how a task lives: it is told of events by numbers and names, after they are committed. Nor
// does it know who asks, or what a metrics page looks like. It is a projection: nothing is decided by it, and what is lost with a
// process is lost.
package stats
