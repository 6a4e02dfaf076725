package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
	"unicode/utf8"
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

// ParseTrust reads the certificates of at least one authority, and lists of revoked certificates (CRLs) that these have signed, all in one
// PEM file. A list whose next update has passed stays in force: better a late list than none. It refuses a file of which it can't read all:
// what it left out might be a list.
func ParseTrust(file []byte) (*Trust, error) {
	t := &Trust{Roots: x509.NewCertPool(), revoked: map[string]time.Time{}}
	blocks, err := readBlocks(file)
	if err != nil {
		return nil, err
	}
	var lists []*x509.RevocationList
	unknown := ""
	for _, block := range blocks {
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
		default:
			unknown = block.Type
		}
	}
	switch {
	case len(t.authorities) == 0:
		return nil, errors.New("no certificate found: want that of an authority, in PEM")
	case unknown != "":
		return nil, fmt.Errorf("it has a block %q: want %q and %q only", unknown, blockCertificate, blockRevoked)
	}
	for _, list := range lists {
		if err := t.revoke(list); err != nil {
			return nil, fmt.Errorf("list of revoked certificates of %q: %w", list.Issuer.CommonName, err)
		}
	}
	return t, nil
}

// readBlocks returns the blocks of a PEM file. Text between them is left out. pem.Decode also leaves out, without an error, a block that is
// cut off, or that begins on the line on which the one before ends, and a list that is not PEM.
func readBlocks(file []byte) (blocks []*pem.Block, err error) {
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		blocks = append(blocks, block)
	}
	switch {
	case !utf8.Valid(file) || bytes.IndexByte(file, 0) >= 0:
		return nil, errors.New("it has bytes that are not text: want certificates and lists in PEM only")
	case bytes.Count(file, []byte("-----BEGIN ")) != len(blocks):
		return nil, errors.New("it has a block of PEM that is damaged or cut off, or that does not begin on a line of its own")
	}
	return blocks, nil
}

// revoke adds a list after checking who signed it, and that nothing in it changes its meaning in a way that is not known here (RFC 5280,
// 5.2).
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

// Verify verifies a certificate, followed by its intermediates, for a usage, as a handshake does: an authority has certified it, and
// neither it nor an intermediate was revoked.
func (t *Trust) Verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{Roots: t.Roots, Intermediates: between,
		CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
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
			return fmt.Errorf("the certificate of %q with the serial number %x was revoked at %s",
				c.Subject.CommonName, c.SerialNumber, at.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// Revoked returns how many certificates are revoked.
func (t *Trust) Revoked() int { return len(t.revoked) }

// Revoke returns the file of an authority with a list in which these certificates are revoked too, and all else that the file holds. It
// refuses certificates of another authority.
func Revoke(authority Pair, now time.Time, revoked []*x509.Certificate) (file []byte, err error) {
	ca, key, err := parseAuthority(authority)
	if err != nil {
		return nil, err
	}
	if _, err := ParseTrust(authority.Cert); err != nil {
		return nil, err
	}
	blocks, err := readBlocks(authority.Cert)
	if err != nil {
		return nil, err
	}
	list := &x509.RevocationList{Number: new(big.Int), ThisUpdate: now.Add(-backdate), NextUpdate: ca.NotAfter}
	known := map[string]bool{}
	add := func(entry x509.RevocationListEntry) {
		if serial := entry.SerialNumber.String(); !known[serial] {
			known[serial] = true
			list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, entry)
		}
	}
	for _, block := range blocks {
		before, err := x509.ParseRevocationList(block.Bytes)
		if block.Type != blockRevoked || err != nil || before.CheckSignatureFrom(ca) != nil {
			file = append(file, pem.EncodeToMemory(block)...)
			continue
		}
		if before.Number != nil && before.Number.Cmp(list.Number) > 0 { // lists by other programs may have none
			list.Number = before.Number
		}
		for _, entry := range before.RevokedCertificateEntries {
			add(entry)
		}
	}
	for _, c := range revoked {
		if err := c.CheckSignatureFrom(ca); err != nil || c.IsCA {
			return nil, fmt.Errorf("the certificate of %q was not made by this authority", c.Subject.CommonName)
		}
		if !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
			return nil, fmt.Errorf("the certificate of %q is a server's, and clients read no lists of revoked certificates: "+
				"replace it, or its authority", c.Subject.CommonName)
		}
		add(x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: now.UTC()})
	}
	list.Number = new(big.Int).Add(list.Number, big.NewInt(1))
	der, err := x509.CreateRevocationList(rand.Reader, list, ca, key)
	if err != nil {
		return nil, err
	}
	return append(file, pem.EncodeToMemory(&pem.Block{Type: blockRevoked, Bytes: der})...), nil
}
