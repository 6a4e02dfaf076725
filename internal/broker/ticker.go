package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// ticker does in a shard what is due by the shard's clock.
type ticker struct {
	r        *replica
	deadline atomic.Int64  // shard time of the next thing to do
	wake     chan struct{} // the deadline moved to earlier
}

// begin makes a new leader's first tick due.
func (t *ticker) begin() {
	t.deadline.Store(0)
	poke(t.wake) // unconditionally: the previous term's deadline may be 0 too, unnoticed by run
}

// set sets the deadline. It must be called on the shard's loop.
func (t *ticker) set(at store.Time) {
	if before := t.deadline.Swap(int64(at)); int64(at) < before {
		poke(t.wake)
	}
}

// run runs a tick when something is due while this node leads the shard, and sleeps otherwise, until ctx ends.
func (t *ticker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(t.untilDeadline())
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			continue
		case <-timer.C:
		}
		if now, leads := t.r.shard.Now(); !leads || int64(now) < t.deadline.Load() {
			continue
		}
		began := time.Now()
		more, _, err := change(ctx, t.r, func(round *engine.Round) (bool, error) {
			engine.Tick(round)
			return t.r.leader.NextDeadline() <= round.Now(), nil
		})
		var panicked *shard.PanicError
		switch {
		case errors.As(err, &panicked):
			t.oneByOne(ctx)
		case err != nil && ctx.Err() == nil:
			t.failed(ctx, err)
		case more: // a backlog of due work takes a third of the time, so others hardly notice
			sleep(ctx, min(2*time.Since(began), maxTickPause))
		}
	}
}

// oneByOne does what is due one by one, each in a round of its own, until one panics. That one is set apart.
func (t *ticker) oneByOne(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		var one schema.Deadline
		var err error
		more, _, err = change(ctx, t.r, func(round *engine.Round) (bool, error) {
			engine.TickOne(round, func(d schema.Deadline) { one = d })
			return t.r.leader.FirstDeadline() <= round.Now(), nil
		})
		var panicked *shard.PanicError
		if errors.As(err, &panicked) && one.Kind != 0 {
			_, _, err = change(ctx, t.r, func(round *engine.Round) (struct{}, error) {
				engine.SetDeadlineApart(round, one, panicked.Error())
				return struct{}{}, nil
			})
			more = false // the others are done together again
		}
		if err != nil {
			t.failed(ctx, err)
			return
		}
	}
}

// maxTickPause bounds the pause between two ticks.
const maxTickPause = 20 * time.Millisecond

// tickRetry is the pause after a failed tick, for example during a transfer of leadership.
const tickRetry = 100 * time.Millisecond

func (t *ticker) failed(ctx context.Context, err error) {
	t.r.warn("clock tick failed", err)
	sleep(ctx, tickRetry)
}

// maxSleep is how often the deadline is checked even if it has not changed: a leader's clock is slewed towards the wall
// clock, so a long sleep drifts.
const maxSleep = 30 * time.Second

func (t *ticker) untilDeadline() time.Duration {
	now, leads := t.r.shard.Now()
	if !leads {
		return maxSleep
	}
	wait := store.Time(t.deadline.Load()) - now
	if wait > store.Time(maxSleep/time.Microsecond) {
		return maxSleep
	}
	return max(time.Duration(wait)*time.Microsecond, 0)
}
