package access

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
	secrets "github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// trailTo returns a trail that writes each refusal to a log.
func trailTo(w io.Writer) *trail.Trail {
	return trail.New(trail.Config{Kinds: trail.Usual(), Log: slog.New(slog.NewTextHandler(w, nil))})
}

// After leave, a long call holds nothing. Long calls are limited, per namespace and in total.
func TestCallsAreReleased(t *testing.T) {
	k := newTokenSet()
	k.add("team", auth.Rights{Namespace: "team", Roles: auth.Consume})
	k.add("boss", auth.Everything)
	g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), nil)
	g.Calls = admission.NewSlots(4)
	k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"team", "other"}})
	admit := func(who, namespace string, n Need) (context.Context, func(), error) {
		_, c := callinfo.Begin(t.Context(), "grpc", "test")
		return g.admit(t.Context(), c, n, Credentials{tokens: []string{"Bearer " + k.secret[who]}, namespaces: []string{namespace}})
	}
	long := Need{OfQueues, consume, true}
	ctx, leave, err := admit("team", "team", long)
	if err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	if leave(); ctx.Err() == nil || g.Calls.InUse() != 0 {
		t.Errorf("after leave: context error %v, %d calls in use; want a cancelled context and none", ctx.Err(), g.Calls.InUse())
	}
	if ctx, leave, err = admit("team", "team", Need{OfQueues, consume, false}); err != nil {
		t.Fatal(err)
	}
	if leave(); ctx.Err() != nil {
		t.Errorf("leave cancelled the context of a call that does not last: %v", ctx.Err())
	}
	for i, c := range []struct{ who, namespace, says string }{{"team", "team", ""}, {"boss", "team", ""},
		{"team", "team", "the namespace has 2 calls in progress"}, {"boss", "", ""}, {"boss", "default", ""},
		{"boss", "other", "4 calls are in progress at this node"}} {
		if _, _, err := admit(c.who, c.namespace, long); (err == nil) != (c.says == "") || err != nil &&
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("call %d, by %s in namespace %q: %v, want %q", i, c.who, c.namespace, err, c.says)
		}
	}
}

// A call has one token. Calls without sufficient rights are counted as refusals.
func TestRefusalsAreCounted(t *testing.T) {
	if _, err := (Credentials{tokens: []string{"Bearer a", "Bearer b"}}).token(); err == nil || !strings.Contains(err.Error(),
		"is given 2 times") {
		t.Errorf("two tokens: %v, want an error", err)
	}
	const scheme, none = "the scheme is not Bearer", "the scheme Bearer has no token"
	for said, c := range map[string]struct{ token, refused string }{
		"": {refused: scheme}, "Basic pawl_x": {refused: scheme}, "Bear": {refused: scheme}, "Bearerpawl_x": {refused: scheme},
		"pawl_x": {refused: scheme}, "Bearer": {refused: none}, "bearer ": {refused: none}, " Bearer  ": {refused: none},
		"Bearer  a ": {token: "a"}, "bEARER b": {token: "b"},
	} {
		token, err := (Credentials{tokens: []string{said}}).token()
		e, _ := task.AsError(err)
		if token != c.token || (err == nil) != (c.refused == "") || err != nil && (e.Code != task.CodeUnauthenticated ||
			!strings.Contains(e.Message, c.refused)) {
			t.Errorf("token of %q = %q, %v, want %+v", said, token, err, c)
		}
	}
	k := newTokenSet()
	k.addAll()
	g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), nil)
	if _, err := g.Authenticate(Credentials{tokens: []string{"Basic x"}}); err == nil || !strings.Contains(err.Error(),
		"the scheme is not Bearer") {
		t.Errorf("Authenticate with a malformed token: %v, want an error", err)
	}
	for i, c := range []struct {
		token string
		n     Need
		want  uint64 // refused for lack of rights so far
		inUse int    // calls in progress afterwards
	}{{k.secret["observe"], Need{OfQueues, observe, false}, 0, 1}, {k.secret["observe"], Need{OfQueues, produce, false}, 1, 1},
		{"x", Need{OfQueues, produce, false}, 1, 1}, {k.secret["admin"], Need{OfCluster, 0, false}, 2, 1}} {
		ctx, call := callinfo.Begin(peer.NewContext(t.Context(), &peer.Peer{Addr: listen.InProcessAddr("192.0.2.7")}), "grpc", "test")
		_, _, _ = g.admit(ctx, call, c.n, Credentials{tokens: []string{"Bearer " + c.token}})
		if got := k.auth.Failed(auth.FailedRights); got != c.want || g.Calls.InUse() != c.inUse {
			t.Errorf("call %d: %d were refused for lack of rights, want %d; %d are in progress", i, got, c.want, g.Calls.InUse())
		}
	}
	var lines strings.Builder
	g.trail = trailTo(&lines)
	for range 2 {
		ctx, call := callinfo.Begin(peer.NewContext(t.Context(), &peer.Peer{Addr: listen.InProcessAddr("192.0.2.7")}), "grpc", "test")
		_, _, _ = g.admit(ctx, call, Need{OfQueues, produce, false}, Credentials{tokens: []string{"Bearer " + k.secret["observe"]}})
	}
	if strings.Count(lines.String(), "a caller was refused") != 2 ||
		strings.Count(lines.String(), "actor=observe namespace=default interface=ui address=192.0.2.7") != 2 {
		t.Errorf("log = %s, want each refusal with its caller and address", lines.String())
	}
	if _, from := k.auth.Refused(); from != "192.0.2.7" {
		t.Errorf("source of the last refusal = %q", from)
	}
	k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"team"}, Quotas: map[string]task.Quotas{"team": {Bytes: 1}}})
	k.auth.Refreshed(time.Now())
	g.Rates = newRates(1)
	for i := range 3 { // a call itself takes no bytes
		ctx, call := callinfo.Begin(t.Context(), "grpc", "test")
		presented := Credentials{tokens: []string{"Bearer " + k.secret["produce"]}}
		if _, _, err := g.admit(ctx, call, Need{OfQueues, produce, false}, presented); err != nil {
			t.Errorf("call %d of a namespace with a quota of one byte a second: %v", i, err)
		}
		if _, err := g.AdmitFrame(call); err != nil {
			t.Errorf("frame %d of a namespace with a quota of one byte a second: %v", i, err)
		}
	}
	for _, err := range []error{io.EOF, errPlanted} { // errors that are not the caller's fault
		_, call := callinfo.Begin(t.Context(), "grpc", "test")
		if g.refused(t.Context(), call, err, true); strings.Count(lines.String(), "\n") != 2 {
			t.Errorf("%v was logged as a refusal: %s", err, lines.String())
		}
		if _, from := k.auth.Refused(); from != "192.0.2.7" {
			t.Errorf("%v was counted as a refusal from %q", err, from)
		}
	}
	open := NewGuard(auth.NewAuthenticator(auth.Config{Mode: auth.Never}), listen.Hosts{}, task.DefaultLimits().Payload,
		slog.New(slog.DiscardHandler), nil)
	if v, err := open.Authenticate(Credentials{tokens: []string{"Basic x"}}); err != nil || v.Principal != auth.Anonymous {
		t.Errorf("Authenticate where no tokens are required = %+v, %v", v, err)
	}
}

