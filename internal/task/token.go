package task

import (
	"encoding/base64"
	"encoding/binary"
)

// Token is a claim token: proof of one claim of a task. Its fence grows with each claim of the task; the nonce
// keeps tokens from being guessed; the epoch is that of the shard, which a recovery from permanent loss raises, so that
// earlier tokens match nothing afterwards.
type Token struct {
	Epoch uint64
	Fence uint64
	Nonce uint64
}

// ClaimID identifies a claim: a task that is claimed again has another token.
type ClaimID struct {
	Task  ID
	Token Token
}

const tokenVersion = 1

// claimBits is how many bits of a fence count the claims of a task in one epoch of its shard. The bits above them are the epoch, so that
// fences don't go back when a shard loses claims: it then has a higher epoch. A restore sets the epoch to the Unix time in seconds, which
// leaves fences below 2^53, exact as numbers in JSON, until 2242.
const claimBits = 20

// NextFence returns the fence of a task's next claim: one more than the last, or the first of the epoch.
func NextFence(last, epoch uint64) uint64 { return max(last, epoch<<claimBits) + 1 }

// ClaimsAt returns the number of claims of a task up to the one with the fence, without those before its shard's epoch.
func ClaimsAt(fence uint64) uint64 { return fence & (1<<claimBits - 1) }

// String returns the token as workers see it: opaque text of at most 39 characters.
func (t Token) String() string {
	var b [1 + 2*binary.MaxVarintLen64 + 8]byte
	b[0] = tokenVersion
	n := 1 + binary.PutUvarint(b[1:], t.Epoch)
	n += binary.PutUvarint(b[n:], t.Fence)
	binary.BigEndian.PutUint64(b[n:], t.Nonce)
	return base64.RawURLEncoding.EncodeToString(b[:n+8])
}

// ParseToken is the inverse of String.
func ParseToken(s string) (Token, error) {
	bad := Invalid("claim_token", "%q is not a claim token", clip(s))
	if s == "" {
		return Token{}, Invalid("claim_token", "is required")
	}
	b, err := base64.RawURLEncoding.DecodeString(clip(s))
	if err != nil || len(b) == 0 || b[0] != tokenVersion {
		return Token{}, bad
	}
	epoch, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return Token{}, bad
	}
	b = b[1+n:]
	fence, n := binary.Uvarint(b)
	if n <= 0 || len(b) != n+8 {
		return Token{}, bad
	}
	return Token{Epoch: epoch, Fence: fence, Nonce: binary.BigEndian.Uint64(b[n:])}, nil
}
