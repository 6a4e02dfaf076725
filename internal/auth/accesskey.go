package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"math/big"
	"time"

	"github.com/pawlq/pawl/internal/auth/bearer"
)

// AccessKey is what clients of Amazon SQS sign their requests with. Verifying a signature takes the secret itself, but of a token
// only the hash is stored. So the access key's secret is derived from that hash: see docs/decisions/0071 for the consequences.
type AccessKey struct{ ID, Secret string }

const (
	accessKeyPrefix = "PAWL"
	accessKeyID     = 20 // characters, as in AWS
	accessKeySecret = 43
)

// AccessKeyOf returns the access key of the token with the given hash. Neither part reveals the other, and both together do not
// reveal the hash.
func AccessKeyOf(h Hash) AccessKey {
	id := base32.StdEncoding.EncodeToString(derive(h, "pawl sqs access key id"))
	secret := new(big.Int).SetBytes(derive(h, "pawl sqs secret access key"))
	return AccessKey{ID: (accessKeyPrefix + id)[:accessKeyID], Secret: bearer.Base62(secret, accessKeySecret)}
}

func derive(h Hash, purpose string) []byte {
	m := hmac.New(sha256.New, h[:])
	_, _ = m.Write([]byte(purpose))
	return m.Sum(nil)
}

// signer is a token that has an access key.
type signer struct {
	principal *Principal
	secret    string
}

// FindSigner returns the owner of an access key and the key's secret. This does not admit the caller: verify the signature and
// report the result to SignatureChecked.
//
// Errors: as for Admit.
func (d *Authenticator) FindSigner(id string) (*Principal, string, error) {
	p := d.tokens.Load()
	switch {
	case !d.required(p):
		return Anonymous, "", nil
	case d.cfg.Mode == AsCluster && p.unloaded:
		return nil, "", errNotLoaded
	case d.stale(time.Now()):
		return nil, "", errStale
	}
	s, ok := p.signers[id]
	if !ok {
		return nil, "", d.refuse(FailedUnknown, "the access key is not known: its token was revoked or replaced, was not made "+
			"for SQS, or is another cluster's")
	}
	if v := s.principal; v.expired(time.Now()) {
		return nil, "", d.refuse(FailedExpired, "token %q: it expired at %s", v.Name, v.expiresAt.UTC().Format(time.RFC3339))
	}
	return s.principal, s.secret, nil
}

// SignatureChecked records that a principal has signed a request, or that the signature was wrong.
func (d *Authenticator) SignatureChecked(v *Principal, wrong error) {
	if wrong == nil {
		v.Use(time.Now())
		return
	}
	d.failed[FailedSignature].Add(1)
}
