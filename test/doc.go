// Package test runs the real binary as its users do, breaks it as the world does, and checks the history of what was
// answered: that nothing accepted was lost, that a task had one valid claim at a time, and that no stale holder changed
// anything.
//
// Everything here is as real as it gets: processes, disks, sockets and clocks. What can be shown with less is shown beside
// the code.
package test
