// Package bearer makes and recognizes bearer tokens by their text, also for programs without a server, which read one from a file.
// It knows neither what a token allows nor where its hash is stored.
package bearer

import (
	"crypto/rand"
	"errors"
	"hash/crc32"
	"math/big"
	"strings"
)

// A token is "pawl_", 256 random bits as 43 letters and digits, and their checksum as 6 more. Secret scanners can recognize leaked
// tokens, and a mistyped one is rejected without a lookup.
const (
	Prefix      = "pawl_"
	randomBytes = 32
	bodyLen     = 43 // 62^43 > 2^256
	sumLen      = 6  // 62^6 > 2^32
	secretLen   = len(Prefix) + bodyLen + sumLen
	digits      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// New returns a new random token.
func New() string {
	var b [randomBytes]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	s := Prefix + Base62(new(big.Int).SetBytes(b[:]), bodyLen)
	return s + checksum(s)
}

// Base62 writes a number with as many digits and letters as asked for.
func Base62(n *big.Int, length int) string {
	out, base, digit := make([]byte, length), big.NewInt(int64(len(digits))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}

func checksum(s string) string {
	return Base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(s)))), sumLen)
}

var errNoToken = errors.New(`it is not "` + Prefix + `", 49 letters and digits, of which the last 6 are their checksum`)

// Check rejects what cannot be a token. Its error does not repeat the text.
func Check(s string) error {
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
