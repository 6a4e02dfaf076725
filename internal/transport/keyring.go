package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// TLS names the files that prove who this node is, and by whose word it believes others. They are read again when they
// change.
type TLS struct{ CertFile, KeyFile, CAFile string }

const (
	// lookPause is how long a look at the files is good for.
	lookPause = time.Second
	// maxPEM bounds a file that is read.
	maxPEM = 1 << 20
	// nodeURI and the name of a node is the URI in its certificate.
	nodeURI    = nodeScheme + "://node/"
	nodeScheme = "pawl"
)

// keyring holds this node's certificate and the authority that it trusts, as the files had them when they were last
// whole.
type keyring struct {
	files TLS
	name  string // ours
	log   *slog.Logger
	said  seldom

	mu     sync.Mutex
	looked time.Time
	stamps [3]stamp // of the files that keys was read from
	keys   *keys
}

// keys are what one handshake uses. They never change.
type keys struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// stamp tells a file's versions apart.
type stamp struct {
	changed time.Time
	size    int64
}

func newKeyring(files TLS, name string, log *slog.Logger) (*keyring, error) {
	k := &keyring{files: files, name: name, log: log, looked: time.Now()}
	var err error
	if k.stamps, err = k.look(); err != nil {
		return nil, err
	}
	if k.keys, err = k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// now returns the keys for a handshake. A changed file that is broken, or doesn't fit the others, changes nothing: the
// next look may find the rest of them changed too.
func (k *keyring) now() *keys {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) < lookPause {
		return k.keys
	}
	k.looked = time.Now()
	stamps, err := k.look()
	if err == nil && stamps == k.stamps {
		return k.keys
	}
	var fresh *keys
	if err == nil {
		fresh, err = k.read()
	}
	if err != nil {
		if k.said.may("broken") {
			k.log.Error("changed certificate files are not used, those from before stay in use", "error", err)
		}
		return k.keys
	}
	k.keys, k.stamps = fresh, stamps
	k.log.Info("certificate files were read again", "cert", k.files.CertFile, "until", fresh.cert.Leaf.NotAfter)
	return k.keys
}

func (k *keyring) look() (stamps [3]stamp, err error) {
	for i, file := range []string{k.files.CertFile, k.files.KeyFile, k.files.CAFile} {
		info, err := os.Stat(file)
		if err != nil {
			return stamps, fmt.Errorf("certificate files: %w", err)
		}
		if info.Size() > maxPEM {
			return stamps, fmt.Errorf("certificate file %q: %d bytes, at most %d", file, info.Size(), maxPEM)
		}
		stamps[i] = stamp{changed: info.ModTime(), size: info.Size()}
	}
	return stamps, nil
}

// read reads all files and refuses what our peers would: so a wrong file is found here, not by each of them.
func (k *keyring) read() (*keys, error) {
	authority, err := os.ReadFile(k.files.CAFile)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("certificate of the authority %q: no certificate in it", k.files.CAFile)
	}
	cert, err := tls.LoadX509KeyPair(k.files.CertFile, k.files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %q with key %q: %w", k.files.CertFile, k.files.KeyFile, err)
	}
	fresh := &keys{cert: cert, roots: roots}
	chain, err := parseChain(cert.Certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate %q: %w", k.files.CertFile, err)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := fresh.verify(chain, usage, k.name); err != nil {
			return nil, fmt.Errorf("certificate %q by the authority %q: %w", k.files.CertFile, k.files.CAFile, err)
		}
	}
	return fresh, nil
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

// verify checks that the authority has certified a node, and that it is the one we want, if that is known. It returns
// the node's name. Hosts in the certificate are not looked at: a node's address may change, its name doesn't.
func (k *keys) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, want string) (string, error) {
	if len(chain) == 0 {
		return "", errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: k.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
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

// certifiedName reads pawl://node/NAME. A certificate with any other name of this scheme is a client's.
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

// server is how we answer a peer. Nothing is resumed, so that each handshake looks at certificates.
func (k *keys) server() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{k.cert},
		ClientAuth:             tls.RequireAnyClientCert, // verify does the rest, in one way for both sides
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := k.verify(s.PeerCertificates, x509.ExtKeyUsageClientAuth, "")
			return err
		},
	}
}

// client is how we come to the peer of that name, or of any if it is empty.
func (k *keys) client(name string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{k.cert},
		InsecureSkipVerify: true, // its check of hosts is not ours; verify checks all the rest
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := k.verify(s.PeerCertificates, x509.ExtKeyUsageServerAuth, name)
			return err
		},
	}
}
