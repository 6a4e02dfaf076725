// Package registry tracks the workers of one node: those with a stream to it, and those that claim by single calls, for a while after the
// last call. For each it keeps what the worker reported about itself, what it runs, and whether it is quiet.
//
// It does not know other nodes, nor how tasks are claimed, nor where quiet workers are stored: its callers pass that
// in. It is a projection in memory, and starts empty with its process.
package registry
