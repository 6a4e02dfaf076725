package claim

import (
	"container/list"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
)

// Waiters of the same form at one shard of another node share one watch there. When it reports that something is ready, the waiter that has
// waited longest is woken, and the watch starts again while others wait: if tasks are left, it reports so immediately. So no waiter is
// forgotten, whatever the woken one does, and one task does not wake ten thousand.

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

// Await waits until a claim of this form would get something from the shard, or ctx is done.
func (c *Claims) Await(ctx context.Context, shard uint32, call broker.ClaimCall) error {
	if c.forward.Leads(shard) {
		_, err := forward.CallLocal(ctx, c.forward, AwaitLocal, Claiming{Shard: shard, Call: call})
		if err == nil || !forward.IsElsewhere(err) {
			return err
		}
	}
	w := c.awaits.join(shard, call)
	select {
	case <-w.woken:
		return nil
	case <-ctx.Done():
	case <-c.forward.Life.Context().Done():
	}
	c.awaits.leave(w)
	if ctx.Err() == nil {
		return c.forward.Life.Context().Err()
	}
	return ctx.Err()
}

// awaits holds the shared watches by their form.
type awaits struct {
	forward *forward.Forwarder

	mu     sync.Mutex
	byForm map[string]*sharedAwait
}

// sharedAwait is a watch and its waiters, those that have waited longest first. It is in awaits while its goroutine runs.
type sharedAwait struct {
	form   string
	args   Claiming
	queue  list.List // of *awaiter
	cancel context.CancelFunc
}

type awaiter struct {
	of    *sharedAwait
	place *list.Element // nil once woken
	woken chan struct{}
}

func (a *awaits) join(shard uint32, c broker.ClaimCall) *awaiter {
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
		s = &sharedAwait{form: form, args: Claiming{Shard: shard, Call: call, Wait: awaitTime}}
		a.byForm[form] = s
		a.forward.Life.Go(func() { a.run(s) })
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
func (a *awaits) next(s *sharedAwait) (ctx context.Context, cancel context.CancelFunc, goOn bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.queue.Len() == 0 || a.forward.Life.Context().Err() != nil {
		delete(a.byForm, s.form)
		return nil, nil, false
	}
	ctx, s.cancel = context.WithCancel(a.forward.Life.Context())
	return ctx, s.cancel, true
}

func (a *awaits) run(s *sharedAwait) {
	wake, last := 1, time.Time{}
	for {
		ctx, cancel, goOn := a.next(s)
		if !goOn {
			return
		}
		began := time.Now()
		ready, err := forward.CallRemote(ctx, a.forward, AwaitTasks, 0, s.args)
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
			a.forward.Life.Sleep(ctx, awaitPause)
		case time.Since(began) < s.args.Wait: // the other node is about to stop
			a.forward.Life.Sleep(ctx, forward.EarlyPause)
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
