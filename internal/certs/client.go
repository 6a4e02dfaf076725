package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
)

// Authorities is a pool of trusted certificate authorities, read from a file.
type Authorities struct{ files *Files[*x509.CertPool] }

// OpenAuthorities reads the certificates of one or more authorities.
func OpenAuthorities(path string, log *slog.Logger) (*Authorities, error) {
	files, err := OpenFiles(log, func() (*x509.CertPool, time.Time, error) { return readAuthorities(path) }, path)
	if err != nil {
		return nil, err
	}
	return &Authorities{files}, nil
}

// Now returns the authorities for a handshake, which must not be modified. It is the same pool until the file changes.
func (a *Authorities) Now() *x509.CertPool { return a.files.Now() }

// Until returns when the first of the authorities expires.
func (a *Authorities) Until() time.Time { return a.files.Until() }

func readAuthorities(path string) (pool *x509.CertPool, until time.Time, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, until, err
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(file) {
		return nil, until, fmt.Errorf("%q: no certificate found: want that of an authority, in PEM", path)
	}
	first, err := Parse(file)
	if err != nil {
		return nil, until, fmt.Errorf("%q: %w", path, err)
	}
	if !first.IsCA {
		return nil, until, fmt.Errorf("%q: the certificate of %q is not that of an authority", path, first.Subject.CommonName)
	}
	return pool, EndOfFile(file), nil
}

// OpenClient reads the certificate that a client presents, followed by its intermediates, and its key.
func OpenClient(certFile, keyFile string, log *slog.Logger) (*KeyPair, error) {
	return openPair(certFile, keyFile, log, checkClient)
}

// checkClient returns why servers would reject a client's certificate, whichever authorities they trust.
func checkClient(c *x509.Certificate, now time.Time) error {
	if usage := c.ExtKeyUsage; len(usage) > 0 && !slices.Contains(usage, x509.ExtKeyUsageClientAuth) && !slices.Contains(usage, x509.ExtKeyUsageAny) {
		return errors.New("it is not a client certificate: its extended key usage lacks client authentication")
	}
	return checkTime(c, now)
}

// VerifyClient verifies a client's certificate, followed by its intermediates, as a handshake does.
func VerifyClient(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// GetClientCertificate is a tls.Config.GetClientCertificate. It returns the current certificate.
func (k *KeyPair) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return k.Now(), nil
}
