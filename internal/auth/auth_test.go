package auth

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func TestHashFormat(t *testing.T) {
	h := HashOf("x")
	b, err := json.Marshal(h)
	var back Hash
	if err != nil || json.Unmarshal(b, &back) != nil || back != h || bytes.Contains(b, []byte("[")) {
		t.Errorf("hash encoded as %s was decoded to %v, %v", b, back, err)
	}
	if json.Unmarshal([]byte(`"abcd"`), &back) == nil {
		t.Error("a hash that is too short was decoded")
	}
	var noHex hex.InvalidByteError
	if err := back.UnmarshalText([]byte("zz")); !errors.As(err, &noHex) {
		t.Errorf("UnmarshalText of invalid hex: %v", err)
	}
}

func TestRoles(t *testing.T) {
	for _, c := range []struct {
		has, of string
		any     bool
		covers  bool
	}{
		{"produce", "produce", true, true}, {"produce", "consume", false, false}, {"produce", "observe", false, false},
		{"operate", "observe", true, true}, {"observe", "operate", false, false}, {"admin", "produce,consume,observe,operate", true, true},
		{"operate", "produce,observe", true, false}, {"produce,consume,observe,operate", "admin", false, false},
		{"observe,produce", "produce", true, true},
	} {
		has, err := ParseRoles("roles", strings.Split(c.has, ","))
		of, err2 := ParseRoles("roles", strings.Split(c.of, ","))
		if err != nil || err2 != nil || has.HasAny(of) != c.any || has.Covers(of) != c.covers {
			t.Errorf("%s against %s: HasAny %v, Covers %v (%v, %v)", c.has, c.of, has.HasAny(of), has.Covers(of), err, err2)
		}
	}
	for _, bad := range [][]string{nil, {}, {"root"}, {"produce", ""}} {
		if _, err := ParseRoles("roles", bad); !errors.Is(err, task.ErrInvalidArgument) {
			t.Errorf("ParseRoles(%q) = %v, want an invalid argument", bad, err)
		}
	}
}

func TestRightsCover(t *testing.T) {
	everything := Rights{AllNamespaces, AllRoles, nil}
	operator := Rights{"team", Operate | Produce, []string{"mail*"}}
	for _, c := range []struct {
		of     Rights
		covers bool
	}{
		{operator, true}, {Rights{"team", Observe, []string{"mail"}}, true}, {Rights{"team", Operate, []string{"mail.*", "mail*x"}}, true},
		{Rights{"team", Operate, nil}, false}, {Rights{"team", Operate, []string{"*"}}, false},
		{Rights{"team", Operate, []string{"mail", "sms"}}, false}, {Rights{"team", Operate, []string{"sms", "mail"}}, false},
		{Rights{"other", Observe, []string{"mail"}}, false}, {Rights{AllNamespaces, Observe, []string{"mail"}}, false},
		{Rights{"team", Consume, []string{"mail"}}, false}, {Rights{"team", Admin, []string{"mail"}}, false},
	} {
		if operator.Covers(c.of) != c.covers || !everything.Covers(c.of) {
			t.Errorf("%+v covers %+v: %v; all rights must cover it too", operator, c.of, operator.Covers(c.of))
		}
	}
}

