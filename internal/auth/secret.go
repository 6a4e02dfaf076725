package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
)

// A token is "pawl_", 256 random bits as 43 letters and digits, and their checksum as 6 more. Secret scanners can recognize leaked
// tokens, and a mistyped one is rejected without a lookup.
const (
	Prefix    = "pawl_"
	randBytes = 32
	bodyLen   = 43 // 62^43 > 2^256
	sumLen    = 6  // 62^6 > 2^32
	secretLen = len(Prefix) + bodyLen + sumLen
	digits    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewSecret returns a new random token.
func NewSecret() string {
	var b [randBytes]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	s := Prefix + base62(new(big.Int).SetBytes(b[:]), bodyLen)
	return s + checksum(s)
}

func base62(n *big.Int, length int) string {
	out, base, digit := make([]byte, length), big.NewInt(int64(len(digits))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}

func checksum(s string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(s)))), sumLen)
}

var errNoToken = errors.New(`it is not "` + Prefix + `", 49 letters and digits, of which the last 6 are their checksum`)

// CheckSecret rejects what cannot be a token. Its error does not repeat the text.
func CheckSecret(s string) error {
	if len(s) != secretLen || !strings.HasPrefix(s, Prefix) || !sums(s) {
		return errNoToken
	}
	return nil
}

// sums reports whether the checksum is right. It does not allocate: every call goes through here.
func sums(s string) bool {
	n := crc32.Checksum([]byte(s[:secretLen-sumLen]), crc32.IEEETable)
	for i := secretLen - 1; i >= secretLen-sumLen; i-- {
		if s[i] != digits[n%uint32(len(digits))] {
			return false
		}
		n /= uint32(len(digits))
	}
	return true
}

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
