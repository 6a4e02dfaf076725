package access

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/gateway/listen"
)

func TestWrongTokensWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		took := func(address string) time.Duration {
			began := time.Now()
			th.wait(t.Context(), address)
			return time.Since(began)
		}
		for i := range wrongAtOnce {
			if d := took("192.0.2.1"); d != 0 {
				t.Fatalf("wrong token %d waited %v, want no wait", i+1, d)
			}
		}
		for range 3 {
			if d := took("192.0.2.1"); d != wrongEvery {
				t.Errorf("wrong token over the limit waited %v, want %v", d, wrongEvery)
			}
		}
		if d := took("192.0.2.2"); d != 0 {
			t.Errorf("wrong token from another address waited %v, want no wait", d)
		}
		if th.slowed.Load() != 3 {
			t.Errorf("%d are counted as slowed, want 3", th.slowed.Load())
		}
		time.Sleep(2 * wrongEvery)
		if first, second, third := took("192.0.2.1"), took("192.0.2.1"), took("192.0.2.1"); first != 0 || second != 0 ||
			third != wrongEvery {
			t.Errorf("after a pause of two intervals, three wrong tokens waited %v, %v and %v", first, second, third)
		}
		time.Sleep(wrongAtOnce * wrongEvery)
		for i := range wrongAtOnce {
			if d := took("192.0.2.1"); d != 0 {
				t.Fatalf("after a long pause, wrong token %d waited %v", i+1, d)
			}
		}
	})
}

// However many wrong tokens arrive at once, none waits longer than the maximum. After a pause of that length, the next ones are treated
// as before.
func TestWrongTokenDelayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		var all sync.WaitGroup
		began := time.Now()
		for range maxWaiting + wrongAtOnce + 500 {
			all.Go(func() { th.wait(t.Context(), "192.0.2.1") })
		}
		synctest.Wait()
		if n := th.waiting.Load(); n != maxWaiting {
			t.Errorf("%d are waiting, want %d", n, maxWaiting)
		}
		if all.Wait(); time.Since(began) != longestWait || th.waiting.Load() != 0 || th.slowed.Load() != maxWaiting {
			t.Errorf("the last one waited %v; %d still wait, %d were slowed", time.Since(began), th.waiting.Load(), th.slowed.Load())
		}
		began = time.Now()
		if th.wait(t.Context(), "192.0.2.1"); time.Since(began) != wrongEvery {
			t.Errorf("after the longest wait, the next wrong token waited %v", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		if th.wait(ctx, "192.0.2.1"); time.Since(began) != 0 || th.waiting.Load() != 0 {
			t.Errorf("a wrong token of a cancelled call waited %v", time.Since(began))
		}
	})
}

func source(address string) netip.Prefix {
	ip, _ := netip.ParseAddr(address)
	return listen.SourceNetwork(ip)
}

// The number of tracked addresses is bounded, and those whose wait is over are dropped first.
func TestWrongTokensOfManyAddresses(t *testing.T) {
	var th throttle
	now := time.Now()
	for range 2 * wrongAtOnce {
		th.delayFor(source("192.0.2.1"), now)
	}
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }
	for i := range maxSources - 1 {
		th.delayFor(source(address(i)), now)
	}
	now = now.Add(2 * wrongEvery)
	most := 0
	for i := range maxSources - 1 {
		th.delayFor(source(address(maxSources+i)), now)
		most = max(most, len(th.next))
	}
	if n := len(th.next); n != maxSources || most != maxSources {
		t.Errorf("%d addresses are tracked, want %d", n, maxSources)
	}
	if th.delayFor(source("192.0.2.1"), now) <= 0 {
		t.Error("an address with many wrong tokens was dropped in favor of addresses without a wait")
	}
	if th.delayFor(source("192.0.2.1"), now.Add(time.Minute)); len(th.next) != maxSources {
		t.Errorf("%d addresses are tracked after another wrong token from a known one", len(th.next))
	}
	for i := range 2 * maxSources {
		th.delayFor(source(address(1<<20+i)), now)
		most = max(most, len(th.next))
	}
	if most > maxSources {
		t.Errorf("%d addresses are tracked, want at most %d", most, maxSources)
	}
}

// Callers that retry immediately after a refusal get ten refusals a second. With many callers the longest wait determines the rate: each
// of a thousand callers gets one refusal per longest wait.
func TestWrongTokensOfManyCallers(t *testing.T) {
	for callers, perSecond := range map[int]int{1: 10, 50: 10, 200: 40, maxWaiting: 200} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const seconds = 60
				most := int64(wrongAtOnce + seconds*perSecond)
				var th throttle
				var refusals atomic.Int64
				var all sync.WaitGroup
				ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
				defer cancel()
				for range callers {
					all.Go(func() {
						// Fake time stands still while a goroutine runs without waiting, so the loop must also end by
						// the number of refusals.
						for th.wait(ctx, "192.0.2.1"); ctx.Err() == nil && refusals.Add(1) <= most; {
							th.wait(ctx, "192.0.2.1")
						}
					})
				}
				all.Wait()
				if n := refusals.Load(); n > most || n < most-int64(callers+wrongAtOnce+perSecond) {
					t.Errorf("%d callers were refused %d times in %d s, want about %d", callers, n, seconds, most)
				}
			})
		})
	}
}
