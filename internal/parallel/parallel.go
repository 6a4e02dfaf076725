// Package parallel calls functions concurrently, such as a call to each of several shards, and returns the error of each. It knows
// nothing of what they do.
package parallel

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// Limit bounds the functions that one call runs concurrently. All shards of a cluster can be asked, or changed, at once: none waits
	// for others that hang.
	Limit = 65
	// stragglerTime is how long the parts of a call that have not returned yet may take after one that has succeeded. It is less than the
	// second that an SDK's worker gives its last endings, and a relay its batches.
	stragglerTime = 800 * time.Millisecond
)

// Run calls fn for 0 … n-1, up to Limit concurrently, and returns when all have returned.
func Run(n int, fn func(i int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, Limit)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			fn(i)
		})
	}
	all.Wait()
}

// Each is Run for functions that may fail. A panic becomes an error, so that it ends its request only.
func Each(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	if n == 1 {
		errs[0] = Safely(func() error { return fn(0) })
		return errs
	}
	Run(n, func(i int) { errs[i] = Safely(func() error { return fn(i) }) })
	return errs
}

// EachUntilLate is Each for parts that are answered each on its own. Their context ends when none has succeeded for stragglerTime after
// another: so a shard that hangs or has no leader does not hold up the answers of the others. While none has succeeded, only ctx limits
// them, as it does a call to one shard: the whole cluster may be busy, and a part that fails at once says nothing of how long the others
// need.
func EachUntilLate(ctx context.Context, n int, fn func(ctx context.Context, i int) error) []error {
	if n == 1 {
		return Each(1, func(int) error { return fn(ctx, 0) })
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(math.MaxInt64, cancel)
	defer late.Stop()
	return Each(n, func(i int) error {
		err := fn(ctx, i)
		if err == nil {
			late.Reset(stragglerTime)
		}
		return err
	})
}

// Ask calls ask for 0 … n-1 concurrently, all at once, and gives all of them patience to answer. It returns an answer
// and an error for each.
func Ask[R any](ctx context.Context, patience time.Duration, n int, ask func(ctx context.Context, i int) (R, error)) ([]R, []error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers, errs := make([]R, n), make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			errs[i] = Safely(func() (err error) {
				answers[i], err = ask(ctx, i)
				return err
			})
		})
	}
	calls.Wait()
	return answers, errs
}

// Panic is a panic as an error, with its stack for the log.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Safely calls fn and returns its panic as an error.
func Safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Panic{p, debug.Stack()}
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
