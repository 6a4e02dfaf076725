package pawl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// ErrOnceHeld is the answer to Once while another task brings the effect about. Returned by a handler, it puts the task off, like
// Snooze: no attempt is used.
var ErrOnceHeld = errors.New("pawl: another task has this effect under way")

const (
	maxOnceResult = 64 << 10
	minOnceTTL    = time.Second
	maxOnceTTL    = 365 * 24 * time.Hour
	// onceWait bounds the wait for another task's effect, beside half a lease.
	onceWait = 10 * time.Second
	// firstOnceRest and maxOnceRest bound the pauses in which the key is asked for.
	firstOnceRest = 50 * time.Millisecond
	maxOnceRest   = time.Second
	// minPutOff and maxPutOff bound for how long a task is put off that has waited in vain.
	minPutOff = time.Second
	maxPutOff = 30 * time.Second
	// recordTime bounds the record of an effect that is there, beyond the end of the handler's context too: what isn't recorded is
	// done again.
	recordTime = 10 * time.Second
)

// OnceOption changes how Once keeps a result.
type OnceOption func(*onceRule)

type onceRule struct{ ttl time.Duration }

// OnceTTL says how long the result is kept: from 1 s to 365 days, 24 h if nothing is said. Then the effect may be had again.
func OnceTTL(d time.Duration) OnceOption { return func(r *onceRule) { r.ttl = d } }

// Once is Claim.Once for effects that have a result: at most 64 KiB of JSON, which the tasks that come later get in place of fn's.
// A result that doesn't fit R any more, since another version of the program recorded it, is an error that names the key.
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

// Once brings an effect about that the tasks of the queue want to have only once, whichever of them comes first: fn runs unless the
// key stands for an effect that is recorded already, for 24 hours or as long as OnceTTL says. It is for effects across different
// tasks and replays; what happens once within one task is cheaper as a Step. Key is at most 256 bytes.
//
// While fn runs the claim holds the key. When the claim ends, in whatever way, so does its hold: a crash frees the key, and the next
// attempt runs fn. Another task that wants the effect waits, for half a lease and at most ten seconds, and is then put off with
// ErrOnceHeld. An error of fn is returned, and nothing recorded. fn should end when its context does.
//
// A crash between the effect and its record runs fn again: nobody can have both in one step who has them in two places.
// docs/idempotency.md says what helps.
func (c *Claim) Once(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...OnceOption) error {
	_, err := c.once(ctx, key, opts, func(ctx context.Context) ([]byte, error) { return nil, fn(ctx) })
	if err != nil {
		return fmt.Errorf("once %q of task %q: %w", key, c.ID, err)
	}
	return nil
}

func (c *Claim) once(ctx context.Context, key string, opts []OnceOption, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	var rule onceRule
	for _, o := range opts {
		o(&rule)
	}
	if rule.ttl != 0 && (rule.ttl < minOnceTTL || rule.ttl > maxOnceTTL) {
		return nil, invalid("ttl", "%s is not between %s and %s", rule.ttl, minOnceTTL, maxOnceTTL)
	}
	// Two goroutines of one claim are one holder to the broker.
	leave, err := c.saved.enter(ctx, "once/"+key)
	if err != nil {
		return nil, err
	}
	defer leave()
	if c.saved.isUnclear(key) {
		return nil, fmt.Errorf("%w: nobody knows whether this run still holds the key", ErrUnavailable)
	}
	var h oncer = &c.saved.alone
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
	if err == nil && len(data) > maxOnceResult {
		err = unrecorded(invalid("result", "%d bytes, at most %d", len(data), maxOnceResult))
	}
	if err != nil {
		if bad := h.abandonOnce(record, c, key); bad != nil && !errors.Is(bad, ErrStaleClaim) {
			c.saved.noteUnclear(key)
		}
		return nil, err
	}
	if err := h.finishOnce(record, c, key, data, rule.ttl); err != nil {
		return nil, fmt.Errorf("fn has run, but that could not be recorded: %w", err)
	}
	return data, nil
}

// beginOnce asks for the key until it is free, or done, or the wait is over.
func (c *Claim) beginOnce(ctx context.Context, h oncer, key string) (recorded []byte, done bool, err error) {
	patience := time.Now().Add(min(onceWait, c.Lease/2))
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		a, err := h.beginOnce(ctx, c, key)
		switch {
		case err != nil:
			return nil, false, err
		case a.State == OnceDone:
			return a.Result, true, nil
		case a.State == OnceRun:
			return nil, false, nil
		case !time.Now().Before(patience):
			putOff := min(max(c.Lease/2, minPutOff), maxPutOff)
			return nil, false, &steer{outcome: OutcomeSnoozed, delay: putOff/2 + rand.N(putOff/2),
				err: fmt.Errorf("%w: task %q, worker %q", ErrOnceHeld, a.Holder.TaskID, a.Holder.Worker)}
		}
		rest := backoffAfter(try, firstOnceRest, maxOnceRest)
		if a.RetryAfter > 0 {
			rest = min(rest, a.RetryAfter)
		}
		sleep(ctx, nil, rest)
	}
}

