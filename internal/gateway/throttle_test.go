package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
)

// dialInside connects to the gateway in the process, as the web UI does for a browser on a host.
func dialInside(t *testing.T, g *Gateway, from string) *grpc.ClientConn {
	c, err := grpc.NewClient("passthrough:///"+from, grpc.WithContextDialer(g.DialInProcess),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A valid token never waits, not even without the needed rights, and neither does a call without a token. A wrong token
// waits, over gRPC and REST.
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
				k.publish()
				began := time.Now()
				if err := ask(token); status.Code(err) != want || time.Since(began) != wait {
					t.Errorf("%s, %s: %v after %v, want %s after %v", face, what, err, time.Since(began), want, wait)
				}
			}
			for range wrongFree / 2 {
				is("an unknown token", bearer.New(), codes.Unauthenticated, 0)
				is("none", "", codes.Unauthenticated, 0)
				is("what is no token", "nonsense", codes.Unauthenticated, 0)
			}
			began := time.Now()
			for range 2 * wrongFree {
				r := httptest.NewRequest("DELETE", ours+"/api/v1/namespaces/team", nil)
				r.Header.Set("Authorization", "Bearer "+observer)
				w := httptest.NewRecorder()
				g.Handler().ServeHTTP(w, r)
				if w.Code != http.StatusForbidden || time.Since(began) != 0 {
					t.Fatalf("call without the needed rights: status %d after %v, want 403 at once", w.Code, time.Since(began))
				}
			}
			slowed := g.Slowed()
			is("one too many", bearer.New(), codes.Unauthenticated, wrongPause)
			is("a good one", good, codes.OK, 0)
			is("none", "", codes.Unauthenticated, 0)
			is("what is no token", "nonsense", codes.Unauthenticated, wrongPause)
			if n := g.Slowed() - slowed; n != 2 {
				t.Errorf("%s: %d calls are counted as slowed, want 2", face, n)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Calls that need no token check none, so a health probe with a revoked token is answered immediately, whatever its address sent before.
func TestPublicRoutesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		k.add("good", auth.Everything)
		g := lockedGateway(t, k)
		k.publish()
		get := func(path string) (code int, took time.Duration) {
			r, began := httptest.NewRequest("GET", ours+path, nil), time.Now()
			r.Header.Set("Authorization", "Bearer "+bearer.New())
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, r)
			return w.Code, time.Since(began)
		}
		for range wrongFree {
			get("/api/v1/limits")
		}
		if code, took := get("/api/v1/limits"); code != http.StatusUnauthorized || took == 0 {
			t.Fatalf("wrong token over the limit: %d after %v, want unauthenticated after a wait", code, took)
		}
		for _, path := range []string{"/readyz", "/healthz", "/api/v1/openapi.json"} {
			for range 2 * wrongFree {
				if code, took := get(path); code == http.StatusUnauthorized || took != 0 {
					t.Fatalf("%s: status %d after %v, want no wait", path, code, took)
				}
			}
		}
	})
}

// These have the values in package access.
const (
	wrongFree  = 20
	wrongPause = 100 * time.Millisecond
)
