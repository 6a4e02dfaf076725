package auth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// How old the copy of the tokens may be, and when a copy that is reported as current may be older.
func TestStale(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for what, c := range map[string]struct {
		current func() bool
		heard   bool
		age     time.Duration
		stale   bool
	}{
		"never heard":                     {nil, false, 0, true},
		"never heard, said to be current": {yes, false, 0, true},
		"as old as may be":                {nil, true, staleAfter, false},
		"older":                           {nil, true, staleAfter + 1, true},
		"older, said to be current":       {yes, true, time.Hour, false},
		"older, not said to be current":   {no, true, time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := NewAuthenticator(Config{Mode: Always, Current: c.current})
			if c.heard {
				d.Refreshed(time.Now())
			}
			time.Sleep(c.age)
			if _, err := d.Admit(bearer.New()); (err == errStale) != c.stale {
				t.Errorf("%s: Admit = %v", what, err)
			}
		})
	}
}

// A copy is stale when either clock says so: the monotonic clock stops while the machine is suspended, and the wall
// clock can be set back. Then nobody is admitted, and calls that have begun end: their token may have been revoked
// meanwhile.
func TestStaleByEitherClock(t *testing.T) {
	for what, c := range map[string]struct {
		monotonic, wall time.Duration // since the copy was refreshed
		stale           bool
	}{
		"by neither":                       {0, 0, false},
		"the machine was suspended":        {0, staleAfter + time.Second, true},
		"for a night":                      {0, 9 * time.Hour, true},
		"the wall clock was set back":      {staleAfter + time.Second, -9 * time.Hour, true},
		"and the copy is still new enough": {0, -9 * time.Hour, false},
	} {
		secret, cert := bearer.New(), certified("dns:one")
		d := NewAuthenticator(Config{Mode: Always})
		d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Everything, Hash: HashOf(secret), SQS: true}, {Name: "b", Rights: Everything,
			Hash: HashOfCertificate("dns:one"), Certificate: "dns:one"}}})
		d.Refreshed(time.Now())
		v, err := d.Admit(secret)
		if err != nil {
			t.Fatal(err)
		}
		began, leave := d.Track(t.Context(), v, nil)
		defer leave()
		d.Refreshed(withWall(t, time.Now().Add(-c.monotonic), c.monotonic-c.wall)) // a bubble's clock is not monotonic
		d.mu.Lock()
		d.checkAll(time.Now())
		d.mu.Unlock()
		begins, leave := d.Track(t.Context(), v, nil)
		defer leave()
		_, byToken := d.Admit(secret)
		_, byCertificate := d.AdmitCertificate(cert)
		_, _, byAccessKey := d.FindSigner(AccessKeyOf(HashOf(secret)).ID)
		want, unknown := error(nil), error(task.NotFound("namespace", "other"))
		if c.stale {
			want, unknown = errStale, errNamespaceUnknown
		}
		for way, got := range map[string]error{"token": byToken, "certificate": byCertificate, "access key": byAccessKey,
			"call that has begun": context.Cause(began), "call that begins": context.Cause(begins)} {
			if got != want {
				t.Errorf("%s: %s: %v, want %v", what, way, got, want)
			}
		}
		if got := d.CheckNamespace("other"); got.Error() != unknown.Error() {
			t.Errorf("%s: unknown namespace: %v, want %v", what, got, unknown)
		}
	}
}

// withWall returns t with its wall clock moved by d, and its monotonic clock as it is. Package time has no function for that.
func withWall(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	to := at
	(*struct{ wall uint64 })(unsafe.Pointer(&to)).wall += uint64(d/time.Second) << 30 // wraps around for what is earlier
	if to.Sub(at) != 0 || to.Round(0).Sub(at.Round(0)) != d {
		t.Fatalf("%v, moved by %s, is %v", at, d, to)
	}
	return to
}

func TestNamespacesAreSorted(t *testing.T) {
	d := NewAuthenticator(Config{})
	for _, given := range [][]string{{"team", "alpha"}, {"team", DefaultNamespace, "alpha"}} {
		d.Replace(Access{Namespaces: given, Quotas: map[string]task.Quotas{"team": {}}})
		if got := d.Namespaces(); !slices.Equal(got, []string{"alpha", DefaultNamespace, "team"}) {
			t.Errorf("given %v, Namespaces = %v", given, got)
		}
	}
}

