// Package parallel calls functions concurrently, such as a call to each of several shards, and returns the error of each. It knows nothing of what they
// do.
package parallel

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/verb"
)

const (
	// fanLimit bounds the goroutines that one call starts concurrently, or for each shard that it asks.
	fanLimit = 16
	// stragglerTime is how long the parts of a call that have not returned yet may take after one that has. It is less than the second that an
	// SDK's worker gives its last endings, and a relay its batches.
	stragglerTime = 800 * time.Millisecond
)

// Each calls fn for 0 … n-1 concurrently, and returns when all have returned. A panic becomes an error, so that it ends its request
// only.
func Each(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	if n == 1 {
		errs[0] = Safely(func() error { return fn(0) })
		return errs
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, fanLimit)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = Safely(func() error { return fn(i) })
		})
	}
	all.Wait()
	return errs
}

// EachUntilLate is Each for parts that are answered each on its own. Their context ends when none has returned for stragglerTime after another:
// so a shard that hangs or has no leader does not hold up the answers of the others. While none has returned, only ctx limits them, as it does a
// call to one shard: the whole cluster may be busy.
func EachUntilLate(ctx context.Context, n int, fn func(ctx context.Context, i int) error) []error {
	if n == 1 {
		return Each(1, func(int) error { return fn(ctx, 0) })
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(math.MaxInt64, cancel)
	defer late.Stop()
	return Each(n, func(i int) error {
		defer late.Reset(stragglerTime)
		return fn(ctx, i)
	})
}

// Safely calls fn and returns its panic as an error.
func Safely(fn func() error) error { return verb.Safely(fn) }

// FirstError returns the first error that is not nil.
func FirstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
