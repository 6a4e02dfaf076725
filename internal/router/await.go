package router

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/verb"
)

// Waiters of the same form at one shard of another node share one watch there. When it reports that something is ready, the waiter that has
// waited longest is woken, and the watch starts again while others wait: if tasks are left, it reports so immediately. So no waiter is
// forgotten, whatever the woken one does, and one task does not wake ten thousand.

type awaitArgs struct {
	Shard uint32
	Call  broker.ClaimCall
	Wait  time.Duration
}

const (
	// awaitTime is how long one shared watch waits at the other node before it is renewed: the node might have lost us.
	awaitTime = time.Minute
	// awaitPause is the pause after a watch that failed.
	awaitPause = time.Second
	// Each time that a watch is ready again within readyGap, twice as many are woken, up to maxWake: otherwise a thousand tasks would take
	// a thousand round trips.
	readyGap = 10 * time.Millisecond
	maxWake  = 64
)

// await reports whether something is ready.
var await = serve(&method[awaitArgs, bool]{Rule: verb.Rule{Name: "await", Idempotent: true}, run: func(ctx context.Context, r *Router, a awaitArgs) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, a.Wait)
	defer cancel()
	err := r.cfg.Broker.Await(waiting, a.Shard, a.Call)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
},
	wait: func(a *awaitArgs) *time.Duration { return &a.Wait }})

// Await waits until a claim of this form would get something from the shard, or ctx is done.
func (r *Router) Await(ctx context.Context, shard uint32, c broker.ClaimCall) error {
	if r.leads(shard) {
		if err := r.cfg.Broker.Await(ctx, shard, c); err == nil || !isElsewhere(err) {
			return err
		}
	}
	w := r.awaits.join(r, shard, c)
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
	r.awaits.leave(w)
	if ctx.Err() == nil {
		return r.ctx.Err()
	}
	return ctx.Err()
}

// awaits holds the shared watches by their form.
type awaits struct {
	mu     sync.Mutex
	byForm map[string]*sharedAwait
}

// sharedAwait is a watch and its waiters, those that have waited longest first. It is in awaits while its goroutine runs.
type sharedAwait struct {
	form   string
	args   awaitArgs
	queue  list.List // of *awaiter
	cancel context.CancelFunc
}

type awaiter struct {
	of    *sharedAwait
	place *list.Element // nil once woken
	woken chan struct{}
}

func (a *awaits) join(r *Router, shard uint32, c broker.ClaimCall) *awaiter {
	form := formOf(shard, c)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byForm == nil {
		a.byForm = map[string]*sharedAwait{}
	}
	s := a.byForm[form]
	if s == nil {
		// Only what selects the tasks: the rest differs between waiters.
		call := broker.ClaimCall{Namespace: c.Namespace, Queues: c.Queues, Types: c.Types}
		s = &sharedAwait{form: form, args: awaitArgs{shard, call, awaitTime}}
		a.byForm[form] = s
		r.work.Go(func() { a.run(r, s) })
	}
	w := &awaiter{of: s, woken: make(chan struct{})}
	w.place = s.queue.PushBack(w)
	return w
}

func formOf(shard uint32, c broker.ClaimCall) string {
	types := slices.Clone(c.Types)
	slices.Sort(types)
	queues := make([]string, len(c.Queues))
	for i, q := range c.Queues {
		queues[i] = q.Queue + "=" + strconv.Itoa(q.Weight)
	}
	return strconv.Itoa(int(shard)) + "\x00" + c.Namespace + "\x00" + strings.Join(queues, "\x00") + "\x01" + strings.Join(types, "\x00")
}

// leave removes a waiter. The watch ends with the last one.
func (a *awaits) leave(w *awaiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.place == nil {
		return // just woken; the watch has started again for the others
	}
	w.of.queue.Remove(w.place)
	w.place = nil
	if w.of.queue.Len() == 0 && w.of.cancel != nil {
		w.of.cancel()
	}
}

// next starts a turn of the watch, or ends it if there are no waiters.
func (a *awaits) next(r *Router, s *sharedAwait) (ctx context.Context, cancel context.CancelFunc, goOn bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.queue.Len() == 0 || r.ctx.Err() != nil {
		delete(a.byForm, s.form)
		return nil, nil, false
	}
	ctx, s.cancel = context.WithCancel(r.ctx)
	return ctx, s.cancel, true
}

func (a *awaits) run(r *Router, s *sharedAwait) {
	wake, last := 1, time.Time{}
	for {
		ctx, cancel, goOn := a.next(r, s)
		if !goOn {
			return
		}
		began := time.Now()
		ready, err := callRemote(ctx, r, await, s.args.Shard, s.args)
		switch {
		case err == nil && ready:
			if time.Since(last) < readyGap {
				wake = min(2*wake, maxWake)
			} else {
				wake = 1
			}
			last = time.Now()
			a.wake(s, wake)
		case err != nil:
			r.sleep(ctx, awaitPause)
		case time.Since(began) < s.args.Wait: // the other node is about to stop
			r.sleep(ctx, earlyPause)
		}
		cancel()
	}
}

// wake wakes the n that have waited longest.
func (a *awaits) wake(s *sharedAwait, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ; n > 0 && s.queue.Len() > 0; n-- {
		w := s.queue.Remove(s.queue.Front()).(*awaiter)
		w.place = nil
		close(w.woken)
	}
}