// The old secret of a token never outlives the token.
func TestOldSecretEndsWithItsToken(t *testing.T) {
	for _, c := range []struct{ expires, overlap, want time.Duration }{
		{time.Hour, 2 * time.Hour, time.Hour}, {2 * time.Hour, time.Hour, time.Hour}, {0, time.Hour, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			before := bearer.New()
			now := store.TimeOf(time.Now())
			rotated := Token{Name: "a", Rights: Everything, Hash: HashOf(bearer.New()), OldHash: HashOf(before),
				OldUntil: now.Add(c.overlap)}
			if c.expires > 0 {
				rotated.ExpiresAt = now.Add(c.expires)
			}
			d := NewAuthenticator(Config{Mode: Always, Current: func() bool { return true }})
			d.Replace(Access{Tokens: []Token{rotated}})
			d.Refreshed(time.Now())
			time.Sleep(c.want - 1)
			if v, err := d.Admit(before); err != nil || !v.ExpiresAt().Equal(time.Now().Add(1)) {
				t.Errorf("%+v, just before the end: %v, want the old secret to be accepted", c, err)
			}
			time.Sleep(time.Nanosecond)
			if _, err := d.Admit(before); !errors.Is(err, errUnauthenticated) {
				t.Errorf("%+v, at the end: %v, want unauthenticated", c, err)
			}
		})
	}
}

// When anything in a token changes, its long calls end, and new calls have the new rights.
func TestChangedToken(t *testing.T) {
	secret := bearer.New()
	was := func() Token {
		return Token{Name: "a", Rights: Rights{"team", Consume, []string{"mail"}}, Hash: HashOf(secret), OldHash: HashOf("b"),
			OldUntil: 5e18, ExpiresAt: 6e18, CreatedAt: 1}
	}
	for what, c := range map[string]struct {
		change func(*Token)
		ends   bool
	}{
		"nothing":    {func(*Token) {}, false},
		"name":       {func(t *Token) { t.Name = "b" }, true},
		"namespace":  {func(t *Token) { t.Namespace = "other" }, true},
		"roles":      {func(t *Token) { t.Roles = Produce }, true},
		"queues":     {func(t *Token) { t.Queues = []string{"sms"} }, true},
		"hash":       {func(t *Token) { t.OldHash, t.Hash = t.Hash, HashOf("c") }, true},
		"old hash":   {func(t *Token) { t.OldHash = HashOf("c") }, true},
		"overlap":    {func(t *Token) { t.OldUntil++ }, true},
		"expiry":     {func(t *Token) { t.ExpiresAt++ }, true},
		"made again": {func(t *Token) { t.CreatedAt++ }, true},
	} {
		d := NewAuthenticator(Config{Mode: Always, Current: func() bool { return true }})
		d.Replace(Access{Tokens: []Token{was()}})
		d.Refreshed(time.Now())
		v, err := d.Admit(secret)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := d.Track(t.Context(), v, nil)
		now := was()
		c.change(&now)
		d.Replace(Access{Tokens: []Token{now}})
		if got := context.Cause(ctx) == ErrRevoked; got != c.ends {
			t.Errorf("%s changed: the long call ended: %v", what, got)
		}
		leave()
		if len(d.longCalls) > 0 {
			t.Errorf("%s changed: a call that has ended is still tracked", what)
		}
		if v, err = d.Admit(secret); err != nil || v.Name != now.Name || !slices.Equal(v.Queues, now.Queues) || v.Roles != now.Roles {
			t.Errorf("%s changed: Admit = %+v, %v", what, v, err)
		}
	}
}

// After a cluster has required no tokens for a while and then does again, long calls are still checked.
func TestTokensAreRequiredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := bearer.New()
		d := NewAuthenticator(Config{Current: func() bool { return true }})
		access := Access{Required: true, Tokens: []Token{{Name: "a", Rights: Everything, Hash: HashOf(secret),
			ExpiresAt: store.TimeOf(time.Now()).Add(time.Hour)}}}
		d.Replace(access)
		d.Refreshed(time.Now())
		go d.Watch(t.Context())
		v, err := d.Admit(secret)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := d.Track(t.Context(), v, nil)
		defer leave()
		access.Required = false
		d.Replace(access)
		time.Sleep(time.Minute)
		access.Required = true
		d.Replace(access)
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := context.Cause(ctx); err != ErrRevoked {
			t.Errorf("cause after the token expired: %v, want ErrRevoked", err)
		}
	})
}

// A change does not end unrelated calls: those by the node's own admin token and, where no tokens are required, any.
func TestUnrelatedCallsContinue(t *testing.T) {
	secret, operator := bearer.New(), bearer.New()
	d := NewAuthenticator(Config{Admin: func() (Hash, bool) { return HashOf(operator), true }})
	d.Replace(Access{Required: true, Tokens: []Token{{Name: "a", Rights: Everything, Hash: HashOf(secret)}}})
	d.Refreshed(time.Now())
	if d.hasLongCalls() {
		t.Error("hasLongCalls = true without any call")
	}
	var calls []context.Context
	for _, with := range []string{secret, operator} {
		v, err := d.Admit(with)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := d.Track(t.Context(), v, nil)
		defer leave()
		calls = append(calls, ctx)
	}
	if !d.hasLongCalls() {
		t.Error("hasLongCalls = false with two calls")
	}
	d.Replace(Access{Required: true, Tokens: []Token{{Name: "a", Rights: Everything, Hash: HashOf(secret)}}})
	d.Replace(Access{})
	if d.hasLongCalls() {
		t.Error("hasLongCalls = true where no tokens are required")
	}
	for i, ctx := range calls {
		if ctx.Err() != nil {
			t.Errorf("call %d ended: %v", i, context.Cause(ctx))
		}
	}
}

