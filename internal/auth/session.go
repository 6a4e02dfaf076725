package auth

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"slices"
	"time"
)

// SessionKey is the key by which the web UI encrypts the sessions of a token. All nodes know the token's hash, and nobody else does: so
// every node can open a session that another one has begun, and none can once the token is revoked. See docs/decisions/0097.
type SessionKey struct {
	ID     SessionID // finds the key. It is no secret
	Secret [sha256.Size]byte
	Ended  *EndedSessions // those that visitors have logged out of; nil: none
	// CutOff: more of them may have ended since Heard, and the node has not heard of it. Only those that it has begun itself since then are
	// certain.
	CutOff bool
	Heard  time.Time // set if it is cut off; zero: it has never heard
}

// SessionID identifies a SessionKey.
type SessionID [16]byte

// MaxSession is how long a session lasts at most.
const MaxSession = 12 * time.Hour

// rememberEnded is how long an ended session is remembered: longer than it lasts, because the clocks of nodes may differ by a minute.
const rememberEnded = MaxSession + 2*time.Minute

// maxEnded is how many ended sessions of a token are remembered each by itself.
const maxEnded = 16

// Session identifies a session of a token.
type Session struct {
	Key    SessionID `json:"key,omitzero"`
	Number uint64    `json:"number"` // random
	Begun  int64     `json:"begun"`  // Unix seconds
}

// EndedSessions are the sessions of a token that have ended before their time.
type EndedSessions struct {
	Key    SessionID `json:"key"`
	Before int64     `json:"before,omitempty"` // all that began until then, in Unix seconds
	Each   []Session `json:"each"`
}

// Has reports whether a session has ended.
func (e *EndedSessions) Has(x Session) bool {
	return e != nil && (x.Begun <= e.Before || slices.ContainsFunc(e.Each, func(o Session) bool { return o.Number == x.Number }))
}

// Outlived reports whether all of them would have ended by now anyway, by the clock of every node.
func (e *EndedSessions) Outlived(now time.Time) bool {
	return !slices.ContainsFunc(e.Each, func(x Session) bool { return !x.outlived(now) })
}

func (x Session) outlived(now time.Time) bool { return now.Sub(time.Unix(x.Begun, 0)) >= rememberEnded }

// Add adds a session. If there are too many, the oldest of them stands for all that are older.
func (e *EndedSessions) Add(x Session, now time.Time) {
	x.Key, x.Begun = SessionID{}, min(x.Begun, now.Unix()) // by a clock that is ahead, sessions would end that are yet to begin
	e.Each = append(slices.DeleteFunc(slices.Clone(e.Each), func(o Session) bool { return o.outlived(now) }), x)
	if len(e.Each) > maxEnded {
		slices.SortFunc(e.Each, func(a, b Session) int { return cmp.Compare(a.Begun, b.Begun) })
		e.Before, e.Each = max(e.Before, e.Each[0].Begun), e.Each[1:]
	}
}

// SessionKeyOf returns the key of the sessions of the token with the given hash. Neither part reveals the other, nor the hash.
func SessionKeyOf(h Hash) (k SessionKey) {
	copy(k.ID[:], derive(h, "pawl ui session id"))
	copy(k.Secret[:], derive(h, "pawl ui session key"))
	return k
}

// ErrNoSession is returned for the id of a key that no token has.
var ErrNoSession = errors.New("no token has sessions under this id: it was revoked or replaced, has expired, or is another cluster's")

// FindSessionKey returns the key with an id. This admits nobody: a session contains the token itself, and Admit decides on that.
//
// Errors: ErrNoSession; unavailable while the node's copy of the tokens is too old to tell.
func (d *Authenticator) FindSessionKey(id SessionID) (SessionKey, error) {
	p := d.tokens.Load()
	if !d.required(p) { // what is left of a session must not keep anybody out
		return SessionKey{}, ErrNoSession
	}
	now := time.Now()
	if d.cfg.Admin != nil {
		if own, ok := d.cfg.Admin(); ok {
			if k := SessionKeyOf(own); k.ID == id {
				k.Ended, k.CutOff = p.ended[id], p.unloaded || d.stale(now)
				if heard := d.refreshed.Load(); k.CutOff && heard != nil {
					k.Heard = *heard
				}
				return k, nil
			}
		}
	}
	switch v := p.sessions[id]; {
	case v != nil && v.expired(now):
	case v != nil:
		k := SessionKeyOf(v.hash)
		k.Ended = p.ended[id]
		return k, nil
	case p.unloaded:
		return SessionKey{}, errNotLoaded
	case d.stale(now):
		return SessionKey{}, errStale
	}
	return SessionKey{}, ErrNoSession
}
