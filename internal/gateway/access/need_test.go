package access

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/task"
)

// A token comes in one header, with its scheme.
func TestTokenHeaders(t *testing.T) {
	for _, c := range []struct {
		headers []string
		want    string
		bad     task.Code
	}{
		{nil, "", ""}, {[]string{"Bearer pawl_x"}, "pawl_x", ""}, {[]string{"bearer  pawl_x "}, "pawl_x", ""}, {[]string{"Bearer "}, "",
			task.CodeUnauthenticated},
		{[]string{"Basic x"}, "", task.CodeUnauthenticated}, {[]string{""}, "", task.CodeUnauthenticated}, {[]string{"Bear"}, "",
			task.CodeUnauthenticated}, {[]string{"Bearer a", "Bearer b"}, "", task.CodeInvalidArgument},
	} {
		got, err := Credentials{tokens: c.headers}.token()
		e, _ := task.AsError(err)
		if got != c.want || (err == nil) != (c.bad == "") || err != nil && (e == nil || e.Code != c.bad) {
			t.Errorf("%q: %q, %v; want %q, %v", c.headers, got, err, c.want, c.bad)
		}
	}
}

// A call is in the namespace of its token, or in the one that it names, if the token is for all.
func TestNamespaceOfACall(t *testing.T) {
	g := NewGuard(auth.NewAuthenticator(auth.Config{Mode: auth.Never}), listen.Hosts{}, task.DefaultLimits().Payload,
		slog.New(slog.DiscardHandler), nil)
	of := func(ns string) callinfo.Principal {
		return callinfo.Principal{Principal: &auth.Principal{Name: "ci", Rights: auth.Rights{Namespace: ns}}}
	}
	for _, c := range []struct{ token, asked, want, words string }{
		{"team", "", "team", ""}, {"team", "team", "team", ""}, {"team", "other", "other", `token "ci" is limited to namespace "team"`},
		{"team", "(", "", "namespace"}, {auth.AllNamespaces, "", "default", ""}, {auth.AllNamespaces, "default", "default", ""},
		{auth.AllNamespaces, "(", "", "namespace"},
	} {
		s := Credentials{}
		if c.asked != "" {
			s.namespaces = []string{c.asked}
		}
		got, err := g.namespace(of(c.token), s)
		if got != c.want || (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("a token of %q that asks for %q: %q, %v; want %q", c.token, c.asked, got, err, c.want)
		}
	}
}

// Each rpc has a need: our own, foreign protocols', and public services'. Any other has none, and is refused.
func TestNeedsOfRPCs(t *testing.T) {
	for service, want := range ForeignServices {
		if got := NeedOfRPC("/" + service + "/Any"); got != want {
			t.Errorf("%s needs %+v, want %+v", service, got, want)
		}
	}
	for _, service := range PublicServices {
		if got := NeedOfRPC("/" + service + "/Any"); got != (Need{Reach: Public}) {
			t.Errorf("%s needs %+v", service, got)
		}
	}
	for method, want := range map[string]Need{"/pawl.v1.ProducerService/Enqueue": RPCNeeds()["ProducerService/Enqueue"],
		"/pawl.v1.ProducerService/None": {}, "/other.Service/Any": {}} {
		if got := NeedOfRPC(method); got != want {
			t.Errorf("%s needs %+v, want %+v", method, got, want)
		}
	}
	if RPCNeeds()["ProducerService/Enqueue"].Reach == 0 {
		t.Error("no role allows Enqueue")
	}
}

// A public call over a connection that does not count such calls is admitted.
func TestUncountedPublicCalls(t *testing.T) {
	_, call := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	ctx, leave, err := (&Guard{}).AdmitGRPC(t.Context(), call, Need{Reach: Public})
	if err != nil || ctx != t.Context() {
		t.Errorf("admitted with %v, %v", ctx, err)
	}
	leave()
}

// The call itself is the request for the first member of a group: each other one takes another.
func TestGroupRates(t *testing.T) {
	for n, left := range []int{3, 3, 2, 1, 0} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGuard(auth.NewAuthenticator(auth.Config{Mode: auth.Never}), listen.Hosts{}, task.DefaultLimits().Payload,
				slog.New(slog.DiscardHandler), nil)
			g.auth.Replace(auth.Access{Namespaces: []string{auth.DefaultNamespace}, Quotas: map[string]task.Quotas{
				auth.DefaultNamespace: {Requests: 3}}})
			ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
			if err := g.TakeGroup(ctx, make([]task.Spec, n)); err != nil {
				t.Errorf("a group of %d: %v", n, err)
			}
			calls := 0
			for g.TakeBytes(ctx, 1, 0) == nil {
				calls++
			}
			if calls != left {
				t.Errorf("a group of %d leaves %d calls of three, want %d", n, calls, left)
			}
		})
	}
}
