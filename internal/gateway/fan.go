package gateway

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// fanLimit bounds the goroutines that one call starts concurrently.
const fanLimit = 16

// each calls fn for 0 … n-1 concurrently, and returns when all have returned. A panic becomes an error, so that it ends its request
// only.
func each(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	if n == 1 {
		errs[0] = safely(func() error { return fn(0) })
		return errs
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, fanLimit)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = safely(func() error { return fn(i) })
		})
	}
	all.Wait()
	return errs
}

// safely calls fn and returns its panic as an error.
func safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