// OnceState is how a once key stands.
type OnceState string

// States of a once key.
const (
	OnceRun  OnceState = "run"  // the claim holds it, and is to bring the effect about
	OnceDone OnceState = "done" // the effect is there
	OnceHeld OnceState = "held" // another claim holds it
	OnceFree OnceState = "free" // nobody holds it
)

func onceStateOf(s pawlv1.OnceState) OnceState {
	switch s {
	case pawlv1.OnceState_ONCE_STATE_RUN:
		return OnceRun
	case pawlv1.OnceState_ONCE_STATE_DONE:
		return OnceDone
	case pawlv1.OnceState_ONCE_STATE_FREE:
		return OnceFree
	}
	return OnceHeld // and wait: what a later broker says is not known here
}

// OnceAnswer is how a once key stood when a claim began it.
type OnceAnswer struct {
	State      OnceState
	Result     []byte        // if done: JSON, or nothing
	KeptUntil  time.Time     // if done
	Holder     OnceHolder    // if held
	RetryAfter time.Duration // if held: when to ask again
}

// OnceHolder is the claim that holds a once key.
type OnceHolder struct {
	TaskID string
	Worker string
	Fence  int64
}

// BeginOnce asks for a once key: see Claim.Once, which is made of this, FinishOnce and AbandonOnce.
func (s Claims) BeginOnce(ctx context.Context, c *Claim, key string) (OnceAnswer, error) {
	p, err := call(ctx, s.client, true, s.client.worker.BeginOnce, &pawlv1.BeginOnceRequest{TaskId: c.ID, ClaimToken: c.Token, Key: key})
	if err != nil {
		return OnceAnswer{}, fmt.Errorf("begin: %w", err)
	}
	h := p.GetHolder()
	return OnceAnswer{State: onceStateOf(p.GetState()), Result: p.GetResult(), KeptUntil: timeOf(p.GetKeptUntil()),
		Holder:     OnceHolder{TaskID: h.GetTaskId(), Worker: h.GetWorker(), Fence: h.GetFence()},
		RetryAfter: p.GetRetryAfter().AsDuration()}, nil
}

// FinishOnce records that the effect is there, with its result: JSON, or nothing. It tells until when that is kept, ttl from now, or
// a day if ttl is 0. A repeat gets the first answer again.
func (s Claims) FinishOnce(ctx context.Context, c *Claim, key string, result []byte, ttl time.Duration) (keptUntil time.Time, err error) {
	req := &pawlv1.FinishOnceRequest{TaskId: c.ID, ClaimToken: c.Token, Key: key, Result: result, Ttl: durationOrNil(ttl)}
	p, err := call(ctx, s.client, true, s.client.worker.FinishOnce, req)
	if err != nil {
		return time.Time{}, fmt.Errorf("finish: %w", err)
	}
	return timeOf(p.GetKeptUntil()), nil
}

// AbandonOnce says that the effect did not come about, so that others may try: the key is free then, or done if it was. After
// ErrUnavailable nobody knows whether the claim still holds the key; don't begin it anew with this claim.
func (s Claims) AbandonOnce(ctx context.Context, c *Claim, key string) (OnceState, error) {
	req := &pawlv1.AbandonOnceRequest{TaskId: c.ID, ClaimToken: c.Token, Key: key}
	p, err := call(ctx, s.client, false, s.client.worker.AbandonOnce, req)
	if err != nil {
		return "", fmt.Errorf("abandon: %w", err)
	}
	return onceStateOf(p.GetState()), nil
}

// beginOnce implements oncer.
func (s Claims) beginOnce(ctx context.Context, c *Claim, key string) (OnceAnswer, error) {
	return s.BeginOnce(ctx, c, key)
}

// finishOnce implements oncer.
func (s Claims) finishOnce(ctx context.Context, c *Claim, key string, result []byte, ttl time.Duration) error {
	_, err := s.FinishOnce(ctx, c, key, result, ttl)
	return err
}

// abandonOnce implements oncer.
func (s Claims) abandonOnce(ctx context.Context, c *Claim, key string) error {
	_, err := s.AbandonOnce(ctx, c, key)
	return err
}

// beginOnce implements oncer.
func (s *shift) beginOnce(ctx context.Context, c *Claim, key string) (OnceAnswer, error) {
	a, err := s.client.Claims().BeginOnce(ctx, c, key)
	return a, s.heed(c, err)
}

// finishOnce implements oncer.
func (s *shift) finishOnce(ctx context.Context, c *Claim, key string, result []byte, ttl time.Duration) error {
	return s.heed(c, s.client.Claims().finishOnce(ctx, c, key, result, ttl))
}

// abandonOnce implements oncer.
func (s *shift) abandonOnce(ctx context.Context, c *Claim, key string) error {
	return s.heed(c, s.client.Claims().abandonOnce(ctx, c, key))
}

// heed ends the handler of a claim that is gone, if that is what an error says.
func (s *shift) heed(c *Claim, err error) error {
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == codeStaleClaim {
		s.lose(c.Token, refusal.Reason)
	}
	return err
}
