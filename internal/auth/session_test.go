package auth

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Every node finds the key of a token's sessions, until the token is revoked or its replaced secret is no longer good.
func TestFindSessionKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, secret, before := HashOf(NewSecret()), HashOf(NewSecret()), HashOf(NewSecret())
		cert := HashOfCertificate("dns:billing")
		d := NewAuthenticator(Config{Mode: Always, Admin: func() (Hash, bool) { return own, own != Hash{} }})
		finds := func(what string, h Hash, want error) {
			t.Helper()
			k := SessionKeyOf(h)
			got, err := d.FindSessionKey(k.ID)
			if !errors.Is(err, want) || want == nil && (err != nil || got != k) || want != nil && got != (SessionKey{}) {
				t.Errorf("%s: %v, error %v, want %v", what, got == k, err, want)
			}
		}
		finds("a token before anything was heard", secret, task.ErrUnavailable)
		finds("the node's own token", own, nil)
		now := store.TimeOf(time.Now())
		d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Everything, Hash: secret, OldHash: before, OldUntil: now.Add(time.Hour)}, {Name: "c", Rights: Everything, Hash: cert, Certificate: "dns:billing"}}})
		d.Refreshed(time.Now())
		finds("a token", secret, nil)
		finds("the secret that it replaced", before, nil)
		finds("an unknown token", HashOf("x"), ErrNoSession)
		finds("a token of a certificate, whose hash can be guessed", cert, ErrNoSession)
		time.Sleep(staleAfter + 1)
		finds("an unknown token at a node that hears nothing", HashOf("x"), task.ErrUnavailable)
		d.Replace(Access{})
		d.Refreshed(time.Now())
		finds("a revoked token", secret, ErrNoSession)
		own = Hash{}
		finds("no token of its own", own, ErrNoSession)
	})
}

// The two parts of a key differ from each other, from the hash and from those of an access key. A key never changes: open sessions depend on it.
func TestSessionKeyOf(t *testing.T) {
	h := HashOf("x")
	k := SessionKeyOf(h)
	if [16]byte(k.Secret[:16]) == [16]byte(k.ID) || [16]byte(h[:16]) == [16]byte(k.ID) || Hash(k.Secret) == h || SessionKeyOf(HashOf("y")).ID == k.ID {
		t.Errorf("the key of %x is %x", h, k)
	}
}
