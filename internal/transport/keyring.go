package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/certs"
)

// TLS names the files that prove this node's identity and verify that of others. They are read again when they change.
type TLS struct{ CertFile, KeyFile, CAFile string }

const (
	// nodeURI, followed by the name of a node, is the URI in its certificate.
	nodeURI    = nodeScheme + "://node/"
	nodeScheme = "pawl"
)

// keyring holds this node's certificate and the authority that it trusts.
type keyring struct {
	TLS
	name  string // ours
	files *certs.Files[*keys]
}

// keys are the keys for a handshake. They never change.
type keys struct {
	cert     tls.Certificate
	trust    *certs.Trust
	rootsEnd time.Time // when the first of the authorities expires
}

func newKeyring(files TLS, name string, log *slog.Logger) (_ *keyring, err error) {
	k := &keyring{TLS: files, name: name}
	k.files, err = certs.OpenFiles(log, k.read, files.CertFile, files.KeyFile, files.CAFile)
	return k, err
}

// now returns the keys for a handshake.
func (k *keyring) now() *keys { return k.files.Now() }

// CertificateEnds returns when this node's certificate and that of the authority expire; empty: there are none.
func (t *Transport) CertificateEnds() certs.Ends {
	ends := certs.Ends{}
	if t.keyring != nil {
		now := t.keyring.now()
		ends[certs.Peer], ends[certs.PeerAuthority] = certs.EndOf(&now.cert), now.rootsEnd
	}
	return ends
}

// read reads all files and refuses what our peers would refuse: so a wrong file is found here, not by each of them.
func (k *keyring) read() (_ *keys, until time.Time, err error) {
	authority, err := os.ReadFile(k.CAFile)
	if err != nil {
		return nil, until, fmt.Errorf("certificate of the authority: %w", err)
	}
	trust, err := certs.ParseTrust(authority)
	if err != nil {
		return nil, until, fmt.Errorf("certificate of the authority %q: %w", k.CAFile, err)
	}
	cert, err := tls.LoadX509KeyPair(k.CertFile, k.KeyFile)
	if err != nil {
		return nil, until, fmt.Errorf("certificate %q with key %q: %w", k.CertFile, k.KeyFile, err)
	}
	fresh := &keys{cert: cert, trust: trust, rootsEnd: certs.EndOfFile(authority)}
	chain, err := parseChain(cert.Certificate)
	if err != nil {
		return nil, until, fmt.Errorf("certificate %q: %w", k.CertFile, err)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := fresh.verify(chain, usage, k.name); err != nil {
			return nil, until, fmt.Errorf("certificate %q by the authority %q: %w", k.CertFile, k.CAFile, err)
		}
	}
	return fresh, cert.Leaf.NotAfter, nil
}

func parseChain(raw [][]byte) ([]*x509.Certificate, error) {
	chain := make([]*x509.Certificate, len(raw))
	for i, der := range raw {
		var err error
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, err
		}
	}
	return chain, nil
}

// verify checks that the authority has certified a node, and that it is the wanted one if want is set. It returns the node's
// name. Host names in the certificate are not checked: a node's address may change, its name doesn't.
func (k *keys) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, want string) (string, error) {
	if err := k.trust.Verify(chain, usage, time.Now()); err != nil {
		return "", err
	}
	name, err := certifiedName(chain[0])
	if err != nil {
		return "", err
	}
	if want != "" && name != want {
		return "", fmt.Errorf("it is the certificate of node %q, not of %q", name, want)
	}
	return name, nil
}

// certifiedName returns NAME of pawl://node/NAME. A certificate with any other URI of this scheme is a client's.
func certifiedName(c *x509.Certificate) (string, error) {
	name := ""
	for _, u := range c.URIs {
		if u.Scheme != nodeScheme {
			continue
		}
		rest, ok := strings.CutPrefix(u.String(), nodeURI)
		if !ok || rest == "" || len(rest) > maxName || strings.Contains(rest, "/") || name != "" {
			return "", fmt.Errorf("it is not the certificate of one node: it is for %q", c.URIs)
		}
		name = rest
	}
	if name == "" {
		return "", fmt.Errorf("it is not a node's certificate: no URI %sNAME in it", nodeURI)
	}
	return name, nil
}

// server returns the configuration for accepting a peer. Sessions are never resumed, so that each handshake checks certificates.
func (k *keys) server() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{k.cert},
		ClientAuth:             tls.RequireAnyClientCert, // verify does the rest, in the same way for both sides
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := k.verify(s.PeerCertificates, x509.ExtKeyUsageClientAuth, "")
			return err
		},
	}
}

// client returns the configuration for connecting to the peer of that name, or to any if it is empty.
func (k *keys) client(name string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{k.cert},
		InsecureSkipVerify: true, // host names are not checked; verify checks everything else
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := k.verify(s.PeerCertificates, x509.ExtKeyUsageServerAuth, name)
			return err
		},
	}
}
