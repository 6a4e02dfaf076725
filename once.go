package pawl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"
)

const (
	maxOnceResult = 64 << 10
	minOnceTTL    = time.Second
	maxOnceTTL    = 365 * 24 * time.Hour
	// onceWait bounds the wait for another task's effect, and so does half a lease.
	onceWait = 10 * time.Second
	// firstOnceRest and maxOnceRest bound the pauses between requests for the key.
	firstOnceRest = 50 * time.Millisecond
	maxOnceRest   = time.Second
	// minPutOff and maxPutOff bound for how long a task that has waited in vain is snoozed.
	minPutOff = time.Second
	maxPutOff = 30 * time.Second
	// recordTime bounds recording an effect that has happened. It may outlast the handler's context: an effect that isn't
	// recorded is repeated.
	recordTime = 10 * time.Second
)

// OnceOption sets how Once records an effect.
type OnceOption struct{ ttl time.Duration }

// TTL sets how long Once keeps the record of an effect: from 1 s to 365 days; default 24 h. After that, fn may run again.
func TTL(d time.Duration) OnceOption { return OnceOption{ttl: d} }

// Once runs fn, for an effect that the tasks of the queue should have only once, whichever of them comes first. If the
// effect is already recorded under the key, Once skips fn and returns the recorded result: at most 64 KiB of JSON, or
// about 48 KiB with a Keyring. The record lasts 24 hours, or as long as TTL says. Once is for effects shared by
// different tasks and replays; within one task, Step is cheaper. Key is at most 256 bytes.
//
//	receipt, err := pawl.Once(ctx, t, "payment/"+t.Args.ID, pay, pawl.TTL(30*24*time.Hour))
//
// While fn runs, the claim holds the key. If the claim ends meanwhile, for whatever reason, the key is free again: after a crash,
// the next attempt runs fn. Another task that asks for the key waits, for half a lease and at most ten seconds, and is then put off
// with ErrOnceHeld. If fn returns an error, Once returns it and records nothing. fn should return when its context ends. If a
// recorded result no longer fits R, because another version of the program recorded it, the error names the key.
//
// A crash between the effect and its record makes fn run again: the two are in different systems, which can't change in one step.
// docs/idempotency.md says what helps.
func Once[R any](ctx context.Context, t Claimed, key string, fn func(ctx context.Context) (R, error), opts ...OnceOption) (R, error) {
	c := t.claim()
	var out R
	data, err := c.once(ctx, key, opts, func(ctx context.Context) ([]byte, error) { return resultOf(ctx, fn) })
	if err == nil {
		err = fit(data, &out)
	}
	if err != nil {
		var none R
		return none, fmt.Errorf("once %q of task %q: %w", key, c.ID, err)
	}
	return out, nil
}

func (c *Claim) once(ctx context.Context, key string, opts []OnceOption, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	var ttl time.Duration // 0: the broker's default
	for _, o := range opts {
		if ttl = o.ttl; ttl < minOnceTTL || ttl > maxOnceTTL {
			return nil, convert.Invalid("ttl", "%s is not between 1 s and 365 days", ttl)
		}
	}
	// Two goroutines of one claim are the same holder to the broker.
	leave, err := c.saved.enter(ctx, "once/"+key)
	if err != nil {
		return nil, err
	}
	defer leave()
	if c.saved.isUnclear(key) {
		return nil, fmt.Errorf("%w: it is unknown whether this run still holds the key", pawltype.ErrUnavailable)
	}
	var h lease.OnceKeys = &c.saved.local
	if c.holder != nil {
		h = c.holder
	}
	recorded, done, err := c.beginOnce(ctx, h, key)
	if err != nil || done {
		return recorded, err
	}
	data, err := fn(ctx)
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	if len(data) > maxOnceResult {
		err = unrecorded(convert.Invalid("result", "%d bytes, at most %d", len(data), maxOnceResult))
	}
	if err != nil {
		if bad := h.AbandonOnce(record, c.ref(), key); bad != nil && !errors.Is(bad, pawltype.ErrStaleClaim) {
			c.saved.noteUnclear(key)
		}
		return nil, err
	}
	if err := h.FinishOnce(record, c.ref(), key, data, ttl); err != nil {
		return nil, unfinished(err)
	}
	return data, nil
}

// beginOnce asks for the key until it is free, or done, or the wait is over.
func (c *Claim) beginOnce(ctx context.Context, h lease.OnceKeys, key string) (recorded []byte, done bool, err error) {
	patience := time.Now().Add(min(onceWait, c.Lease/2))
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		a, err := h.BeginOnce(ctx, c.ref(), key)
		switch {
		case err != nil:
			return nil, false, err
		case a.State == pawltype.OnceDone:
			return a.Result, true, nil
		case a.State == pawltype.OnceRun:
			return nil, false, nil
		case !time.Now().Before(patience):
			putOff := min(max(c.Lease/2, minPutOff), maxPutOff)
			return nil, false, &outcome.Directive{Outcome: pawltype.OutcomeSnoozed, Delay: putOff/2 + rand.N(putOff/2),
				Err: fmt.Errorf("%w: task %q, worker %q", pawltype.ErrOnceHeld, a.Holder.TaskID, a.Holder.Worker)}
		}
		rest := rpc.Backoff(try, firstOnceRest, maxOnceRest)
		if a.RetryAfter > 0 {
			rest = min(rest, a.RetryAfter)
		}
		rpc.Sleep(ctx, nil, rest)
	}
}
