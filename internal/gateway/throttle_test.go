package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
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
				t.Fatalf("wrong token %d waited %v", i+1, d)
			}
		}
		for range 3 {
			if d := took("192.0.2.1"); d != wrongEvery {
				t.Errorf("one too many waited %v, not %v", d, wrongEvery)
			}
		}
		if d := took("192.0.2.2"); d != 0 {
			t.Errorf("one of another address waited %v", d)
		}
		if th.slowed.Load() != 3 {
			t.Errorf("%d are counted, not 3", th.slowed.Load())
		}
		time.Sleep(2 * wrongEvery)
		if first, second, third := took("192.0.2.1"), took("192.0.2.1"), took("192.0.2.1"); first != 0 || second != 0 || third != wrongEvery {
			t.Errorf("after a pause of two turns, three waited %v, %v and %v", first, second, third)
		}
		time.Sleep(wrongAtOnce * wrongEvery)
		for i := range wrongAtOnce {
			if d := took("192.0.2.1"); d != 0 {
				t.Fatalf("after a long pause wrong token %d waited %v", i+1, d)
			}
		}
	})
}

// However many arrive at once, none waits longer than the longest wait, and after a pause as long the next ones are treated as
// before.
func TestWrongTokensWaitNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		var all sync.WaitGroup
		began := time.Now()
		for range mostWaiting + wrongAtOnce + 500 {
			all.Go(func() { th.wait(t.Context(), "192.0.2.1") })
		}
		synctest.Wait()
		if n := th.waiting.Load(); n != mostWaiting {
			t.Errorf("%d wait, %d may", n, mostWaiting)
		}
		if all.Wait(); time.Since(began) != longestWait || th.waiting.Load() != 0 || th.slowed.Load() != mostWaiting {
			t.Errorf("the last waited %v; %d wait on, %d were slowed", time.Since(began), th.waiting.Load(), th.slowed.Load())
		}
		began = time.Now()
		if th.wait(t.Context(), "192.0.2.1"); time.Since(began) != wrongEvery {
			t.Errorf("after the longest wait the next one waited %v", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		if th.wait(ctx, "192.0.2.1"); time.Since(began) != 0 || th.waiting.Load() != 0 {
			t.Errorf("one who has gone waited %v", time.Since(began))
		}
	})
}

func source(address string) netip.Prefix {
	ip, _ := netip.ParseAddr(address)
	return sourceNetwork(ip)
}

func TestSourceOfWrongTokens(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true}, {"192.0.2.1", "192.0.2.2", false}, {"::ffff:192.0.2.1", "192.0.2.1", true},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true}, {"2001:db8:0:1::1", "2001:db8:0:2::1", false}, {"fe80::1%eth0", "fe80::1%eth1", true},
		{"", "@", true}, {"", "0.0.0.0", false},
	} {
		if same := source(c.a) == source(c.b); same != c.same {
			t.Errorf("%q and %q are one source: %t, want %t", c.a, c.b, same, c.same)
		}
	}
}

// An endless number of addresses doesn't take endless memory, and those whose time has passed are dropped first.
func TestWrongTokensOfManyAddresses(t *testing.T) {
	var th throttle
	now := time.Now()
	for range 2 * wrongAtOnce {
		th.delayFor(source("192.0.2.1"), now)
	}
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }
	for i := range mostSources - 1 {
		th.delayFor(source(address(i)), now)
	}
	now = now.Add(2 * wrongEvery)
	most := 0
	for i := range mostSources - 1 {
		th.delayFor(source(address(mostSources+i)), now)
		most = max(most, len(th.next))
	}
	if n := len(th.next); n != mostSources || most != mostSources {
		t.Errorf("%d addresses are remembered, at most %d may", n, mostSources)
	}
	if th.delayFor(source("192.0.2.1"), now) <= 0 {
		t.Error("an address with many wrong tokens was forgotten for others that have none")
	}
	if th.delayFor(source("192.0.2.1"), now.Add(time.Minute)); len(th.next) != mostSources {
		t.Errorf("%d addresses are remembered, though one that was known needed no room", len(th.next))
	}
	for i := range 2 * mostSources {
		th.delayFor(source(address(1<<20+i)), now)
		most = max(most, len(th.next))
	}
	if most > mostSources {
		t.Errorf("%d addresses are remembered, at most %d may", most, mostSources)
	}
}

