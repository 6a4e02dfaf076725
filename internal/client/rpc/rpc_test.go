package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/pawlq/pawl/pawltype"
)

var (
	away     = &pawltype.Error{Code: pawltype.ErrUnavailable}
	notReady = &pawltype.Error{Code: pawltype.ErrUnavailable, Reason: "node_not_ready"}
	asks     = &pawltype.Error{Code: pawltype.ErrUnavailable, RetryAfter: 7 * time.Second}
	soon     = &pawltype.Error{Code: pawltype.ErrUnavailable, RetryAfter: 1}
	conflict = &pawltype.Error{Code: pawltype.ErrConflict}
)

// answers returns one error after the other, the last for ever, and counts the calls.
func answers(calls *int, errs ...error) func(context.Context, int, ...grpc.CallOption) (int, error) {
	return func(_ context.Context, n int, _ ...grpc.CallOption) (int, error) {
		err := errs[min(*calls, len(errs)-1)]
		*calls++
		return n + 1, err
	}
}

// A call is retried while the broker is unavailable and there is time, if it is safe to repeat.
func TestCall(t *testing.T) {
	for what, x := range map[string]struct {
		errs     []error
		repeat   bool
		retryFor time.Duration
		want     error
		calls    int
		least    time.Duration // minimum duration
		most     time.Duration
	}{
		"answered":        {[]error{nil}, true, time.Minute, nil, 1, 0, 0},
		"refused":         {[]error{conflict}, true, time.Minute, conflict, 1, 0, 0},
		"back":            {[]error{away, away, nil}, true, time.Minute, nil, 3, 30 * time.Millisecond, 60 * time.Millisecond},
		"back, refused":   {[]error{away, conflict}, true, time.Minute, conflict, 2, 10 * time.Millisecond, 20 * time.Millisecond},
		"not repeated":    {[]error{away}, false, time.Minute, away, 1, 0, 0},
		"no time":         {[]error{away}, true, -1, away, 1, 0, 0},
		"asks for a rest": {[]error{asks, nil}, true, time.Minute, nil, 2, 7 * time.Second, 7 * time.Second},
		"away for long":   {[]error{asks}, true, 13 * time.Second, asks, 3, 14 * time.Second, 14 * time.Second},
		"in time":         {[]error{asks}, true, 14 * time.Second, asks, 4, 21 * time.Second, 21 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, calls, began := NewCaller(nil, x.retryFor), 0, time.Now()
			got, err := Call(t.Context(), c, x.repeat, answers(&calls, x.errs...), 6)
			if took := time.Since(began); !errors.Is(err, x.want) || err == nil && got != 7 || calls != x.calls ||
				took < x.least || took > x.most {
				t.Errorf("%s: %v after %d calls and %s, want %v after %d and %s to %s", what, err, calls, took, x.want,
					x.calls, x.least, x.most)
			}
		})
	}
}

// A pause ends with the caller's context, whose error is returned with the refusal, and with the client.
func TestPausesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCaller(nil, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Pause(ctx, 0, asks); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, asks) {
			t.Errorf("Pause after its context ended: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		calls := 0
		if _, err := Call(ctx, c, true, answers(&calls, asks, nil), 6); !errors.Is(err, context.DeadlineExceeded) || calls != 1 {
			t.Errorf("Call after its context ended: %v after %d calls", err, calls)
		}
		time.AfterFunc(time.Second, c.End)
		if err := c.Pause(t.Context(), 0, asks); err != pawltype.ErrClosed {
			t.Errorf("Pause after the client ended: %v, want ErrClosed", err)
		}
		if err := c.Failed(conflict); err != pawltype.ErrClosed || c.Failed(nil) != nil || c.Context().Err() == nil {
			t.Errorf("Failed after the client ended: %v, want ErrClosed", err)
		}
	})
}

