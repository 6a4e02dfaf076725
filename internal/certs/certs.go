package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"time"
)

const (
	// MaxDays bounds the lifetime of a certificate: more than a century is a typo, and dates far in the future overflow elsewhere.
	MaxDays = 36_500
	// maxName and maxHost are the limits of DNS for a label and for a name.
	maxName, maxHost = 63, 253
	// backdate is how far a certificate's validity is backdated, because the clocks of nodes differ.
	backdate = time.Hour
	day      = 24 * time.Hour
)

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// ErrOutlives rejects a certificate that would last longer than its authority's.
var ErrOutlives = errors.New("outlives its authority")

// NewAuthority makes a cluster's certificate authority: an ECDSA P-256 key with a self-signed certificate.
func NewAuthority(now time.Time, days int) (Pair, error) {
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	return sign(&x509.Certificate{
		SerialNumber: serial,
		// The number distinguishes the authorities of two clusters, for people and in error messages.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("pawl cluster authority %08x", serial.Uint64()>>32)},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(time.Duration(days) * day),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, nil)
}

// NewNode makes the certificate of a node. Hosts, the names and addresses by which others may reach it, are for programs that check
// them; nodes don't.
func NewNode(authority Pair, now time.Time, days int, name string, hosts []string) (Pair, error) {
	if err := CheckName(name); err != nil {
		return Pair{}, err
	}
	return newLeaf(authority, now, days, hosts, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "pawl", Host: "node", Path: "/" + name}},
	})
}

// NewServer makes the certificate that a server presents to its clients, who check its hosts. No node accepts it as a node's.
func NewServer(authority Pair, now time.Time, days int, name string, hosts []string) (Pair, error) {
	if err := CheckName(name); err != nil {
		return Pair{}, err
	}
	if len(hosts) == 0 {
		return Pair{}, fmt.Errorf("certificate of server %q: no host: clients know a server by its names and IP addresses", name)
	}
	return newLeaf(authority, now, days, hosts, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// newLeaf completes and signs a certificate other than the authority's.
func newLeaf(authority Pair, now time.Time, days int, hosts []string, cert *x509.Certificate) (Pair, error) {
	parent, key, err := parseAuthority(authority)
	if err != nil {
		return Pair{}, err
	}
	if cert.SerialNumber, err = newSerial(); err != nil {
		return Pair{}, err
	}
	cert.NotBefore, cert.NotAfter = now.Add(-backdate), now.Add(time.Duration(days)*day)
	cert.BasicConstraintsValid, cert.KeyUsage = true, x509.KeyUsageDigitalSignature
	if cert.NotAfter.After(parent.NotAfter) {
		return Pair{}, fmt.Errorf("certificate of %q, until %s, %w, until %s", cert.Subject.CommonName,
			cert.NotAfter.UTC().Format(time.DateOnly), ErrOutlives, parent.NotAfter.UTC().Format(time.DateOnly))
	}
	for _, host := range hosts {
		if err := CheckHost(host); err != nil {
			return Pair{}, err
		}
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	return sign(cert, parent, key)
}

// newSerial returns a positive random number of 127 bits.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// sign generates a key for a certificate and signs it, by the parent or, without one, by itself.
func sign(cert, parent *x509.Certificate, by crypto.Signer) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if parent == nil {
		parent, by = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), by)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}

func parseAuthority(p Pair) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, nil, fmt.Errorf("authority: the certificate of %q is not that of an authority", pair.Leaf.Subject.CommonName)
	}
	return pair.Leaf, key, nil
}

// Parse returns the first certificate of a PEM file.
func Parse(file []byte) (*x509.Certificate, error) {
	for {
		var block *pem.Block
		block, file = pem.Decode(file)
		if block == nil {
			return nil, errors.New("no certificate found")
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
}

// CheckName rejects an invalid name of a node or a server.
func CheckName(name string) error {
	if name == "" || len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("name %q: want 1 to %d of a-z, 0-9 and -", name, maxName)
	}
	return nil
}

// CheckHost rejects an invalid host name or IP address.
func CheckHost(host string) error {
	if net.ParseIP(host) != nil {
		return nil
	}
	bad := host == "" || len(host) > maxHost || strings.HasPrefix(host, ".") || strings.HasSuffix(host, ".") || strings.Contains(host, "..")
	for _, r := range host {
		bad = bad || r != '.' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	if bad {
		return fmt.Errorf("host %q: want a name such as node1.example.com or an IP address, without a port", host)
	}
	return nil
}
