// Package fanout asks the shards that have the parts of a queue, in parallel where that is possible, and adds up or merges what they
// answer. It also limits what a call sees of the cluster's queues to those of its token.
//
// It knows where queues are, but no services, and no rule of a task's life.
package fanout

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// fanLimit bounds the goroutines that one call starts concurrently.
const fanLimit = 16

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

// Safely calls fn and returns its panic as an error.
func Safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

// FirstError returns the first error that is not nil.
func FirstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
