package certs

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// made returns an authority and certificates that it made.
func made(t *testing.T, names ...string) (ca Pair, certs []*x509.Certificate) {
	t.Helper()
	ca = authority(t, 100)
	for _, name := range names {
		p, err := NewNode(ca, now, 50, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, parse(t, p))
	}
	return ca, certs
}

func trusting(t *testing.T, files ...[]byte) *Trust {
	t.Helper()
	trust, err := ParseTrust(slices.Concat(files...))
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// A revoked certificate is refused, and others of the same authority or of another one with the same names are not.
func TestRevoke(t *testing.T) {
	ca, of := made(t, "n1", "n2", "n3")
	other, strangers := made(t, "n1")
	refused := func(what string, trust *Trust, want ...bool) {
		t.Helper()
		for i, c := range of {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
				err := trust.Verify([]*x509.Certificate{c}, usage, now)
				if (err != nil) != want[i] || err != nil && !strings.Contains(err.Error(), "was revoked at 2026-01-02T03:04:05Z") {
					t.Errorf("%s: %s: %v, refused: %v", what, c.Subject.CommonName, err, want[i])
				}
			}
		}
	}
	refused("no list", trusting(t, ca.Cert), false, false, false)
	revoke := func(ca Pair, revoked ...*x509.Certificate) []byte {
		t.Helper()
		file, err := Revoke(ca, now, revoked)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	first := revoke(ca, of[1])
	refused("one", trusting(t, first), false, true, false)
	refused("one, after another authority", trusting(t, other.Cert, first), false, true, false)
	refused("one, after a list of another authority", trusting(t, revoke(other, strangers[0]), first), false, true, false)
	second := revoke(Pair{first, ca.Key}, of[1], of[2])
	refused("one more, one again", trusting(t, second), false, true, true)
	if n := trusting(t, second).Revoked(); n != 2 {
		t.Errorf("%d certificates are revoked, want 2", n)
	}
	_, rest := pem.Decode(second)
	block, _ := pem.Decode(rest)
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil || list.Number.Int64() != 2 || list.NextUpdate.Before(now.Add(99*day)) {
		t.Errorf("the list is %+v, %v", list, err)
	}
	refused("long after the next update", trusting(t, second), false, true, true)

	if _, err := Revoke(ca, now, strangers); err == nil || !strings.Contains(err.Error(), `"n1" was not made by this authority`) {
		t.Errorf("revoking a certificate of another authority: %v", err)
	}
	both := revoke(Pair{slices.Concat(ca.Cert, revoke(other, strangers[0])), ca.Key}, of[0])
	refused("one, beside another authority", trusting(t, both), true, false, false)
	if err := trusting(t, both).Verify(strangers, x509.ExtKeyUsageClientAuth, now); err == nil ||
		!strings.Contains(err.Error(), "was revoked at") {
		t.Errorf("the other authority and its list did not stay: %v", err)
	}
	parent, key, err := parseAuthority(ca)
	if err != nil {
		t.Fatal(err)
	}
	//lint:ignore SA1019 a list without a number, as other programs write it
	unnumbered, err := parent.CreateCRL(rand.Reader, key, []pkix.RevokedCertificate{{SerialNumber: of[2].SerialNumber,
		RevocationTime: now}},
		now, now.Add(day))
	if err != nil {
		t.Fatal(err)
	}
	appended := slices.Concat(first, pem.EncodeToMemory(&pem.Block{Type: blockRevoked, Bytes: unnumbered}))
	all := revoke(Pair{appended, ca.Key}, of[0])
	refused("one, after two lists", trusting(t, all), true, true, true)
	if n := bytes.Count(all, []byte("-----BEGIN")); n != 2 {
		t.Errorf("the file has %d blocks, want the authority and one list", n)
	}

	server, err := NewServer(ca, now, 50, "s", []string{"s"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Revoke(ca, now, []*x509.Certificate{parse(t, server)}); err == nil || !strings.Contains(err.Error(), `"s" is a server's`) {
		t.Errorf("revoking a server's certificate: %v", err)
	}
	if _, err := Revoke(ca, now, []*x509.Certificate{parse(t, ca)}); err == nil {
		t.Error("an authority revoked itself")
	}
	if _, err := Revoke(Pair{append(ca.Cert, revoke(other)[len(other.Cert):]...), ca.Key}, now, of); err == nil {
		t.Error("another authority's list was taken over")
	}
}

// An intermediate that was revoked certifies nobody.
func TestRevokedIntermediate(t *testing.T) {
	root, err := sign(&x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "root"}, NotBefore: now,
		NotAfter: now.Add(100 * day), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}, nil,
		nil)
	if err != nil {
		t.Fatal(err)
	}
	parent, key, err := parseAuthority(root)
	if err != nil {
		t.Fatal(err)
	}
	between, err := sign(&x509.Certificate{SerialNumber: big.NewInt(8), Subject: pkix.Name{CommonName: "between"}, NotBefore: now,
		NotAfter: now.Add(90 * day), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, parent, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := NewClient(between, now, 50, "billing", nil)
	if err != nil {
		t.Fatal(err)
	}
	chain := []*x509.Certificate{parse(t, leaf), parse(t, between)}
	if err := trusting(t, root.Cert).Verify(chain, x509.ExtKeyUsageClientAuth, now); err != nil {
		t.Error(err)
	}
	list, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now,
		NextUpdate: now.Add(day), RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(8),
			RevocationTime: now}}}, parent, key)
	if err != nil {
		t.Fatal(err)
	}
	revoked := pem.EncodeToMemory(&pem.Block{Type: blockRevoked, Bytes: list})
	if err := trusting(t, root.Cert, revoked).Verify(chain, x509.ExtKeyUsageClientAuth, now); err == nil ||
		!strings.Contains(err.Error(), `"between" with the serial number 8 was revoked`) {
		t.Errorf("a certificate by a revoked intermediate: %v", err)
	}
}

