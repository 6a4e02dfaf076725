package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A secret of a token whose answer was lost is one that nobody knows and that is good all the same. So who asks again under the same request
// id gets another secret in its place, as if nothing had been answered: the one that was lost ends, and the one before the rotation stays
// good as long as was said (decisions/0032).

// againWithin is how long a request may be repeated, from its first answer on.
const againWithin = 10 * time.Minute

// said digests what a call asks for, so that a request id stands for one thing only.
func (a *TokenCall) said(verb task.Action) string {
	b, err := json.Marshal(struct {
		Verb          task.Action
		Token         auth.TokenName
		Rights        auth.Rights
		Life, Overlap time.Duration
		SQS           bool `json:",omitempty"`
	}{verb, a.Token.ID(), a.Token.Rights, a.Life, a.Overlap, a.Token.SQS})
	if err != nil {
		panic(err) // words and numbers
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// request is what the row of a token keeps of a call that gave it a secret; nil: it has no request id.
func (a *TokenCall) request(verb task.Action, first store.Time) *auth.Request {
	if a.Request == (task.ID{}) {
		return nil
	}
	return &auth.Request{ID: a.Request.String(), By: a.Author.Name, Said: a.said(verb), First: first, Asked: store.TimeOf(a.Asked)}
}

// again says whether the call repeats the one that gave the token its secret. A request id that stands for something else is refused, and
// so is a repeat that comes too late, or was overtaken by a later one: it must not end a secret that somebody got meanwhile.
func (a *TokenCall) again(now store.Time, verb task.Action, t *auth.Token) (bool, error) {
	last := t.Request
	if last == nil || a.Request == (task.ID{}) || last.ID != a.Request.String() {
		return false, nil
	}
	switch {
	case last.By != a.Author.Name || last.Said != a.said(verb):
		return false, conflict("request_id %q: it was given to another request for token %q", last.ID, t.Name)
	case now > last.First.Add(againWithin):
		return false, conflict("request_id %q: it was answered over %v ago: rotate token %q under another one", last.ID, againWithin, t.Name)
	case store.TimeOf(a.Asked) < last.Asked:
		return false, conflict("request_id %q: a later repeat of it was answered, with another secret of token %q", last.ID, t.Name)
	}
	return true, nil
}

// renew puts the secret of a repeat in the place of the one that was lost.
func (c *Control) renew(tx *store.Tx, a *TokenCall, verb task.Action, t auth.Token) (TokenDone, error) {
	before, first := factsOfToken(&t), t.Request.First
	t.Hash, t.RotatedAt, t.ExpiresAt, t.Request = a.Token.Hash, tx.Now(), expiry(tx, a.Life), a.request(verb, first)
	return TokenDone{t, tx.Index()}, c.putToken(tx, a.Author, task.TokenRotated, before, t)
}
