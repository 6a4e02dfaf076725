package auth

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// Access keys are known while their tokens are valid and this node's copy is fresh; tokens without one have none.
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
				t.Errorf("the secret of %d is %q, want %q", n, secret, key(n).Secret)
			}
			return err
		}
		if err := find(1); err != errNotLoaded {
			t.Errorf("before anything was heard: %v", err)
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
			t.Errorf("after this node heard nothing for a while: %v", err)
		}
		d.Replace(Access{Required: true, Tokens: tokens[1:]})
		known("when it was revoked", 3)
		d.Replace(Access{})
		if v, _, err := d.FindSigner("whoever"); v != Anonymous || err != nil {
			t.Errorf("where no token is wanted: %v, %v", v, err)
		}
	})
}

// Access keys differ, and neither part resembles the other or the hash. Clients have been given them: the derivation must not
// change.
func TestAccessKeys(t *testing.T) {
	a, b := AccessKeyOf(HashOf("pawl_a")), AccessKeyOf(HashOf("pawl_b"))
	if a.ID == b.ID || a.Secret == b.Secret || len(a.ID) != 20 || len(a.Secret) != 43 {
		t.Errorf("%+v and %+v", a, b)
	}
	if want := (AccessKey{"PAWLAMIZRAGNXD6LFPQD", "kIuD1xsOyRhOqmbQcVAtKSfUHFRtNCiEn0UO8WXpxRZ"}); a != want {
		t.Errorf("the access key is %+v, want %+v", a, want)
	}
}
