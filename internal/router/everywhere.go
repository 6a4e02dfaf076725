package router

import (
	"slices"
	"sync"

	"github.com/pawlq/pawl/internal/task"
)

// Calls that all shards answer, and what is made of their answers.

// eachShard runs a call on several shards at the same time.
func (r *Router) eachShard(shards []uint32, fn func(i int, shard uint32) error) []error {
	errs := make([]error, len(shards))
	var calls sync.WaitGroup
	for i, shard := range shards {
		calls.Go(func() { errs[i] = fn(i, shard) })
	}
	calls.Wait()
	return errs
}

// firstRefusal is the first of some errors that callers know, else all of them.
func firstRefusal(errs []error, all error) error {
	for _, err := range errs {
		if _, ok := task.AsError(err); ok {
			return err
		}
	}
	return all
}

// merged makes one page, of up to limit items, of the pages of several shards, each in the order of compare. It ends where a shard's page
// ends that has more behind it: what comes then is not known. A page that has more is not empty.
func merged[P, T any](pages []P, limit int, of func(P) (items []T, more bool), compare func(a, b T) int) (items []T, more bool) {
	var last *T // up to this one all is known; nil: all is
	for _, p := range pages {
		some, behind := of(p)
		items = append(items, some...)
		if behind && (last == nil || compare(some[len(some)-1], *last) < 0) {
			last = &some[len(some)-1]
		}
	}
	slices.SortFunc(items, compare)
	for i, it := range items {
		if i == limit || last != nil && compare(it, *last) > 0 {
			return items[:i], true
		}
	}
	return items, last != nil
}
