package auth

import (
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Certificate is what a caller has shown at its handshake, where it was verified.
type Certificate struct {
	// Names are all by which a token may know it, as package certs writes them.
	Names []string
	// Good says why it is not good any more: handshakes are long ago.
	Good func(now time.Time) error
}

// maxCertificate bounds the name by which a token knows a certificate.
const maxCertificate = 512

// certificateKinds are the kinds of such names.
var certificateKinds = []string{"uri", "dns", "email", "subject"}

// CheckCertificate refuses what no certificate is called.
func CheckCertificate(field, name string) error {
	kind, value, _ := strings.Cut(name, ":")
	switch {
	case len(name) > maxCertificate:
		return task.Invalid(field, "%d bytes, at most %d are allowed", len(name), maxCertificate)
	case !slices.Contains(certificateKinds, kind) || value == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return task.Invalid(field, "%q is no name of a certificate: it is uri:, dns:, email: or subject: and the name behind it, as `pawl cert show` writes them", task.Cut(name, 64))
	case kind == "dns" && value != strings.ToLower(value):
		return task.Invalid(field, "%q: host names are written in small letters", task.Cut(name, 64))
	}
	return nil
}

// HashOfCertificate stands where a token has the hash of its secret. No secret has it: they have another form.
func HashOfCertificate(name string) Hash { return HashOf("certificate " + name) }

// AdmitCertificate finds out who calls by a certificate.
//
// Errors: unauthenticated; unavailable while the node's copy of the tokens is too old.
func (d *Door) AdmitCertificate(c *Certificate) (*Visitor, error) {
	p := d.page.Load()
	if !d.on(p) {
		return Anybody, nil
	}
	now := time.Now()
	if d.cfg.Mode == AsCluster && p.blank {
		return nil, errUnheard
	}
	if err := c.Good(now); err != nil {
		return nil, d.refuse(FailedExpired, "the certificate is not good any more: %v", err)
	}
	if d.stale(now) {
		return nil, errStale
	}
	v, err := d.known(p, c)
	if err != nil {
		return nil, err
	}
	if v.expired(now) {
		return nil, d.refuse(FailedExpired, "token %q, of the certificate %q: it expired at %s", v.Name, v.token.Certificate, v.expiresAt.UTC().Format(time.RFC3339))
	}
	v.Use(now)
	return v, nil
}

// known is the one token that knows the certificate. Of two nobody could say which was meant.
func (d *Door) known(p *page, c *Certificate) (v *Visitor, err error) {
	for _, name := range c.Names {
		switch found := p.tokens[HashOfCertificate(name)]; {
		case found == nil || found == v:
		case v != nil:
			return nil, d.refuse(FailedUnknown, "the certificate is that of two tokens, %q and %q: revoke one of them, or send the secret of another token", v.Name, found.Name)
		default:
			v = found
		}
	}
	if v == nil {
		return nil, d.refuse(FailedUnknown, "no token is made for the certificate (%s), and no other token was sent", task.Cut(strings.Join(c.Names, " "), maxCertificate))
	}
	return v, nil
}
