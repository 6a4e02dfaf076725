package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"math/big"
	"time"
)

// AccessKey is with which clients of Amazon SQS sign their calls. Who verifies a signature needs the secret itself, and of a token only
// the hash is kept. So the secret of an access key is made of that hash: docs/decisions/0071 says what follows from that.
type AccessKey struct{ ID, Secret string }

const (
	accessKeyPrefix = "PAWL"
	accessKeyID     = 20 // characters, as the service's own
	accessKeySecret = 43
)

// AccessKeyOf is the access key of the token with a hash. One can't be told from the other part, nor the hash from both.
func AccessKeyOf(h Hash) AccessKey {
	id := base32.StdEncoding.EncodeToString(derive(h, "pawl sqs access key id"))
	secret := new(big.Int).SetBytes(derive(h, "pawl sqs secret access key"))
	return AccessKey{ID: (accessKeyPrefix + id)[:accessKeyID], Secret: base62(secret, accessKeySecret)}
}

func derive(h Hash, purpose string) []byte {
	m := hmac.New(sha256.New, h[:])
	_, _ = m.Write([]byte(purpose))
	return m.Sum(nil)
}

// signer is a token that has an access key.
type signer struct {
	visitor *Visitor
	secret  string
}

// FindSigner finds whose access key signs a call, and its secret. Nobody is let in by that: call Signed with what came of the signature.
//
// Errors: as of Admit.
func (d *Door) FindSigner(id string) (*Visitor, string, error) {
	p := d.page.Load()
	switch {
	case !d.on(p):
		return Anybody, "", nil
	case d.cfg.Mode == AsCluster && p.blank:
		return nil, "", errUnheard
	case d.stale(time.Now()):
		return nil, "", errStale
	}
	s, ok := p.signers[id]
	if !ok {
		return nil, "", d.refuse(FailedUnknown, "the access key is not known: its token was revoked or replaced, was not made for SQS, or is another cluster's")
	}
	if v := s.visitor; v.expired(time.Now()) {
		return nil, "", d.refuse(FailedExpired, "token %q: it expired at %s", v.Name, v.expiresAt.UTC().Format(time.RFC3339))
	}
	return s.visitor, s.secret, nil
}

// Signed notes that a visitor has signed a call, or that the signature is wrong.
func (d *Door) Signed(v *Visitor, wrong error) {
	if wrong == nil {
		v.Use(time.Now())
		return
	}
	d.failed[FailedSignature].Add(1)
}
