package enqueue

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// all returns the indexes of tasks.
func all(specs []task.Spec) []int {
	index := make([]int, len(specs))
	for i := range index {
		index[i] = i
	}
	return index
}

// groupBy groups the indexes of tasks by a key.
func groupBy[K comparable](index []int, key func(i int) K) map[K][]int {
	groups := map[K][]int{}
	for _, i := range index {
		k := key(i)
		groups[k] = append(groups[k], i)
	}
	return groups
}

// inParallel calls fn for each group of tasks, until it is late. An error becomes the result of each task of the group.
func inParallel[K comparable](ctx context.Context, groups map[K][]int, out []broker.Enqueued, fn func(ctx context.Context, key K,
	index []int) error) {
	keys := slices.Collect(maps.Keys(groups))
	for n, err := range parallel.EachUntilLate(ctx, len(keys), func(ctx context.Context, n int) error {
		return fn(ctx, keys[n], groups[keys[n]])
	}) {
		if err == nil {
			continue
		}
		if errors.Is(err, context.Canceled) {
			err = task.Unavailable(forward.NoLeaderRetry, "the task's shard has not answered in time: whether it has the task is not known")
		}
		for _, i := range groups[keys[n]] {
			out[i] = broker.Enqueued{Err: err}
		}
	}
}

// pick returns the tasks at some indexes.
func pick(specs []task.Spec, index []int) []task.Spec {
	some := make([]task.Spec, len(index))
	for n, i := range index {
		some[n] = specs[i]
	}
	return some
}

// put stores the results of the tasks at some indexes, unless there is an error.
func put(out []broker.Enqueued, index []int, got []broker.Enqueued, err error) error {
	if err != nil {
		return err
	}
	for n, i := range index {
		out[i] = got[n]
	}
	return nil
}
