// Package rpc makes calls over a connection, and retries them while the broker is unavailable. It does not know which calls there are, nor
// where the connection leads.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc"
)

// MaxMessage is the limit of one gRPC message, in bytes, on both sides.
const MaxMessage = 16 << 20

// Conn is a connection to a broker, or to the nodes of a cluster.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Caller makes calls over a connection, and retries them while the broker is unavailable. Its methods are safe for concurrent use.
type Caller struct {
	Conn
	retryFor time.Duration
	budget   retryBudget
	ctx      context.Context // ends with End
	cancel   context.CancelFunc
}

// NewCaller returns a Caller that retries a call for at most retryFor.
func NewCaller(conn Conn, retryFor time.Duration) *Caller {
	c := &Caller{Conn: conn, retryFor: retryFor}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Context returns a context that ends when the Caller does.
func (c *Caller) Context() context.Context { return c.ctx }

// End ends the pauses between retries; calls that fail from now on return ErrClosed. The connection stays open.
func (c *Caller) End() { c.cancel() }

// RetryFor returns how long a call may be retried.
func (c *Caller) RetryFor() time.Duration { return c.retryFor }

// Succeeded records a success that Call did not see, so that more retries are allowed.
func (c *Caller) Succeeded() { c.budget.succeeded() }

// Call makes one RPC. If repeat is set, it is retried while the broker is unavailable.
func Call[Req, Resp any](ctx context.Context, c *Caller, repeat bool, rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error),
	req Req) (Resp, error) {
	start := time.Now()
	for try := 0; ; try++ {
		resp, err := rpc(ctx, req)
		if err == nil {
			c.budget.succeeded()
			return resp, nil
		}
		err = c.Failed(convert.CallError(ctx, err))
		if !repeat || !errors.Is(err, pawltype.ErrUnavailable) || time.Since(start) > c.retryFor {
			return resp, err
		}
		if stop := c.Pause(ctx, try, err); stop != nil {
			return resp, stop
		}
	}
}

// Failed replaces the error of a call that End interrupted.
func (c *Caller) Failed(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return pawltype.ErrClosed
	}
	return err
}

const (
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
)

// freeTries is how often a call may be retried outside the budget after a node that was not ready: the next node may be. After a lost
// connection, for which no server asks to wait, it is once: the calls in flight on one are many, and most of their shards have leaders.
const freeTries = 3

// Pause waits before the next try of a call that failed with err, or returns an error if there is none.
func (c *Caller) Pause(ctx context.Context, try int, err error) error {
	rest := convert.RetryAfter(err)
	wait := max(Backoff(try, firstPause, maxPause), rest)
	if try >= freeTries || rest > 0 || try > 0 && !convert.DidNotRun(err) {
		wait = max(wait, c.budget.take(time.Now()))
	}
	return c.Sleep(ctx, wait, err)
}

// Sleep waits before the next try of a call that failed with err.
func (c *Caller) Sleep(ctx context.Context, wait time.Duration, err error) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (after %w)", ctx.Err(), err)
	case <-c.ctx.Done():
		return pawltype.ErrClosed
	}
}

// Backoff doubles from first to limit, minus up to half at random, so that clients don't return in lockstep.
func Backoff(try int, first, limit time.Duration) time.Duration {
	d := min(first<<min(try, 16), limit)
	return d/2 + rand.N(d/2+1)
}

// retryBudget paces the retries of all calls of a client, so that a broker that is slow to come back is not hit by a storm: ten right
// away, then one for every ten calls that succeed, and five a second in any case.
type retryBudget struct {
	mu     sync.Mutex
	tokens float64
	last   time.Time // when tokens were counted; zero: never, which makes it full by the next time
}

const (
	maxRetryTokens    = 10
	tokensPerSuccess  = 0.1
	retryTokensPerSec = 5
)

func (b *retryBudget) succeeded() {
	b.mu.Lock()
	b.tokens = min(b.tokens+tokensPerSuccess, maxRetryTokens)
	b.mu.Unlock()
}

// take uses one token and returns how long to wait for it, not at all if that is negative. The wait is bounded: beyond that, the
// call's own deadline decides.
func (b *retryBudget) take(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+now.Sub(b.last).Seconds()*retryTokensPerSec, maxRetryTokens)
	b.last = now
	b.tokens = max(b.tokens-1, -maxPause.Seconds()*retryTokensPerSec)
	return time.Duration(-b.tokens / retryTokensPerSec * float64(time.Second))
}