// An authenticator in fake time: which tokens it accepts, for how long, and which calls it ends.
func TestAuthenticator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, operator := bearer.New(), bearer.New()
		var inFile atomic.Value
		inFile.Store(operator)
		d := NewAuthenticator(Config{Mode: Always, Admin: func() (Hash, bool) { s := inFile.Load().(string); return HashOf(s), s != "" }})
		ctx, stop := context.WithCancel(t.Context())
		go d.Watch(ctx)
		defer func() { stop(); synctest.Wait() }()
		enters := func(what, with string, want task.Code) *Principal {
			t.Helper()
			v, err := d.Admit(with)
			var got task.Code
			if e, ok := task.AsError(err); ok {
				got = e.Code
			}
			if got != want {
				t.Fatalf("%s: %q, want %q (%v)", what, got, want, err)
			}
			if err != nil && with != "" && strings.Contains(err.Error(), with) {
				t.Fatalf("%s: the error repeats the token: %v", what, err)
			}
			return v
		}
		stays := func(v *Principal) func() error {
			ctx, leave := d.Track(t.Context(), v, nil)
			return func() error { synctest.Wait(); leave(); return context.Cause(ctx) }
		}
		enters("before anything was heard", secret, task.CodeUnavailable)
		enters("the node's own token needs nothing", operator, "")

		now := store.TimeOf(time.Now())
		one := Token{Name: "one", Rights: Rights{"team", Consume, nil}, Hash: HashOf(secret), ExpiresAt: now.Add(time.Hour)}
		hear := func(tokens ...Token) {
			d.Replace(Access{Tokens: tokens, Namespaces: []string{"team"}})
			d.Refreshed(time.Now())
		}
		hear(one)
		v := enters("a good token", secret, "")
		if again := enters("again", secret, ""); again != v {
			t.Error("two calls with one token got different principals")
		}
		enters("no token", "", task.CodeUnauthenticated)
		enters("no token's form", "secret", task.CodeUnauthenticated)
		enters("nobody's token", bearer.New(), task.CodeUnauthenticated)

		work := stays(v)
		hear(one, Token{Name: "two", Rights: Everything, Hash: HashOf(bearer.New())})
		if err := work(); !errors.Is(err, context.Canceled) {
			t.Errorf("a call ended when another token was created: %v", err)
		}
		work = stays(v)
		hear()
		if err := work(); err != ErrRevoked {
			t.Errorf("cause after the token was revoked: %v, want ErrRevoked", err)
		}
		enters("a revoked token", secret, task.CodeUnauthenticated)
		if err := stays(v)(); err != ErrRevoked {
			t.Errorf("cause of a call tracked just after its token was revoked: %v, want ErrRevoked", err)
		}

		hear(one)
		work = stays(enters("a token", secret, ""))
		time.Sleep(staleAfter + checkInterval)
		if err := work(); err != errStale {
			t.Errorf("cause at a node whose copy is stale: %v, want errStale", err)
		}
		enters("at a node that hears nothing", secret, task.CodeUnavailable)

		d.Refreshed(time.Now())
		work = stays(enters("a token", secret, ""))
		for range 720 {
			time.Sleep(5 * time.Second)
			d.Refreshed(time.Now())
		}
		if err := work(); err != ErrRevoked {
			t.Errorf("cause after the token expired: %v, want ErrRevoked", err)
		}
		enters("an expired token", secret, task.CodeUnauthenticated)

		work = stays(enters("the node's own token", operator, ""))
		inFile.Store(bearer.New())
		time.Sleep(checkInterval)
		if err := work(); err != ErrRevoked {
			t.Errorf("cause after the node's own admin token changed: %v, want ErrRevoked", err)
		}
		inFile.Store("")
		enters("without a token of its own", operator, task.CodeUnauthenticated)
		enters("no token, without one of its own", "", task.CodeUnauthenticated)
	})
}

// After a rotation both secrets are valid for a while, and never longer than the token's previous lifetime.
func TestAuthenticatorRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewAuthenticator(Config{Mode: Always})
		before, after := bearer.New(), bearer.New()
		now := store.TimeOf(time.Now())
		d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Everything, Hash: HashOf(after), OldHash: HashOf(before),
			OldUntil: now.Add(time.Hour)}}})
		good := func() (old, new bool) {
			d.Refreshed(time.Now())
			_, err := d.Admit(before)
			_, err2 := d.Admit(after)
			return err == nil, err2 == nil
		}
		if old, new := good(); !old || !new {
			t.Errorf("just after the rotation: old secret accepted %v, new secret accepted %v, want both", old, new)
		}
		time.Sleep(time.Hour)
		if old, new := good(); old || !new {
			t.Errorf("after the overlap: old secret accepted %v, new secret accepted %v, want only the new one", old, new)
		}
		// A token without an old secret must not be entered under the zero hash.
		d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Everything, Hash: HashOf(after)}}})
		if d.tokens.Load().tokens[Hash{}] != nil || len(d.tokens.Load().tokens) != 1 {
			t.Error("the zero hash was stored as a token's")
		}
	})
}

func TestAuthenticatorModes(t *testing.T) {
	if d := NewAuthenticator(Config{Mode: Never}); d.TokensRequired() {
		t.Error("an authenticator with mode Never requires tokens")
	}
	d := NewAuthenticator(Config{})
	if _, err := d.Admit(""); !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("Admit before the first copy: %v, want unavailable", err)
	}
	d.Replace(Access{})
	d.Refreshed(time.Now())
	v, err := d.Admit("")
	if err != nil || v != Anonymous {
		t.Errorf("Admit where the cluster requires no tokens = %v, %v, want Anonymous", v, err)
	}
	ctx, leave := d.Track(t.Context(), v, nil)
	defer leave()
	d.Replace(Access{Required: true})
	if context.Cause(ctx) != ErrRevoked || !d.TokensRequired() {
		t.Errorf("after the cluster began to require tokens: cause %v, TokensRequired %v, want ErrRevoked and true", context.Cause(ctx),
			d.TokensRequired())
	}
	if d := NewAuthenticator(Config{Mode: Never}); func() bool { d.Replace(Access{Required: true}); return d.TokensRequired() }() {
		t.Error("an authenticator with mode Never requires tokens because the cluster does")
	}
}

