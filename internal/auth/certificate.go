package auth

import (
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Certificate is the client certificate that a caller presented, and that was verified, at the TLS handshake.
type Certificate struct {
	// Names are all names by which a token may refer to it, as package certs writes them.
	Names []string
	// Good returns why it is no longer good. A connection may long outlive its handshake.
	Good func(now time.Time) error
}

// maxCertificate bounds the name by which a token refers to a certificate.
const maxCertificate = 512

// certificateKinds are the kinds of such names.
var certificateKinds = []string{"uri", "dns", "email", "subject"}

// CheckCertificate rejects a name that no certificate can have.
func CheckCertificate(field, name string) error {
	kind, value, _ := strings.Cut(name, ":")
	switch {
	case len(name) > maxCertificate:
		return task.Invalid(field, "%d bytes, at most %d are allowed", len(name), maxCertificate)
	case !slices.Contains(certificateKinds, kind) || value == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' ||
			r == 0x7f || r == '\uFFFD'
	}):
		return task.Invalid(field, "%q is not a certificate name: use uri:, dns:, email: or subject: followed by the name, as printed by "+
			"`pawl cert show`", task.Cut(name, 64))
	case kind == "dns" && value != strings.ToLower(value):
		return task.Invalid(field, "%q: host names must be lower-case", task.Cut(name, 64))
	}
	return nil
}

// HashOfCertificate is stored where other tokens have the hash of their secret. No secret has this hash, since secrets have a
// different form.
func HashOfCertificate(name string) Hash { return HashOf("certificate " + name) }

// AdmitCertificate identifies the caller that presented a certificate.
//
// Errors: unauthenticated; unavailable while the node's copy of the tokens is too old.
func (d *Authenticator) AdmitCertificate(c *Certificate) (*Principal, error) {
	p := d.tokens.Load()
	if !d.required(p) {
		return Anonymous, nil
	}
	now := time.Now()
	if d.cfg.Mode == AsCluster && p.unloaded {
		return nil, errNotLoaded
	}
	if err := c.Good(now); err != nil {
		return nil, d.refuse(FailedExpired, "the certificate is no longer valid: %v", err)
	}
	if d.stale(now) {
		return nil, errStale
	}
	v, err := d.known(p, c)
	if err != nil {
		return nil, err
	}
	if v.expired(now) {
		return nil, d.refuse(FailedExpired, "token %q, of the certificate %q: it expired at %s", v.Name, v.token.Certificate,
			v.expiresAt.UTC().Format(time.RFC3339))
	}
	v.Use(now)
	return v, nil
}

// known returns the one token that the certificate belongs to. If there are two, it is ambiguous which is meant.
func (d *Authenticator) known(p *snapshot, c *Certificate) (v *Principal, err error) {
	for _, name := range c.Names {
		switch found := p.tokens[HashOfCertificate(name)]; {
		case found == nil || found == v:
		case v != nil:
			return nil, d.refuse(FailedUnknown, "the certificate is that of two tokens, %q and %q: revoke one of them, or send "+
				"the secret of another token", v.Name, found.Name)
		default:
			v = found
		}
	}
	if v == nil {
		return nil, d.refuse(FailedUnknown, "no token exists for the certificate (%s), and no other token was sent",
			task.Cut(strings.Join(c.Names, " "), maxCertificate))
	}
	return v, nil
}
