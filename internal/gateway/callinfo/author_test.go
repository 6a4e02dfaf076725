package callinfo

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/task"
)

// The audit log distinguishes a token of all namespaces from one with the same name in a namespace, which any admin of that namespace can
// create, before or after.
func TestActorsCannotBeForged(t *testing.T) {
	all := auth.Everything
	for _, c := range []struct {
		what string
		who  *auth.Principal
		want string
	}{
		{"a token of all namespaces", &auth.Principal{Name: "oncall", Rights: all}, "*/oncall"},
		{"one of a namespace", &auth.Principal{Name: "oncall", Rights: auth.Rights{Namespace: "team", Roles: auth.Admin}}, "oncall"},
		{"the token of a node's file", &auth.Principal{Name: auth.AdminName, Rights: all}, "admin-token-file"},
		{"nobody with a token", &auth.Principal{Rights: all}, "*/said"},
	} {
		ctx, call := Begin(t.Context(), task.InterfaceREST, "test")
		call.Web = httptest.NewRequest(http.MethodPost, "/", nil)
		call.Web.Header.Set("Pawl-Actor", "*/said")
		call.Principal = Principal{Principal: c.who}
		if by, err := Author(ctx, ""); err != nil || by.Name != c.want {
			t.Errorf("%s is recorded as %q (%v), want %q", c.what, by.Name, err, c.want)
		}
	}
	for _, name := range []string{"*/oncall", "*", auth.AdminName} {
		if auth.CheckName(name) == nil {
			t.Errorf("CheckName accepted the reserved name %q", name)
		}
	}
}

// The actor and the reason are read from the headers of gRPC, REST and SQS in the same way. The request takes precedence.
func TestAuthors(t *testing.T) {
	type said map[string][]string
	for _, c := range []struct {
		what   string
		said   said
		reason string // in the request
		want   task.Author
		field  string // of the refusal
	}{
		{"nothing", nil, "", task.Author{}, ""},
		{"a name", said{"actor": {"lena"}}, "", task.Author{Name: "lena"}, ""},
		{"a reason", said{"actor": {"lena"}, "reason": {"zu groß"}}, "", task.Author{Name: "lena", Reason: "zu groß"}, ""},
		{"two reasons", said{"reason": {"header"}}, "request", task.Author{Reason: "request"}, ""},
		{"two names", said{"actor": {"a", "b"}}, "", task.Author{}, "actor"},
		{"two headers of reasons", said{"reason": {"a", "b"}}, "", task.Author{}, "reason"},
		{"the longest name", said{"actor": {strings.Repeat("a", 256)}}, "", task.Author{Name: strings.Repeat("a", 256)}, ""},
		{"a long name", said{"actor": {strings.Repeat("a", 257)}}, "", task.Author{}, "actor"},
		{"control characters", said{"actor": {"a\x1b[2J"}}, "", task.Author{}, "actor"},
		{"other letters", said{"actor": {"Łena"}}, "", task.Author{}, "actor"},
		{"a long reason", said{"reason": {strings.Repeat("a", 1025)}}, "", task.Author{}, "reason"},
		{"a long reason in the request", nil, strings.Repeat("a", 1025), task.Author{}, "reason"},
		{"a reason that is no text", said{"reason": {"\xff"}}, "", task.Author{}, "reason"},
	} {
		web := httptest.NewRequest(http.MethodPost, "/", nil)
		web.RemoteAddr = "10.1.2.3:4567"
		web.Header["Pawl-Actor"], web.Header["Pawl-Reason"] = c.said["actor"], c.said["reason"]
		rest, call := Begin(t.Context(), task.InterfaceREST, "test")
		call.Web = web

		sqs, call := Begin(t.Context(), task.InterfaceSQS, "test")
		call.Web = web

		md := metadata.MD{"pawl-actor": c.said["actor"], "pawl-reason-bin": c.said["reason"]}
		rpc := peer.NewContext(metadata.NewIncomingContext(t.Context(), md),
			&peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 4567}})
		rpc, _ = Begin(rpc, "grpc", "test")

		for iface, ctx := range map[task.Interface]context.Context{task.InterfaceREST: rest, task.InterfaceSQS: sqs,
			task.InterfaceGRPC: rpc} {
			got, err := Author(ctx, c.reason)
			if e, bad := task.AsError(err); bad || c.field != "" {
				if !bad || e.Code != task.CodeInvalidArgument || e.Field != c.field {
					t.Errorf("%s over %s: %v, want field %q refused", c.what, iface, err, c.field)
				}
				continue
			}
			want := c.want
			want.Interface, want.Address = iface, "10.1.2.3"
			if got != want {
				t.Errorf("%s over %s: author %+v, want %+v", c.what, iface, got, want)
			}
		}
	}
}

// An address is reported without its port, and truncated.
func TestHostsOfAddresses(t *testing.T) {
	long := strings.Repeat("x", maxSource)
	for address, want := range map[string]string{"10.1.2.3:80": "10.1.2.3", "[::1]:80": "::1", "pipe": "pipe", long: long, long + "y": long,
		long + "y:80": long, "": ""} {
		if got := HostOf(address); got != want {
			t.Errorf("HostOf(%q) = %q, want %q", address, got, want)
		}
	}
}

func TestSourcesAreShort(t *testing.T) {
	if maxSource != 64 {
		t.Errorf("addresses may have %d bytes, want 64", maxSource)
	}
}
