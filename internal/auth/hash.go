package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Hash is what is stored of a token. A token has so much entropy that a slow hash would add nothing.
type Hash [sha256.Size]byte

// HashOf returns the hash of a token.
func HashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err == nil && len(b) != len(h) {
		err = fmt.Errorf("a hash of %d bytes, want %d", len(b), len(h))
	}
	copy(h[:], b)
	return err
}
