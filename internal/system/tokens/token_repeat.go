package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// If the answer with a token's secret is lost, nobody knows the secret, and yet it is valid. So a repeat under the same request id replaces
// it, as if nothing had been answered: the lost secret becomes invalid, and the one before the rotation stays valid for as long as was
// promised (decisions/0032).

// RepeatWindow is how long a request may be repeated, counted from its first answer.
const RepeatWindow = 10 * time.Minute

// digest returns a digest of what a call asks for, so that a request id stands for one request only.
func (a *Call) digest(verb task.Action) string {
	b, err := json.Marshal(struct {
		Verb          task.Action
		Token         auth.TokenName
		Rights        auth.Rights
		Life, Overlap time.Duration
		SQS           bool `json:",omitempty"`
	}{verb, a.Token.ID(), a.Token.Rights, a.Life, a.Overlap, a.Token.SQS})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// request returns what a token's row keeps of the call that set its secret; nil: the call has no request id.
func (a *Call) request(verb task.Action, first store.Time) *auth.Request {
	if a.Request == (task.ID{}) {
		return nil
	}
	return &auth.Request{ID: a.Request.String(), By: a.Author.Name, Said: a.digest(verb), First: first, Asked: store.TimeOf(a.Asked)}
}

// isRepeat reports whether the call repeats the one that set the token's secret. A request id that stands for another
// request is refused, and so is a repeat that is too late or was overtaken by a later one: it must not invalidate a
// secret that somebody received meanwhile.
func (a *Call) isRepeat(now store.Time, verb task.Action, t *auth.Token) (bool, error) {
	last := t.Request
	if last == nil || a.Request == (task.ID{}) || last.ID != a.Request.String() {
		return false, nil
	}
	switch {
	case last.By != a.Author.Name || last.Said != a.digest(verb):
		return false, system.Conflict("request_id %q: it was given to another request for token %q", last.ID, t.Name)
	case now > last.First.Add(RepeatWindow):
		return false, system.Conflict("request_id %q: it was answered over %v ago: rotate token %q under another one", last.ID,
			RepeatWindow, t.Name)
	case store.TimeOf(a.Asked) < last.Asked:
		return false, system.Conflict("request_id %q: a later repeat of it was answered, with another secret of token %q", last.ID, t.Name)
	}
	return true, nil
}

// renew replaces the secret that was lost with that of the repeat.
func (s *Tokens) renew(tx *store.Tx, a *Call, verb task.Action, t auth.Token) (Done, error) {
	had, first := t, t.Request.First
	t.Hash, t.RotatedAt, t.ExpiresAt, t.Request = a.Token.Hash, tx.Now(), expiry(tx, a.Life), a.request(verb, first)
	return s.rotated(tx, a.Author, &had, t)
}

// rotated stores a token with another secret, and audits it.
func (s *Tokens) rotated(tx *store.Tx, by task.Author, had *auth.Token, t auth.Token) (Done, error) {
	if err := s.putToken(tx, by, task.TokenRotated, factsOfToken(had), t); err != nil {
		return Done{}, err
	}
	forgetSessions(tx, had, &t)
	return Done{t, tx.Index()}, nil
}
