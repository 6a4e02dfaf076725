package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/pawlq/pawl/internal/admission"
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

// Each role allows the actions that docs/sqs.md says, and no others, also with a token for some queues. Only settling
// calls are no requests.
func TestSQSActionsByRole(t *testing.T) {
	send, settle := "SendMessage SendMessageBatch", "DeleteMessage DeleteMessageBatch ChangeMessageVisibility ChangeMessageVisibilityBatch"
	look := "GetQueueUrl GetQueueAttributes ListQueues ListDeadLetterSourceQueues ListQueueTags"
	change := "CreateQueue DeleteQueue PurgeQueue SetQueueAttributes TagQueue UntagQueue AddPermission RemovePermission " +
		"StartMessageMoveTask CancelMessageMoveTask"
	of := map[auth.Roles]string{
		auth.Produce: look + " " + send,
		auth.Consume: look + " ReceiveMessage " + settle,
		auth.Observe: look + " ListMessageMoveTasks",
		auth.Operate: look + " ListMessageMoveTasks " + change,
		auth.Admin:   strings.Join(sqs.Actions(), " "),
	}
	k := newTokenSet()
	for role := range of {
		k.add(role.String(), auth.Rights{Namespace: "team", Queues: []string{"mail*"}, Roles: role})
	}
	g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), nil)
	k.publish()
	for role, allowed := range of {
		for _, action := range sqs.Actions() {
			ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
			c.Web = httptest.NewRequest("POST", "http://localhost/", nil)
			c.Web.Header.Set("Authorization", "Bearer "+k.secret[role.String()])
			s := NewSQSCaller(g, c)
			if _, err := s.Enter(ctx); err != nil {
				t.Fatal(err)
			}
			_, err := s.Authorize(action)
			if want := slices.Contains(strings.Fields(allowed), action); (err == nil) != want {
				t.Errorf("%s with the role %s: %v, want it allowed: %t", action, role, err, want)
			}
			if counts := sqsNeeds[action].countsAsRequest(c.Principal); counts == slices.Contains(strings.Fields(settle), action) {
				t.Errorf("%s with the role %s counts as a request: %t", action, role, counts)
			}
			s.Leave()
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
	g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), nil)
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
	// acks and other settling calls are not counted as requests
	for action, most := range map[string]int{"SendMessage": 2, "DeleteMessage": 9} {
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

// Refusals of wrong credentials of SQS are logged, and wait once an address has had many of them. Whoever shows no
// credentials does not wait.
func TestWrongSQSCallersWait(t *testing.T) {
	key := auth.AccessKeyOf(auth.HashOf("another"))
	signed := func(id, secret string) func(r *http.Request) {
		return func(r *http.Request) {
			sum := sha256.Sum256(nil)
			if err := signer.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, r,
				hex.EncodeToString(sum[:]), "sqs", "eu-west-1", time.Now()); err != nil {
				t.Error(err)
			}
		}
	}
	for name, x := range map[string]struct {
		shows      func(k *tokenSet, r *http.Request)
		ok, waits  bool
		signatures uint64 // wrong ones, of each call
	}{
		"nothing":       {func(*tokenSet, *http.Request) {}, false, false, 0},
		"a wrong token": {func(_ *tokenSet, r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, false, true, 0},
		"half a signature": {func(_ *tokenSet, r *http.Request) { r.Header.Set("Authorization", "AWS4-HMAC-SHA256 x") }, false, true,
			0},
		"an unknown access key": {func(_ *tokenSet, r *http.Request) { signed(key.ID, key.Secret)(r) }, false, true, 0},
		"a wrong signature": {func(k *tokenSet, r *http.Request) {
			signed(auth.AccessKeyOf(auth.HashOf(k.secret["mail"])).ID, key.Secret)(r)
		}, false, true, 1},
		"a signature": {func(k *tokenSet, r *http.Request) {
			mine := auth.AccessKeyOf(auth.HashOf(k.secret["mail"]))
			signed(mine.ID, mine.Secret)(r)
		}, true, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newTokenSet()
			k.add("mail", auth.Rights{Namespace: "team", Roles: auth.Consume})
			k.tokens[0].SQS = true
			k.publish()
			var log strings.Builder
			g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), trailTo(&log))
			for i := range wrongAtOnce + 2 {
				ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
				c.Web = httptest.NewRequest("POST", "http://localhost/", nil)
				x.shows(k, c.Web)
				s := NewSQSCaller(g, c)
				began := time.Now()
				_, err := s.Enter(ctx)
				if err == nil {
					err = s.Verify(nil)
				}
				s.Leave()
				if want := map[bool]time.Duration{true: wrongEvery}[x.waits && i >= wrongAtOnce]; time.Since(began) != want ||
					(err == nil) != x.ok {
					t.Errorf("call %d with %s: %v after %v, want it after %v", i+1, name, err, time.Since(began), want)
				}
				if err == nil && c.Principal.Name != "mail" || err != nil && c.Principal.Principal != nil && c.Principal.Name == "mail" {
					t.Errorf("call %d with %s is recorded as one of %+v", i+1, name, c.Principal.Principal)
				}
			}
			if said := strings.Contains(log.String(), "a caller was refused"); said == x.ok || g.Calls.InUse() != 0 {
				t.Errorf("with %s, %d calls are in progress; the log says %q", name, g.Calls.InUse(), log.String())
			}
			if n := k.auth.Failed(auth.FailedSignature); n != x.signatures*(wrongAtOnce+2) {
				t.Errorf("with %s, %d wrong signatures are counted", name, n)
			}
		})
	}
}

