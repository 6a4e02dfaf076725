package forward

import (
	"context"
	"math/rand/v2"
	"time"
)

// EarlyPause is the pause after a wait that another node ended early.
const EarlyPause = 100 * time.Millisecond

// Wait repeats a call that waits up to a span for something, until it is done, whichever nodes lead its shard
// meanwhile. If this node is about to stop, it makes the call once more without a wait.
func Wait[R any](ctx context.Context, f *Forwarder, span time.Duration, call func(ctx context.Context, span time.Duration) (R, error),
	done func(R) bool) (R, error) {
	deadline := time.Now().Add(span)
	waiting, cancel := f.Life.UntilDrain(ctx)
	defer cancel()
	for {
		out, err := call(waiting, span)
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			return call(ctx, 0)
		}
		if err != nil || done(out) {
			return out, err
		}
		// A node that is about to stop ends its waits early.
		if span = time.Until(deadline); span <= EarlyPause || ctx.Err() != nil || f.Life.IsDraining() {
			return out, nil
		}
		f.Life.Sleep(ctx, EarlyPause)
		span -= EarlyPause
	}
}

// Retries paces a call that is repeated while slots of its queue move to other shards: as long as a call may look for a leader.
type Retries struct {
	f     *Forwarder
	since time.Time
	pause time.Duration
}

// NewRetries starts now.
func (f *Forwarder) NewRetries() *Retries { return &Retries{f, time.Now(), pauseMin} }

// More reports whether there is time for another attempt.
func (r *Retries) More(ctx context.Context) bool {
	end, limited := ctx.Deadline()
	return time.Since(r.since) < SearchTime && !(limited && time.Until(end) < r.pause+replyTime) && r.f.Life.ctx.Err() == nil
}

// Pause waits before the next attempt, longer each time.
func (r *Retries) Pause(ctx context.Context) {
	r.f.Life.Sleep(ctx, r.pause/2+rand.N(r.pause/2))
	r.pause = min(2*r.pause, pauseMax)
}