func TestUses(t *testing.T) {
	d := NewAuthenticator(Config{Mode: Always})
	secret := bearer.New()
	d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Rights{"team", Consume, nil}, Hash: HashOf(secret)}}})
	d.Refreshed(time.Now())
	if uses, _ := d.Uses(); len(uses) != 0 {
		t.Errorf("Uses of an unused token = %v, want none", uses)
	}
	for range 3 {
		if _, err := d.Admit(secret); err != nil {
			t.Fatal(err)
		}
	}
	uses, told := d.Uses()
	if len(uses) != 1 || uses[0].Token != (TokenName{"team", "a"}) || time.Since(uses[0].At.Time()) > 2*time.Minute {
		t.Errorf("Uses = %v, want token a, used just now", uses)
	}
	if again, _ := d.Uses(); len(again) != 1 {
		t.Errorf("Uses were dropped before they were reported: %v", again)
	}
	told()
	if again, _ := d.Uses(); len(again) != 0 {
		t.Errorf("Uses after they were reported = %v, want none", again)
	}
}

func BenchmarkAdmit(b *testing.B) {
	d := NewAuthenticator(Config{Mode: Always})
	secret := bearer.New()
	d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Rights{"team", Consume, nil}, Hash: HashOf(secret)}}})
	d.Refreshed(time.Now())
	for b.Loop() {
		if _, err := d.Admit(secret); err != nil {
			b.Fatal(err)
		}
	}
}

// An authenticator knows since when a namespace exists while its copy is new; the default one has always existed.
func TestBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewAuthenticator(Config{})
		if at, err := d.Began(DefaultNamespace); err != nil || at.After(time.Unix(0, 0)) {
			t.Errorf("before the first copy, the default namespace began at %v, %v", at, err)
		}
		added := store.TimeOf(time.Now())
		d.Replace(Access{Namespaces: []string{"team"}, Began: map[string]store.Time{"team": added}})
		d.Refreshed(time.Now())
		time.Sleep(staleAfter)
		if at, err := d.Began("team"); err != nil || !at.Equal(added.Time()) {
			t.Errorf("the namespace began at %v, %v, want %v", at, err, added.Time())
		}
		time.Sleep(time.Nanosecond)
		if _, err := d.Began("team"); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("with a copy that is too old: %v, want unavailable", err)
		}
		if _, err := d.Began(DefaultNamespace); err != nil {
			t.Error(err)
		}
	})
}

// Until the first copy has arrived, an authenticator in mode AsCluster neither admits nor rejects anybody, whether the caller has a
// token or the cluster turns out to require none.
func TestAuthenticatorBeforeFirstCopy(t *testing.T) {
	secret := bearer.New()
	cert := &Certificate{Names: []string{"dns:worker"}, Good: func(time.Time) error { return nil }}
	asks := map[string]func(d *Authenticator) error{
		"no token":      func(d *Authenticator) error { _, err := d.Admit(""); return err },
		"a token":       func(d *Authenticator) error { _, err := d.Admit(secret); return err },
		"no such form":  func(d *Authenticator) error { _, err := d.Admit("x"); return err },
		"a certificate": func(d *Authenticator) error { _, err := d.AdmitCertificate(cert); return err },
		"a namespace":   func(d *Authenticator) error { return d.CheckNamespace("team") },
		"its age":       func(d *Authenticator) error { _, err := d.Began("team"); return err },
	}
	for what, ask := range asks {
		d := NewAuthenticator(Config{})
		if err := ask(d); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("%s, before the first copy: %v, want unavailable", what, err)
		}
		if d.Refreshed(time.Now()); what == "a namespace" {
			continue
		}
		if err := ask(d); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("%s, when the cluster has answered but the copy is not replaced: %v, want unavailable", what, err)
		}
	}
	// The copy arrives while a call is being admitted, from a cluster that requires tokens or doesn't.
	for round := range 3000 {
		d := NewAuthenticator(Config{})
		required := round%2 == 0
		var asking sync.WaitGroup
		asking.Go(func() {
			for {
				v, err := d.Admit("")
				if errors.Is(err, task.ErrUnavailable) {
					if runtime.GOMAXPROCS(0) == 1 {
						runtime.Gosched() // or it would spin until its time slice is over
					}
					continue
				}
				if got := v == Anonymous; got == required {
					t.Errorf("tokens required %v: admitted as anonymous %v, error %v", required, got, err)
				}
				return
			}
		})
		runtime.Gosched()
		d.Replace(Access{Required: required, Namespaces: []string{"team"}})
		d.Refreshed(time.Now())
		asking.Wait()
	}
}

// A namespace that the copy doesn't have is not found, unless the copy is too old to tell.
func TestCheckNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewAuthenticator(Config{})
		d.Replace(Access{Namespaces: []string{"team"}})
		d.Refreshed(time.Now())
		if has, lacks := d.CheckNamespace("team"), d.CheckNamespace("other"); has != nil || !errors.Is(lacks, task.ErrNotFound) {
			t.Errorf("namespace team: %v, other: %v, want nil and not found", has, lacks)
		}
		time.Sleep(staleAfter + 1)
		if has, lacks := d.CheckNamespace("team"), d.CheckNamespace("other"); has != nil || !errors.Is(lacks, task.ErrUnavailable) {
			t.Errorf("with a stale copy, namespace team: %v, other: %v, want nil and unavailable", has, lacks)
		}
	})
}
