// Package operations starts operations on many tasks and waits for their end. It counts the tasks of all shards first; the work is done where
// the tasks are.
//
// It does not know how the shards carry an operation out.
package operations
