package access

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/task"
)

// A caller must name a single namespace.
func TestTwoNamespaces(t *testing.T) {
	two := Credentials{namespaces: []string{"a", "b"}}
	if _, err := (&Guard{}).namespace(callinfo.Principal{Principal: auth.Anonymous}, two); !errors.Is(err, task.ErrInvalidArgument) {
		t.Errorf("two namespaces: %v, want an invalid argument", err)
	}
}

// These limits are part of what callers rely on. Changing one must be deliberate.
func TestLimitsAreStable(t *testing.T) {
	for what, c := range map[string][2]int{
		"calls": {maxCalls, 100_000}, "strangers": {maxPublicCalls, 8}, "wrong tokens at once": {wrongAtOnce, 20},
		"refusals that wait": {maxWaiting, 1000}, "sources of wrong tokens": {maxSources, 10_000},
	} {
		if c[0] != c[1] {
			t.Errorf("limit of %s = %d, want %d", what, c[0], c[1])
		}
	}
}

// Each rate is enforced by itself, even if the other is unlimited, and a refusal reports when the call may be retried.
func TestRatesOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for quota, q := range map[task.Quota]task.Quotas{task.QuotaRequests: {Requests: 1}, task.QuotaBytes: {Bytes: 1}} {
			g := NewGuard(auth.NewAuthenticator(auth.Config{Mode: auth.Never}), listen.Hosts{}, task.DefaultLimits().Payload,
				slog.New(slog.DiscardHandler), nil)
			g.Rates = newRates(1)
			take := func() error { return g.Rates.Take("n", q, 1, 1) }
			if err := take(); err != nil {
				t.Errorf("%s: first call within the quota: %v", quota, err)
			}
			for i, step := range []time.Duration{0, 250 * time.Millisecond, 749999 * time.Microsecond} {
				pass(step)
				e, _ := task.AsError(take())
				if want := []time.Duration{time.Second, 750 * time.Millisecond, time.Millisecond}[i]; e == nil ||
					e.Reason != string(quota) || (e.RetryAfter-want).Abs() > time.Microsecond {
					t.Errorf("%s: another call after %v: %+v, want a refusal with retry after %v", quota, step, e, want)
				}
			}
			if n := g.RefusedByRate("n", quota); n != 3 {
				t.Errorf("%s: %d calls were refused, want 3", quota, n)
			}
			pass(time.Millisecond)
			if err := take(); err != nil {
				t.Errorf("%s: call after the wait: %v", quota, err)
			}
			if err := g.Rates.Take("m", task.Quotas{}, 1, 1); err != nil || len(g.Rates.of) != 1 {
				t.Errorf("Take without a quota: %v, with %d namespaces tracked, want 1", err, len(g.Rates.of))
			}
			q = task.Quotas{Requests: 2 * q.Requests, Bytes: 2 * q.Bytes}
			for i, good := range []bool{true, true, false} {
				if err := take(); (err == nil) != good {
					t.Errorf("%s: call %d after the quota was doubled: %v", quota, i, err)
				}
			}
		}
	})
}
