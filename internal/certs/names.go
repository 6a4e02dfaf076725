package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/url"
	"strings"
	"time"
)

// LongestName bounds a name that a certificate gives its holder, in bytes.
const LongestName = 512

// Kinds of names, which precede the colon.
const (
	KindURI     = "uri"
	KindDNS     = "dns"
	KindEmail   = "email"
	KindSubject = "subject"
)

// Names returns all names by which a client's certificate may be known, each with its kind: "uri:spiffe://example.com/billing",
// "dns:billing.example.com", "email:ops@example.com" and "subject:CN=billing,O=Example". A subject is written in full as in RFC
// 2253, in the reverse of the certificate's order. Names that are too long or contain control characters are left out.
func Names(c *x509.Certificate) (names []string) {
	add := func(kind, value string) {
		if name := kind + ":" + value; value != "" && len(name) <= LongestName && !strings.ContainsFunc(name, unwritable) {
			names = append(names, name)
		}
	}
	for _, u := range c.URIs {
		add(KindURI, u.String())
	}
	for _, host := range c.DNSNames {
		add(KindDNS, strings.ToLower(host))
	}
	for _, address := range c.EmailAddresses {
		add(KindEmail, address)
	}
	// Not c.Subject: that drops all but the last of several common names.
	var subject pkix.RDNSequence
	if rest, err := asn1.Unmarshal(c.RawSubject, &subject); err == nil && len(rest) == 0 {
		add(KindSubject, subject.String())
	}
	return names
}

func unwritable(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }

// NewClient makes the certificate of a client, with its name in the subject and in the URI pawl://client/NAME. No node accepts it
// as a node's.
func NewClient(authority Pair, now time.Time, days int, name string, hosts []string) (Pair, error) {
	if err := CheckName(name); err != nil {
		return Pair{}, err
	}
	return newLeaf(authority, now, days, hosts, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "pawl", Host: "client", Path: "/" + name}},
	})
}