// A probe of a node's health is answered at once, whatever token it has. Only a token for all namespaces is told of the cluster.
func TestProbesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		k.addAll()
		var log strings.Builder
		g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), trailTo(&log))
		knows := func(token string) bool {
			ctx, c := callinfo.Begin(t.Context(), "rest", "test")
			c.Web = httptest.NewRequest("GET", "http://localhost/readyz", nil)
			if token != "" {
				c.Web.Header.Set("Authorization", "Bearer "+token)
			}
			return g.KnowsCluster(ctx)
		}
		if knows("") || log.Len() > 0 {
			t.Errorf("a stranger is told of the cluster, or refused: %s", log.String())
		}
		if !knows(k.secret["observer of all"]) || knows(k.secret["observe"]) || knows(k.secret["admin of mail*"]) || log.Len() > 0 {
			t.Errorf("tokens with and without all namespaces are told of the cluster, or refused: %s", log.String())
		}
		began := time.Now()
		for range 3 * wrongAtOnce {
			if knows("wrong") {
				t.Error("a wrong token is told of the cluster")
			}
		}
		if time.Since(began) != 0 || !strings.Contains(log.String(), "a caller was refused") {
			t.Errorf("wrong tokens waited %v; the log says %q", time.Since(began), log.String())
		}
	})
}

// A caller who is refused a slot or a namespace holds nothing, and gets no signature verified.
func TestSQSCallersAreLimited(t *testing.T) {
	k := newTokenSet()
	k.add("mail", auth.Rights{Namespace: "team", Roles: auth.Consume})
	g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), nil)
	g.Calls = admission.NewSlots(2)
	enter := func(namespace string) (*SQSCaller, error) {
		ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
		c.Web = httptest.NewRequest("POST", "http://localhost/", nil)
		c.Web.Header.Set("Authorization", "Bearer "+k.secret["mail"])
		c.Web.Header.Set("Pawl-Namespace", namespace)
		s := NewSQSCaller(g, c)
		_, err := s.Enter(ctx)
		return s, err
	}
	other, err := enter("other")
	if e, _ := task.AsError(err); e == nil || e.Code != task.CodePermissionDenied || g.Calls.InUse() != 0 {
		t.Errorf("a caller from another namespace: %v, with %d calls in progress", err, g.Calls.InUse())
	}
	other.Leave()
	first, err := enter("team")
	if err != nil || g.Calls.InUse() != 1 {
		t.Errorf("the first call: %v, with %d calls in progress", err, g.Calls.InUse())
	}
	second, err := enter("team")
	if !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(), "1 calls in progress") || g.Calls.InUse() != 1 {
		t.Errorf("a call too many: %v, with %d calls in progress", err, g.Calls.InUse())
	}
	second.Leave()
	if first.Leave(); g.Calls.InUse() != 0 {
		t.Errorf("after all calls, %d are in progress", g.Calls.InUse())
	}
}

// A GET changes something only if it has a signature that was verified, or credentials in a header, which pages of other sites can't send.
func TestSQSCallsByGET(t *testing.T) {
	k := newTokenSet()
	k.add("ops", auth.Rights{Namespace: "team", Roles: auth.Operate})
	k.tokens[0].SQS = true
	k.publish()
	g := NewGuard(k.auth, listen.Hosts{}, task.DefaultLimits().Payload, slog.New(slog.DiscardHandler), nil)
	signed := httptest.NewRequest("GET", "http://localhost/?Action=PurgeQueue&X-Amz-Expires=60", nil)
	mine := auth.AccessKeyOf(auth.HashOf(k.secret["ops"]))
	sum := sha256.Sum256(nil)
	url, _, err := signer.NewSigner().PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: mine.ID, SecretAccessKey: mine.Secret}, signed,
		hex.EncodeToString(sum[:]), "sqs", "eu-west-1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	shown := httptest.NewRequest("GET", "http://localhost/?Action=PurgeQueue", nil)
	shown.Header.Set("Authorization", "Bearer "+k.secret["ops"])
	for name, r := range map[string]*http.Request{"a signed URL": httptest.NewRequest("GET", url, nil), "a token": shown} {
		ctx, c := callinfo.Begin(t.Context(), "sqs", "test")
		c.Web = r
		s := NewSQSCaller(g, c)
		_, err := s.Enter(ctx)
		if err == nil {
			err = s.Verify(nil)
		}
		if err == nil {
			_, err = s.Authorize("PurgeQueue")
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.Leave()
	}
}
