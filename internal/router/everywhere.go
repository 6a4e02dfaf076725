package router

import (
	"sync"

	"github.com/pawlq/pawl/internal/task"
)

// Calls on all shards, and how their answers are merged.

// eachShard runs a call on several shards in parallel.
func (r *Router) eachShard(shards []uint32, fn func(i int, shard uint32) error) []error {
	errs := make([]error, len(shards))
	var calls sync.WaitGroup
	for i, shard := range shards {
		calls.Go(func() { errs[i] = fn(i, shard) })
	}
	calls.Wait()
	return errs
}

// firstRefusal returns the first *task.Error among some errors, or else all of them.
func firstRefusal(errs []error, all error) error {
	for _, err := range errs {
		if _, ok := task.AsError(err); ok {
			return err
		}
	}
	return all
}
