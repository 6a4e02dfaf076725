package auth

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func TestCheckCertificate(t *testing.T) {
	for name, good := range map[string]bool{
		"uri:spiffe://pawl/worker": true, "dns:worker-1.example": true, "email:Ops@example.org": true, "subject:CN=A worker,O=Pawl": true,
		"": false, "dns": false, "dns:": false, "ip:127.0.0.1": false, "worker": false, "dns:Worker": false,
		"subject:CN=\x1f": false, "subject:CN=\x7f": false, "subject:CN=\uFFFD": false,
		"uri:" + strings.Repeat("x", maxCertificate-4): true, "uri:" + strings.Repeat("x", maxCertificate-3): false,
	} {
		err := CheckCertificate("certificate", name)
		if e, ok := task.AsError(err); (err == nil) != good || err != nil && (!ok || e.Field != "certificate") {
			t.Errorf("CheckCertificate(%q) = %v", name, err)
		}
	}
	for name, shown := range map[string]string{"ip:" + strings.Repeat("x", 99): `"ip:` + strings.Repeat("x", 61) + `"`,
		"dns:X" + strings.Repeat("x", 99): `"dns:X` + strings.Repeat("x", 59) + `"`} {
		if err := CheckCertificate("certificate", name); err == nil || !strings.Contains(err.Error(), shown) {
			t.Errorf("CheckCertificate of a long name = %v, want %s in it", err, shown)
		}
	}
	if maxCertificate != 512 {
		t.Errorf("certificate names may have %d bytes, docs/limits.md says 512", maxCertificate)
	}
}

var errUnauthenticated = &task.Error{Code: task.CodeUnauthenticated}

// certified returns a caller's valid certificate with the given names.
func certified(names ...string) *Certificate {
	return &Certificate{Names: names, Good: func(time.Time) error { return nil }}
}

func TestAdmitCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := func(name, certificate string, life time.Duration) Token {
			known := Token{Name: name, Rights: Everything, Certificate: certificate, Hash: HashOfCertificate(certificate)}
			if life > 0 {
				known.ExpiresAt = store.TimeOf(time.Now()).Add(life)
			}
			return known
		}
		d := NewAuthenticator(Config{})
		hear := func() {
			d.Replace(Access{Required: true, Tokens: []Token{token("one", "dns:one", 0), token("two", "dns:two", time.Hour)}})
			d.Refreshed(time.Now())
		}
		hear()
		admits := func(what, want string, c *Certificate) {
			t.Helper()
			v, err := d.AdmitCertificate(c)
			if err != nil || v.Name != want || v.Certificate() != "dns:"+want {
				t.Errorf("%s: principal %+v, error %v, want token %q", what, v, err, want)
			}
		}
		refuses := func(what string, c *Certificate, code error, words string) {
			t.Helper()
			if v, err := d.AdmitCertificate(c); !errors.Is(err, code) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: principal %v, error %v, want %v with %q", what, v, err, code, words)
			}
		}
		admits("one of its names is known", "one", certified("subject:CN=one", "dns:one"))
		admits("one that is known and one that is not", "one", certified("dns:one", "dns:three"))
		admits("a name comes twice", "one", certified("dns:one", "dns:one"))
		refuses("it is that of two tokens", certified("dns:one", "dns:two"), errUnauthenticated, `two tokens, "one" and "two"`)
		refuses("no token knows it", certified("dns:three"), errUnauthenticated, "dns:three")
		bad := certified("dns:one")
		bad.Good = func(time.Time) error { return errors.New("it is revoked") }
		refuses("it is not good any more", bad, errUnauthenticated, "it is revoked")
		if uses, _ := d.Uses(); len(uses) != 1 || uses[0].Token.Name != "one" ||
			!uses[0].At.Time().Equal(time.Now().Truncate(time.Minute)) {
			t.Errorf("Uses = %v, want only token one", uses)
		}

		time.Sleep(time.Hour - 1)
		hear = func() { d.Refreshed(time.Now()) }
		hear()
		admits("just before the token expires", "two", certified("dns:two"))
		time.Sleep(time.Nanosecond)
		refuses("when the token expires", certified("dns:two"), errUnauthenticated, "expired")
		if got := [2]uint64{d.Failed(FailedUnknown), d.Failed(FailedExpired)}; got != [2]uint64{2, 2} {
			t.Errorf("failures as unknown and as expired: %v, want 2 and 2", got)
		}
		time.Sleep(staleAfter)
		refuses("by an old copy", certified("dns:one"), task.ErrUnavailable, "list of tokens is over")
	})
	if v, err := NewAuthenticator(Config{Mode: Never}).AdmitCertificate(certified("dns:one")); v != Anonymous || err != nil {
		t.Errorf("AdmitCertificate where no tokens are required = %v, %v, want Anonymous", v, err)
	}
	// An authenticator that always requires tokens reports a stale copy, not that it doesn't know whether tokens are required.
	if _, err := NewAuthenticator(Config{Mode: Always}).AdmitCertificate(certified("dns:one")); err != errStale {
		t.Errorf("AdmitCertificate in mode Always, before the first copy: %v, want errStale", err)
	}
}
