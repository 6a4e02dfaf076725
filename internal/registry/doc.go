// Package registry knows who works through one node: the workers with a stream to it, and those who claim by single calls, for a while
// after the last. Of each it keeps what it said of itself, what it runs, and whether it is to be quiet.
//
// It does not know other nodes, nor how tasks are claimed, nor where it is written that a worker is quiet: it is told. It is a
// projection in memory, which begins anew with its process.
package registry
