package auth

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Every node finds the key of a token's sessions, until the token is revoked or its replaced secret is no longer good.
func TestFindSessionKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, secret, before := HashOf(bearer.New()), HashOf(bearer.New()), HashOf(bearer.New())
		cert := HashOfCertificate("dns:billing")
		d := NewAuthenticator(Config{Mode: Always, Admin: func() (Hash, bool) { return own, own != Hash{} }})
		var heard time.Time
		finds := func(what string, h Hash, want error) {
			t.Helper()
			k := SessionKeyOf(h)
			got, err := d.FindSessionKey(k.ID)
			if k.CutOff = strings.Contains(what, "cut off"); k.CutOff {
				k.Heard = heard
			}
			if !errors.Is(err, want) || want == nil && (err != nil || got != k) || want != nil && got != (SessionKey{}) {
				t.Errorf("%s: %v, error %v, want %v", what, got == k, err, want)
			}
		}
		finds("a token before anything was heard", secret, task.ErrUnavailable)
		finds("the node's own token while it is cut off and has never heard", own, nil)
		heard = time.Now()
		d.Refreshed(heard)
		finds("a token when the cluster has answered, but the copy is not replaced", secret, task.ErrUnavailable)
		finds("the node's own token while it is cut off", own, nil)
		now := store.TimeOf(time.Now())
		d.Replace(Access{Tokens: []Token{{Name: "a", Rights: Everything, Hash: secret, OldHash: before, OldUntil: now.Add(time.Hour)},
			{Name: "c", Rights: Everything, Hash: cert, Certificate: "dns:billing"}}})
		d.Refreshed(time.Now())
		finds("a token", secret, nil)
		finds("the node's own token", own, nil)
		finds("the secret that it replaced", before, nil)
		finds("an unknown token", HashOf("x"), ErrNoSession)
		finds("a token of a certificate, whose hash can be guessed", cert, ErrNoSession)
		time.Sleep(time.Hour - 1)
		finds("the secret that it replaced, just before the overlap is over", before, nil)
		time.Sleep(time.Nanosecond)
		heard = time.Now()
		d.Refreshed(heard)
		finds("the secret that it replaced, after the overlap", before, ErrNoSession)
		finds("the token then", secret, nil)
		time.Sleep(staleAfter + 1)
		finds("an unknown token at a node that hears nothing", HashOf("x"), task.ErrUnavailable)
		finds("the node's own token when it is cut off again", own, nil)
		d.Replace(Access{Ended: []EndedSessions{{Key: SessionKeyOf(own).ID, Before: 7}}})
		if k, err := d.FindSessionKey(SessionKeyOf(own).ID); err != nil || !k.Ended.Has(Session{Begun: 7}) {
			t.Errorf("an ended session of the node's own token: %+v, %v", k.Ended, err)
		}
		d.Replace(Access{})
		d.Refreshed(time.Now())
		finds("a revoked token", secret, ErrNoSession)
		own = Hash{}
		finds("no token of its own", own, ErrNoSession)
	})
}

// Where no token is required there are no sessions, even if the copy is old: a cookie that is left over from another server must not
// matter.
func TestNoSessionsWithoutTokens(t *testing.T) {
	h := HashOf("x")
	always, never, follows := NewAuthenticator(Config{Mode: Always}), NewAuthenticator(Config{Mode: Never}), NewAuthenticator(Config{})
	follows.Replace(Access{Tokens: []Token{{Name: "a", Rights: Everything, Hash: h}}})
	for what, c := range map[string]struct {
		d    *Authenticator
		want error
	}{"tokens are required": {always, task.ErrUnavailable}, "not at this node": {never, ErrNoSession},
		"not in the cluster": {follows, ErrNoSession}} {
		if _, err := c.d.FindSessionKey(SessionKeyOf(h).ID); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// The two parts of a key differ from each other, from the hash and from those of an access key. A key never changes: open sessions depend
// on it.
func TestSessionKeyOf(t *testing.T) {
	h := HashOf("x")
	k := SessionKeyOf(h)
	if [16]byte(k.Secret[:16]) == [16]byte(k.ID) || [16]byte(h[:16]) == [16]byte(k.ID) || Hash(k.Secret) == h ||
		SessionKeyOf(HashOf("y")).ID == k.ID {
		t.Errorf("the key of %x is %+v", h, k)
	}
}

// A token's ended sessions are remembered until they would have ended by themselves. If there are too many, all that are older have ended,
// too.
func TestEndedSessions(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(n uint64) Session { return Session{Number: n, Begun: now.Unix() + int64(n)} }
	var e EndedSessions
	if (*EndedSessions)(nil).Has(at(1)) || e.Has(at(1)) || !e.Outlived(now) {
		t.Error("a session has ended that nobody ended")
	}
	for n := uint64(2); n <= 2*maxEnded; n += 2 {
		e.Add(at(n), now.Add(time.Hour))
	}
	for n := uint64(1); n <= 2*maxEnded+1; n++ {
		if e.Has(at(n)) != (n%2 == 0) {
			t.Errorf("session %d has ended: %v", n, e.Has(at(n)))
		}
	}
	e.Add(at(2*maxEnded+2), now.Add(time.Hour))
	for n := uint64(1); n <= 2*maxEnded+3; n++ {
		if e.Has(at(n)) != (n < 3 || n%2 == 0) || len(e.Each) != maxEnded {
			t.Errorf("with one more, session %d has ended: %v; %d are kept", n, e.Has(at(n)), len(e.Each))
		}
	}
	if end := now.Add(rememberEnded + (2*maxEnded+2)*time.Second); e.Outlived(end.Add(-time.Second)) || !e.Outlived(end) {
		t.Error("they are outlived too early or too late")
	}
	e.Add(Session{Number: 7, Begun: 1 << 40}, now.Add(MaxSession+time.Hour))
	if !e.Has(Session{Number: 7}) || len(e.Each) != 1 || e.Each[0].Begun != now.Add(MaxSession+time.Hour).Unix() {
		t.Errorf("later: %+v", e)
	}
}

// A session that was logged out does not come back at the end of its life, by clocks that differ by a minute.
func TestEndedSessionsOfOtherClocks(t *testing.T) {
	leader := time.Unix(1_800_000_000, 0)
	for _, c := range []struct{ began, opens time.Duration }{ // how far the clocks of two nodes are ahead of the leader's
		{0, 0}, {time.Minute, time.Minute}, {time.Minute, 0}, {0, -time.Minute}, {-time.Minute, -time.Minute},
	} {
		x := Session{Number: 1, Begun: leader.Add(c.began).Unix()}
		var e EndedSessions
		e.Add(x, leader)
		last := time.Unix(x.Begun, 0).Add(MaxSession - time.Second - c.opens) // when the session would be good for the last time
		if e.Outlived(last) {
			t.Errorf("begun by a clock %v ahead, opened by one %v ahead: forgotten after %v", c.began, c.opens, last.Sub(leader))
		}
	}
}