// Callers who retry as soon as they are refused get ten refusals a second. The longest wait limits that: of a thousand callers each
// gets one per longest wait.
func TestWrongTokensOfManyCallers(t *testing.T) {
	for callers, perSecond := range map[int]int{1: 10, 50: 10, 200: 40, mostWaiting: 200} {
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
						// Fake time stands still while somebody runs without waiting, so the loop must also end by their number.
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

// dialInside connects as the web UI does for a visitor from a host.
func dialInside(t *testing.T, g *Gateway, from string) *grpc.ClientConn {
	c, err := grpc.NewClient("passthrough:///"+from, grpc.WithContextDialer(g.DialInProcess), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A valid token never waits, not even when it lacks rights, nor does a call without one; a wrong token does, over gRPC and REST.
func TestGoodTokensDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		good, observer := k.add("good", auth.Everything), k.add("observer", auth.Rights{Namespace: "team", Roles: auth.Observe})
		g, l := lockedGateway(t, k), newPipes()
		go func() { _ = g.Serve(l) }()
		overGRPC := func(conn *grpc.ClientConn) func(token string) error {
			limits := pawlv1.NewAccessServiceClient(conn)
			return func(token string) error {
				_, err := limits.GetLimits(with(t.Context(), token, ""), &pawlv1.GetLimitsRequest{})
				return err
			}
		}
		faces := map[string]func(token string) error{
			"gRPC":   overGRPC(dial(t, l)),
			"web UI": overGRPC(dialInside(t, g, "198.51.100.7")),
			"REST": func(token string) error {
				r := httptest.NewRequest("GET", ours+"/api/v1/limits", nil)
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				w := httptest.NewRecorder()
				if g.Handler().ServeHTTP(w, r); w.Code != http.StatusOK {
					return status.Errorf(codes.Unauthenticated, "%d %s", w.Code, w.Body)
				}
				return nil
			},
		}
		for face, ask := range faces {
			is := func(what, token string, want codes.Code, wait time.Duration) {
				t.Helper()
				k.tell()
				began := time.Now()
				if err := ask(token); status.Code(err) != want || time.Since(began) != wait {
					t.Errorf("%s: %s: %v after %v, want %s after %v", face, what, err, time.Since(began), want, wait)
				}
			}
			for range wrongAtOnce / 2 {
				is("an unknown token", auth.NewSecret(), codes.Unauthenticated, 0)
				is("none", "", codes.Unauthenticated, 0)
				is("what is no token", "nonsense", codes.Unauthenticated, 0)
			}
			began := time.Now()
			for range 2 * wrongAtOnce {
				r := httptest.NewRequest("DELETE", ours+"/api/v1/namespaces/team", nil)
				r.Header.Set("Authorization", "Bearer "+observer)
				w := httptest.NewRecorder()
				g.Handler().ServeHTTP(w, r)
				if w.Code != http.StatusForbidden || time.Since(began) != 0 {
					t.Fatalf("what a token may not do is refused with %d after %v", w.Code, time.Since(began))
				}
			}
			slowed := g.Slowed()
			is("one too many", auth.NewSecret(), codes.Unauthenticated, wrongEvery)
			is("a good one", good, codes.OK, 0)
			is("none", "", codes.Unauthenticated, 0)
			is("what is no token", "nonsense", codes.Unauthenticated, wrongEvery)
			if n := g.Slowed() - slowed; n != 2 {
				t.Errorf("%s: %d are counted as slowed, not 2", face, n)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Calls that need no token check none: a health probe with a revoked token is answered immediately, whatever its address did
// before.
func TestPublicRoutesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		k.add("good", auth.Everything)
		g := lockedGateway(t, k)
		k.tell()
		get := func(path string) (code int, took time.Duration) {
			r, began := httptest.NewRequest("GET", ours+path, nil), time.Now()
			r.Header.Set("Authorization", "Bearer "+auth.NewSecret())
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, r)
			return w.Code, time.Since(began)
		}
		for range wrongAtOnce {
			get("/api/v1/limits")
		}
		if code, took := get("/api/v1/limits"); code != http.StatusUnauthorized || took == 0 {
			t.Fatalf("one wrong token too many: %d after %v", code, took)
		}
		for _, path := range []string{"/readyz", "/healthz", "/api/v1/openapi.json"} {
			for range 2 * wrongAtOnce {
				if code, took := get(path); code == http.StatusUnauthorized || took != 0 {
					t.Fatalf("%s: %d after %v", path, code, took)
				}
			}
		}
	})
}

// A source is an address or, for IPv6, a /64 network.
func TestSourcesAreNetworks(t *testing.T) {
	for from, want := range map[string]string{"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:3::": "2001:db8:1:3::/64"} {
		if got := sourceNetwork(netip.MustParseAddr(from)).String(); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
	if got := sourceNetwork(netip.Addr{}); got.IsValid() {
		t.Errorf("no address: %s", got)
	}
}
