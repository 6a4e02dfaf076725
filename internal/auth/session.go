package auth

import (
	"crypto/sha256"
	"errors"
	"time"
)

// SessionKey is the key by which the web UI encrypts the sessions of a token. All nodes know the token's hash, and nobody else does: so every node
// can open a session that another one has begun, and none can once the token is revoked. See docs/decisions/0097.
type SessionKey struct {
	ID     SessionID // finds the key. It is no secret
	Secret [sha256.Size]byte
}

// SessionID identifies a SessionKey.
type SessionID [16]byte

// SessionKeyOf returns the key of the sessions of the token with the given hash. Neither part reveals the other, nor the hash.
func SessionKeyOf(h Hash) (k SessionKey) {
	copy(k.ID[:], derive(h, "pawl ui session id"))
	copy(k.Secret[:], derive(h, "pawl ui session key"))
	return k
}

// ErrNoSession is returned for the id of a key that no token has.
var ErrNoSession = errors.New("no token has sessions under this id: it was revoked or replaced, or is another cluster's")

// FindSessionKey returns the key with an id. This admits nobody: a session contains the token itself, and Admit decides on that.
//
// Errors: ErrNoSession; unavailable while the node's copy of the tokens is too old to tell.
func (d *Authenticator) FindSessionKey(id SessionID) (SessionKey, error) {
	if d.cfg.Admin != nil {
		if own, ok := d.cfg.Admin(); ok {
			if k := SessionKeyOf(own); k.ID == id {
				return k, nil
			}
		}
	}
	p := d.tokens.Load()
	switch hash, ok := p.sessions[id]; {
	case ok:
		return SessionKeyOf(hash), nil
	case p.unloaded:
		return SessionKey{}, errNotLoaded
	case d.stale(time.Now()):
		return SessionKey{}, errStale
	}
	return SessionKey{}, ErrNoSession
}
