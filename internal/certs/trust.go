package certs

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Types of PEM blocks.
const (
	blockCertificate = "CERTIFICATE"
	blockRevoked     = "X509 CRL"
)

// Trust is whom certificates are trusted from: authorities, and what each of them has revoked. It never changes.
type Trust struct {
	Roots       *x509.CertPool
	authorities []*x509.Certificate
	revoked     map[string]time.Time // when, by issuer and serial number
}

// ParseTrust reads the certificates of at least one authority, and lists of revoked certificates (CRLs) that these have signed, all in one PEM file. A
// list whose next update has passed stays in force: better a late list than none.
func ParseTrust(file []byte) (*Trust, error) {
	t := &Trust{Roots: x509.NewCertPool(), revoked: map[string]time.Time{}}
	var lists []*x509.RevocationList
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case blockCertificate:
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			if !c.IsCA {
				return nil, fmt.Errorf("the certificate of %q is not that of an authority", c.Subject.CommonName)
			}
			t.Roots.AddCert(c)
			t.authorities = append(t.authorities, c)
		case blockRevoked:
			list, err := x509.ParseRevocationList(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("list of revoked certificates: %w", err)
			}
			lists = append(lists, list)
		}
	}
	if len(t.authorities) == 0 {
		return nil, errors.New("no certificate found: want that of an authority, in PEM")
	}
	for _, list := range lists {
		if err := t.revoke(list); err != nil {
			return nil, fmt.Errorf("list of revoked certificates of %q: %w", list.Issuer.CommonName, err)
		}
	}
	return t, nil
}

// revoke adds a list after checking who signed it, and that nothing in it changes its meaning in a way that is not known here (RFC 5280, 5.2).
func (t *Trust) revoke(list *x509.RevocationList) error {
	extensions := list.Extensions
	for _, entry := range list.RevokedCertificateEntries {
		extensions = append(extensions, entry.Extensions...)
	}
	for _, e := range extensions {
		if e.Critical {
			return fmt.Errorf("it has the critical extension %v, which is not supported: want a complete list of one authority", e.Id)
		}
	}
	for _, a := range t.authorities {
		if string(a.RawSubject) != string(list.RawIssuer) || list.CheckSignatureFrom(a) != nil {
			continue
		}
		for _, entry := range list.RevokedCertificateEntries {
			t.revoked[revocationKey(list.RawIssuer, entry.SerialNumber)] = entry.RevocationTime
		}
		return nil
	}
	return errors.New("none of the authorities in this file has signed it")
}

func revocationKey(issuer []byte, serial *big.Int) string {
	return serial.String() + " " + string(issuer)
}

// Verify verifies a certificate, followed by its intermediates, for a usage, as a handshake does: an authority has certified it, and neither it nor an
// intermediate was revoked.
func (t *Trust) Verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{Roots: t.Roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return err
	}
	return t.CheckRevoked(paths)
}

// CheckRevoked returns an error if each of the paths that verify a certificate has a revoked one.
func (t *Trust) CheckRevoked(paths [][]*x509.Certificate) (err error) {
	for _, path := range paths {
		if err = t.revokedIn(path); err == nil {
			return nil
		}
	}
	return err
}

func (t *Trust) revokedIn(path []*x509.Certificate) error {
	for _, c := range path {
		if at, revoked := t.revoked[revocationKey(c.RawIssuer, c.SerialNumber)]; revoked {
			return fmt.Errorf("the certificate of %q with the serial number %x was revoked at %s", c.Subject.CommonName, c.SerialNumber, at.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// Revoked returns how many certificates are revoked.
func (t *Trust) Revoked() int { return len(t.revoked) }

// Revoke returns the file of an authority with a list in which these certificates are revoked too. It refuses those of another authority.
func Revoke(authority Pair, now time.Time, revoked []*x509.Certificate) ([]byte, error) {
	ca, key, err := parseAuthority(authority)
	if err != nil {
		return nil, err
	}
	list := &x509.RevocationList{Number: new(big.Int), ThisUpdate: now.Add(-backdate), NextUpdate: ca.NotAfter}
	for block, rest := pem.Decode(authority.Cert); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != blockRevoked {
			continue
		}
		before, err := x509.ParseRevocationList(block.Bytes)
		if err == nil {
			err = before.CheckSignatureFrom(ca)
		}
		if err != nil {
			return nil, fmt.Errorf("list of revoked certificates: %w", err)
		}
		list.Number, list.RevokedCertificateEntries = before.Number, before.RevokedCertificateEntries
	}
	known := map[string]bool{}
	for _, entry := range list.RevokedCertificateEntries {
		known[entry.SerialNumber.String()] = true
	}
	for _, c := range revoked {
		if err := c.CheckSignatureFrom(ca); err != nil || c.IsCA {
			return nil, fmt.Errorf("the certificate of %q was not made by this authority", c.Subject.CommonName)
		}
		if serial := c.SerialNumber.String(); !known[serial] {
			known[serial] = true
			list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: now.UTC()})
		}
	}
	list.Number = new(big.Int).Add(list.Number, big.NewInt(1))
	der, err := x509.CreateRevocationList(rand.Reader, list, ca, key)
	if err != nil {
		return nil, err
	}
	file := pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: ca.Raw})
	return append(file, pem.EncodeToMemory(&pem.Block{Type: blockRevoked, Bytes: der})...), nil
}
