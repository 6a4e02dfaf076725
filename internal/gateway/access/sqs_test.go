package access

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/task"
)

// The table has a row for each SQS action and no others.
func TestSQSAccessTable(t *testing.T) {
	if rows, actions := slices.Sorted(maps.Keys(sqsNeeds)), sqs.Actions(); !slices.Equal(rows, actions) || len(actions) != 23 {
		t.Errorf("the table has rows for %q, the SQS API has the actions %q", rows, actions)
	}
	for action, n := range sqsNeeds {
		if n.Reach == 0 || n.Roles == 0 {
			t.Errorf("%s is allowed with any token, or with none: %+v", action, n)
		}
		if n.Lasts != (action == "ReceiveMessage") {
			t.Errorf("%s has Lasts = %t", action, n.Lasts)
		}
	}
}

// The error of a malformed signature is reported with its code. Any other error stays unchanged.
func TestUnsigned(t *testing.T) {
	if err := unsigned(io.ErrNoProgress); err != io.ErrNoProgress {
		t.Errorf("unsigned changed another error to %v", err)
	}
}

// A long action ends when its caller's token is revoked, and leaves nothing behind.
func TestLongActions(t *testing.T) {
	k := newTokenSet()
	k.add("mail", auth.Rights{Namespace: "team", Roles: auth.Consume | auth.Produce})
	g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler))
	for action, lasts := range map[string]bool{"ReceiveMessage": true, "SendMessage": false} {
		k.publish()
		r := httptest.NewRequest("POST", "http://localhost/", nil)
		r.Header.Set("Authorization", "Bearer "+k.secret["mail"])
		enter := func() (*SQSCaller, context.Context) {
			ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
			c.Web = r
			s := &SQSCaller{g: g, c: c}
			if _, err := s.Enter(ctx); err != nil {
				t.Fatal(err)
			}
			ctx, err := s.Authorize(action)
			if err != nil {
				t.Fatal(err)
			}
			return s, ctx
		}
		s, left := enter()
		if s.Leave(); (left.Err() != nil) != lasts || g.Calls.InUse() != 0 {
			t.Errorf("%s after Leave: context error %v, %d calls in progress", action, left.Err(), g.Calls.InUse())
		}
		s, revoked := enter()
		k.auth.Replace(auth.Access{Namespaces: []string{"team"}})
		k.auth.Refreshed(time.Now())
		if (revoked.Err() != nil) != lasts {
			t.Errorf("%s after its token was revoked: context error %v", action, revoked.Err())
		}
		s.Leave()
	}
	for action, most := range map[string]int{"SendMessage": 2, "DeleteMessage": 9} { // acks and other settling calls are not counted as requests
		k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"team"}, Quotas: map[string]task.Quotas{"team": {Requests: 2}}})
		k.auth.Refreshed(time.Now())
		g.Rates = newRates(1)
		for i := range 9 {
			ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
			c.Web = httptest.NewRequest("POST", "http://localhost/", nil)
			c.Web.Header.Set("Authorization", "Bearer "+k.secret["mail"])
			s := &SQSCaller{g: g, c: c}
			if _, err := s.Enter(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Authorize(action); (err == nil) != (i < most) {
				t.Errorf("%s, call %d in the same second: %v", action, i+1, err)
			}
			s.Leave()
		}
	}
	k.publish()
	ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
	c.Web = httptest.NewRequest("POST", "http://192.0.2.1/", nil)
	c.Web.RemoteAddr = "192.0.2.44:5"
	c.Web.Header.Set("Authorization", "Bearer "+k.secret["mail"])
	s := &SQSCaller{g: g, c: c}
	if _, err := s.Enter(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authorize("DeleteQueue"); err == nil {
		t.Error("a token with the roles consume and produce was allowed to delete queues")
	}
	if _, from := k.auth.Refused(); from != "192.0.2.44" || k.auth.Failed(auth.FailedRights) != 1 {
		t.Errorf("%d were refused for lack of rights, the last from %q; want 1 from 192.0.2.44", k.auth.Failed(auth.FailedRights), from)
	}
	s.Leave()
}