// Refused requests for other hosts are logged at intervals, with the number of those left out since.
func TestRefusalLogIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusalLog
		for i, c := range []struct {
			after  time.Duration
			others int
			ok     bool
		}{{0, 0, true}, {0, 0, false}, {refusalLogInterval - 1, 0, false}, {1, 2, true}, {refusalLogInterval, 0, true}, {1, 0, false},
			{refusalLogInterval, 1, true}} {
			pass(c.after)
			if others, ok := r.turn(); others != c.others || ok != c.ok {
				t.Errorf("refusal %d: %d others, log %t, want %d, %t", i, others, ok, c.others, c.ok)
			}
		}
	})
}

// A node that is cut off from the system shard, and needs no tokens, goes on serving the namespaces that it knows.
func TestCutOffNodeServesNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(auth.NewAuthenticator(auth.Config{Mode: auth.Never}), listen.Hosts{}, task.DefaultLimits().Payload,
			slog.New(slog.DiscardHandler), nil)
		added := time.Now()
		g.auth.Replace(auth.Access{Namespaces: []string{"default", "team"}, Began: map[string]store.Time{"team": store.TimeOf(added)}})
		g.auth.Refreshed(added)
		pass(time.Hour)
		ctx, c := callinfo.Begin(t.Context(), "grpc", "test")
		_, leave, err := g.admit(ctx, c, Need{Reach: OfQueues}, Credentials{namespaces: []string{"team"}})
		if leave(); err != nil || c.Namespace != "team" || !c.Began.Equal(added) {
			t.Errorf("a call in namespace %q, which began at %v, was refused: %v", c.Namespace, c.Began, err)
		}
	})
}

// One namespace can't take all of a node's calls.
func TestCallsAtOnce(t *testing.T) {
	g := NewGuard(auth.NewAuthenticator(auth.Config{Mode: auth.Never}), listen.Hosts{}, task.DefaultLimits().Payload,
		slog.New(slog.DiscardHandler), nil)
	g.Calls = admission.NewSlots(2)
	n := Need{Reach: OfQueues}
	enter := func() (func(), error) {
		ctx, c := callinfo.Begin(t.Context(), "grpc", "test")
		_, leave, err := g.admit(ctx, c, n, Credentials{})
		return leave, err
	}
	leave, err := enter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enter(); err == nil || !strings.Contains(fmt.Sprint(err), "1 calls in progress") {
		t.Errorf("call beyond the limit: %v, want a refusal", err)
	}
	leave()
	if _, err := enter(); err != nil {
		t.Errorf("call after another one ended: %v", err)
	}
}

// tokenSet is a set of tokens, and an authenticator that knows them.
type tokenSet struct {
	auth   *auth.Authenticator
	secret map[string]string
	tokens []auth.Token
}

// add creates a token with the given name.
func (k *tokenSet) add(name string, r auth.Rights) string {
	s := secrets.New()
	k.secret[name] = s
	k.tokens = append(k.tokens, auth.Token{Name: name, Rights: r, Hash: auth.HashOf(s), CreatedAt: store.TimeOf(time.Now())})
	k.publish()
	return s
}

func (k *tokenSet) publish() {
	k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"team"}})
	k.auth.Refreshed(time.Now())
}

// addAll creates tokens of every kind: one for each role in a namespace, and admins with and without limits.
func (k *tokenSet) addAll() {
	for _, name := range auth.RoleNames {
		role, err := auth.ParseRoles("roles", []string{name})
		if err != nil {
			panic(err)
		}
		k.add(name, auth.Rights{Namespace: "team", Roles: role})
	}
	k.add("admin of mail*", auth.Rights{Namespace: "team", Roles: auth.Admin, Queues: []string{"mail*"}})
	k.add("observer of all", auth.Rights{Namespace: "*", Roles: auth.Observe})
	k.add("admin of all", auth.Everything)
}

func newTokenSet() *tokenSet {
	return &tokenSet{auth: auth.NewAuthenticator(auth.Config{Mode: auth.Always}), secret: map[string]string{}}
}

// pass lets time pass in the synctest bubble, where time is fake.
func pass(d time.Duration) { time.Sleep(d) }

var errPlanted = task.Unavailable(time.Second, "planted")