// A list is refused if an authority in the file has not signed it, or it does not mean what it seems to.
func TestLists(t *testing.T) {
	ca, of := made(t, "n1")
	other, _ := made(t)
	parent, key, err := parseAuthority(ca)
	if err != nil {
		t.Fatal(err)
	}
	list := func(change func(*x509.RevocationList)) []byte {
		l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now, NextUpdate: now.Add(day),
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: of[0].SerialNumber, RevocationTime: now}}}
		change(l)
		der, err := x509.CreateRevocationList(rand.Reader, l, parent, key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: blockRevoked, Bytes: der})
	}
	plain := list(func(*x509.RevocationList) {})
	trusting(t, ca.Cert, plain)
	trusting(t, plain, ca.Cert)
	trusting(t, []byte("# of our nodes: Zürich\r\n"), ca.Cert, []byte("and what is revoked\n"), plain, []byte("\n\n"))
	der, _ := pem.Decode(plain)
	critical := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}} // of a list of changes
	for what, c := range map[string]struct {
		file []byte
		want string
	}{
		"nothing":                  {nil, "no certificate found"},
		"a list alone":             {plain, "no certificate found"},
		"another authority's list": {slices.Concat(other.Cert, plain), "none of the authorities in this file has signed it"},
		"a list of changes": {slices.Concat(ca.Cert, list(func(l *x509.RevocationList) {
			l.ExtraExtensions = []pkix.Extension{critical}
		})), "critical extension 2.5.29.27"},
		"an entry with a condition": {append(append([]byte{}, ca.Cert...), list(func(l *x509.RevocationList) {
			l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{critical}
		})...), "critical extension 2.5.29.27"},
		"a list that is cut off":       {slices.Concat(ca.Cert, plain[:len(plain)-20]), "damaged or cut off"},
		"a list without its beginning": {slices.Concat(ca.Cert, []byte("-----BEGIN X50")), "damaged or cut off"},
		"a list without its own line":  {slices.Concat(bytes.TrimSpace(ca.Cert), plain), "on a line of its own"},
		"a list that is not PEM":       {slices.Concat(ca.Cert, der.Bytes), "bytes that are not text"},
		"a list of another name": {slices.Concat(ca.Cert, pem.EncodeToMemory(&pem.Block{Type: "CRL", Bytes: der.Bytes})),
			`a block "CRL"`},
		"a damaged list": {slices.Concat(ca.Cert, pem.EncodeToMemory(&pem.Block{Type: blockRevoked, Bytes: []byte("x")})),
			"list of revoked certificates"},
		"a damaged certificate": {slices.Concat(ca.Cert, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: []byte("x")})),
			"x509"},
		"a certificate of no authority": {slices.Concat(ca.Cert, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: of[0].Raw})),
			`"n1" is not that of an authority`},
	} {
		if _, err := ParseTrust(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if err := trusting(t, ca.Cert).Verify(nil, x509.ExtKeyUsageClientAuth, now); err == nil {
		t.Error("no certificate was accepted")
	}
	if err := trusting(t, ca.Cert).Verify(of, x509.ExtKeyUsageClientAuth, now.Add(60*day)); err == nil {
		t.Error("an expired certificate was accepted")
	}
	if err := trusting(t, ca.Cert).Verify(of, x509.ExtKeyUsageCodeSigning, now); err == nil {
		t.Error("a certificate was accepted for another usage")
	}
}