// Ten retries run right away, then five a second, and one more for every ten calls that succeed. After a node that is not ready,
// three are free, and the first after a lost connection.
func TestRepeatsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCaller(nil, time.Hour)
		for n := range 12 {
			if wait, want := max(c.budget.take(time.Now()), 0), time.Duration(max(n-9, 0))*200*time.Millisecond; wait != want {
				t.Errorf("retry %d waits for %s, want %s", n, wait, want)
			}
		}
		useUp := func() {
			for range 10 {
				c.budget.take(time.Now())
			}
		}
		for _, x := range []struct {
			try         int
			err         error
			least, most time.Duration
		}{{0, away, 0, firstPause}, {1, away, maxPause, maxPause}, {0, soon, maxPause, maxPause}, {2, notReady, 0, 80 * time.Millisecond},
			{2, away, maxPause, maxPause}, {3, notReady, maxPause, maxPause}, {4, notReady, maxPause, maxPause}} {
			useUp()
			began := time.Now()
			err := c.Pause(t.Context(), x.try, x.err)
			if took := time.Since(began); err != nil || took < x.least || took > x.most {
				t.Errorf("Pause of try %d after %v took %s, %v, want %s to %s", x.try, x.err, took, err, x.least, x.most)
			}
		}
		for what, succeed := range map[string]func(){
			"calls":   func() { _, _ = Call(t.Context(), c, true, answers(new(int), nil), 6) },
			"streams": c.Succeeded,
		} {
			useUp()
			time.Sleep(maxPause)
			for range 10 {
				succeed()
			}
			if wait := c.budget.take(time.Now()); wait > time.Millisecond {
				t.Errorf("after ten successful %s a retry waits for %s", what, wait)
			}
		}
		for range 1000 {
			c.Succeeded()
		}
		if c.budget.tokens != maxRetryTokens {
			t.Errorf("the budget has %v tokens, want at most %d", c.budget.tokens, maxRetryTokens)
		}
		for range 1000 {
			c.budget.take(time.Now())
		}
		if wait := c.budget.take(time.Now()); wait != maxPause {
			t.Errorf("after 1000 retries the next one waits for %s, want %s", wait, maxPause)
		}
		time.Sleep(time.Hour)
		if c.budget.take(time.Now()); c.budget.tokens != maxRetryTokens-1 {
			t.Errorf("after an hour the budget has %v tokens, want %d", c.budget.tokens, maxRetryTokens-1)
		}
	})
}

func TestBackoff(t *testing.T) {
	if d := Backoff(1000, time.Nanosecond, time.Hour); d < 1<<15 || d > 1<<16 {
		t.Errorf("Backoff = %s, want at most 65536 times the first pause", d)
	}
	if d := Backoff(0, 2, 2); d < 1 || d > 2 {
		t.Errorf("Backoff of the shortest pause = %d", d)
	}
	for try, want := range map[int]time.Duration{0: 20, 1: 40, 6: 1280, 7: 2000, 1000: 2000} {
		least, most := 10_000*time.Millisecond, time.Duration(0)
		for range 2000 {
			d := Backoff(try, firstPause, maxPause)
			least, most = min(least, d), max(most, d)
		}
		if want *= time.Millisecond; least < want/2 || least > want*6/10 || most > want || most < want*9/10 {
			t.Errorf("Backoff of try %d: %s to %s, want %s to %s", try, least, most, want/2, want)
		}
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, end := context.WithCancel(t.Context())
		end()
		closed := make(chan struct{})
		close(closed)
		for what, x := range map[string]struct {
			ctx     context.Context
			closing <-chan struct{}
			want    bool
		}{"whole": {t.Context(), nil, true}, "the context ends": {ended, nil, false}, "it is closed": {t.Context(), closed, false}} {
			began := time.Now()
			if got := Sleep(x.ctx, x.closing, time.Second); got != x.want || got != (time.Since(began) == time.Second) {
				t.Errorf("%s: Sleep = %v after %s", what, got, time.Since(began))
			}
		}
	})
}

// The refusals after which a stream is not reopened.
func TestFinal(t *testing.T) {
	for err, want := range map[error]string{pawltype.ErrUnauthenticated: "true true", pawltype.ErrPermissionDenied: "true true",
		pawltype.ErrInvalidArgument: "false true", pawltype.ErrClosed: "false true", pawltype.ErrUnavailable: "false false",
		pawltype.ErrInternal: "false false"} {
		if got := fmt.Sprint(AccessDenied(err), Final(err)); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}
