package auth

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// An access key is found while its token is valid and this node's copy is fresh. Tokens without an access key have none.
func TestSigners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := store.TimeOf(time.Now())
		key := func(n byte) AccessKey { return AccessKeyOf(Hash{n}) }
		tokens := []Token{{Name: "good", Rights: Everything, Hash: Hash{1}, SQS: true}, {Name: "plain", Rights: Everything, Hash: Hash{2}},
			{Name: "rotated", Rights: Everything, Hash: Hash{3}, OldHash: Hash{4}, OldUntil: now.Add(time.Hour), SQS: true},
			{Name: "ends", Rights: Everything, Hash: Hash{5}, ExpiresAt: now.Add(2 * time.Hour), SQS: true}}
		d := NewAuthenticator(Config{})
		find := func(n byte) error {
			v, secret, err := d.FindSigner(key(n).ID)
			if err == nil && v != Anonymous && secret != key(n).Secret {
				t.Errorf("secret of access key %d = %q, want %q", n, secret, key(n).Secret)
			}
			return err
		}
		if err := find(1); err != errNotLoaded {
			t.Errorf("FindSigner before the first copy: %v, want errNotLoaded", err)
		}
		d.Replace(Access{Required: true, Tokens: tokens})
		d.Refreshed(time.Now())
		known := func(when string, want ...byte) {
			t.Helper()
			d.Refreshed(time.Now())
			for n := range byte(7) {
				wanted := false
				for _, w := range want {
					wanted = wanted || n == w
				}
				if err := find(n); (err == nil) != wanted || err != nil && !errors.Is(err, errUnauthenticated) {
					t.Errorf("%s, access key %d: %v", when, n, err)
				}
			}
		}
		known("at first", 1, 3, 4, 5)
		time.Sleep(time.Hour)
		known("after an hour", 1, 3, 5)
		time.Sleep(time.Hour)
		known("after two hours", 1, 3)
		time.Sleep(staleAfter + 1)
		if err := find(1); err != errStale {
			t.Errorf("FindSigner with a stale copy: %v, want errStale", err)
		}
		d.Replace(Access{Required: true, Tokens: tokens[1:]})
		known("when it was revoked", 3)
		d.Replace(Access{})
		if v, _, err := d.FindSigner("whoever"); v != Anonymous || err != nil {
			t.Errorf("FindSigner where no tokens are required = %v, %v", v, err)
		}
	})
}

// Access keys differ, and neither part resembles the other or the hash. Clients use them already, so the derivation must not
// change.
func TestAccessKeys(t *testing.T) {
	a, b := AccessKeyOf(HashOf("pawl_a")), AccessKeyOf(HashOf("pawl_b"))
	if a.ID == b.ID || a.Secret == b.Secret || len(a.ID) != 20 || len(a.Secret) != 43 {
		t.Errorf("access keys %+v and %+v are equal or of the wrong length", a, b)
	}
	if want := (AccessKey{"PAWLAMIZRAGNXD6LFPQD", "kIuD1xsOyRhOqmbQcVAtKSfUHFRtNCiEn0UO8WXpxRZ"}); a != want {
		t.Errorf("AccessKeyOf = %+v, want %+v", a, want)
	}
}