// A call admitted by a certificate ends when the certificate is no longer valid.
func TestCertificateExpiresWhileACallLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Minute)
		c := &Certificate{Names: []string{"dns:a"}, Good: func(now time.Time) error {
			if now.Before(until) {
				return nil
			}
			return errors.New("expired")
		}}
		d := NewAuthenticator(Config{Mode: Always, Current: func() bool { return true }})
		d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Everything, Certificate: "dns:a", Hash: HashOfCertificate("dns:a")}}})
		d.Refreshed(time.Now())
		go d.Watch(t.Context())
		synctest.Wait() // it has found no call to check, and sleeps
		v, err := d.AdmitCertificate(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := d.Track(t.Context(), v, c)
		defer leave()
		if time.Sleep(time.Minute - time.Second); context.Cause(ctx) != nil {
			t.Errorf("the call ended before its certificate expired: %v", context.Cause(ctx))
		}
		if time.Sleep(2 * time.Second); context.Cause(ctx) != ErrRevoked {
			t.Errorf("cause after the certificate expired: %v, want ErrRevoked", context.Cause(ctx))
		}
	})
}

// An authenticator that always requires tokens reports that it has no copy yet, not that it doesn't know whether tokens are required.
func TestRequiredTokensBeforeFirstCopy(t *testing.T) {
	if _, err := NewAuthenticator(Config{Mode: Always}).Admit(bearer.New()); err != errStale {
		t.Error(err)
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	d := NewAuthenticator(Config{Mode: Always, Current: func() bool { return true }})
	d.Refreshed(time.Now())
	for range 2 {
		_, _ = d.Admit("")
	}
	_, _ = d.Admit("x")
	d.Denied()
	if counts, source := d.Refused(); counts != [failures]uint64{2, 1, 0, 0, 1} || source != "" || d.Failed(FailedNone) != 2 {
		t.Errorf("Refused = %v, source %q", counts, source)
	}
	d.NoteAddress("::1")
	if _, source := d.Refused(); source != "::1" {
		t.Errorf("source of the last refusal = %q, want ::1", source)
	}
}

// In the audit log, a token of all namespaces has a name that no token of a single namespace can have.
func TestActor(t *testing.T) {
	for want, v := range map[string]*Principal{
		"": Anonymous, AdminName: {Name: AdminName, Rights: Everything}, "a": {Name: "a", Rights: Rights{Namespace: "team"}},
		"*/a": {Name: "a", Rights: Everything},
	} {
		if got := v.Actor(); got != want {
			t.Errorf("Actor of %+v = %q, want %q", v, got, want)
		}
	}
	if Anonymous.Certificate() != "" || !Anonymous.ExpiresAt().IsZero() {
		t.Error("the anonymous principal has a certificate or an expiry")
	}
}

func TestTokenNames(t *testing.T) {
	for name, good := range map[string]bool{"a": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
		"": false, "a b": false, AdminName: false} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func TestNamespaceNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "z": true, "0": true, "9": true, "team-9": true, "a--b": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-": false, "-a": false, "a-": false, "A": false, "a_b": false, "`": false, "{": false,
		"/": false, ":": false, "*": false,
	} {
		if err := CheckNamespace("namespace", name); (err == nil) != good {
			t.Errorf("CheckNamespace(%q) = %v", name, err)
		}
	}
}

func TestLongNamespaceIsCut(t *testing.T) {
	if err := CheckNamespace("namespace", strings.Repeat("a", 99)); err == nil || !strings.Contains(err.Error(),
		`"`+strings.Repeat("a", 64)+`"`) {
		t.Error(err)
	}
}

func TestRightsAreChecked(t *testing.T) {
	for what, c := range map[string]struct {
		r     Rights
		field string
	}{
		"good":                       {Rights{"team", Consume | Admin, []string{"mail*"}}, ""},
		"all namespaces":             {Everything, ""},
		"no roles":                   {Rights{"team", 0, nil}, "roles"},
		"another role":               {Rights{"team", AllRoles + 1, nil}, "roles"},
		"bad pattern":                {Rights{AllNamespaces, Consume, []string{"a b"}}, "queues"},
		"bad pattern in a namespace": {Rights{"team", Consume, []string{"a b"}}, "queues"},
		"bad namespace":              {Rights{"Team", Consume, nil}, "namespace"},
	} {
		err := c.r.Check(task.DefaultLimits())
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && e.Field != c.field {
			t.Errorf("%s: Check = %v", what, err)
		}
	}
	if got := (Operate | Produce).String(); got != "produce, operate" {
		t.Errorf("String of roles = %q", got)
	}
}
