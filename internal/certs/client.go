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

// Authorities is whom certificates are trusted from, read from a file.
type Authorities struct{ files *Files[*Trust] }

// OpenAuthorities reads the certificates of one or more authorities, and their lists of revoked certificates: see ParseTrust.
func OpenAuthorities(path string, log *slog.Logger) (*Authorities, error) {
	files, err := OpenFiles(log, func() (*Trust, time.Time, error) { return readTrust(path) }, path)
	if err != nil {
		return nil, err
	}
	return &Authorities{files}, nil
}

// Now returns whom to trust. It is the same as long as the file does not change.
func (a *Authorities) Now() *Trust { return a.files.Now() }

// Until returns when the first of the authorities expires.
func (a *Authorities) Until() time.Time { return a.files.Until() }

func readTrust(path string) (t *Trust, until time.Time, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, until, err
	}
	if t, err = ParseTrust(file); err != nil {
		return nil, until, fmt.Errorf("%q: %w", path, err)
	}
	return t, EndOfFile(file), nil
}

// OpenClient reads the certificate that a client presents, followed by its intermediates, and its key.
func OpenClient(certFile, keyFile string, log *slog.Logger) (*KeyPair, error) {
	return openPair(certFile, keyFile, log, checkClient)
}

// checkClient returns why servers would reject a client's certificate, whichever authorities they trust.
func checkClient(c *x509.Certificate, now time.Time) error {
	if usage := c.ExtKeyUsage; len(usage) > 0 && !slices.Contains(usage, x509.ExtKeyUsageClientAuth) &&
		!slices.Contains(usage, x509.ExtKeyUsageAny) {
		return errors.New("it is not a client certificate: its extended key usage lacks client authentication")
	}
	return checkTime(c, now)
}

// GetClientCertificate is a tls.Config.GetClientCertificate. It returns the current certificate.
func (k *KeyPair) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return k.Now(), nil
}
