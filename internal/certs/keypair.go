package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// KeyPair is a certificate with its key, read from two files.
type KeyPair struct{ files *Files[*tls.Certificate] }

// OpenKeyPair reads the certificate of a server that clients know by its hosts, followed by its intermediates, and its key. It
// rejects what every client would reject.
func OpenKeyPair(certFile, keyFile string, log *slog.Logger) (*KeyPair, error) {
	return openPair(certFile, keyFile, log, checkServer)
}

func openPair(certFile, keyFile string, log *slog.Logger, check func(*x509.Certificate, time.Time) error) (*KeyPair, error) {
	files, err := OpenFiles(log, func() (*tls.Certificate, time.Time, error) {
		cert, err := readKeyPair(certFile, keyFile, time.Now(), check)
		if err != nil {
			return nil, time.Time{}, err
		}
		return cert, cert.Leaf.NotAfter, nil
	}, certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &KeyPair{files}, nil
}

// Now returns the certificate for a handshake, which must not be modified.
func (k *KeyPair) Now() *tls.Certificate { return k.files.Now() }

func readKeyPair(certFile, keyFile string, now time.Time, check func(*x509.Certificate, time.Time) error) (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %q with key %q: %w", certFile, keyFile, err)
	}
	if err := check(cert.Leaf, now); err != nil {
		return nil, fmt.Errorf("certificate %q: %w", certFile, err)
	}
	return &cert, nil
}

// checkServer returns why clients would reject a server's certificate, whichever authorities they trust.
func checkServer(c *x509.Certificate, now time.Time) error {
	if err := checkTime(c, now); err != nil {
		return err
	}
	switch usage := c.ExtKeyUsage; {
	case len(c.DNSNames) == 0 && len(c.IPAddresses) == 0:
		return errors.New("it names no host, so clients can't verify it: make one with hosts, as `pawl cert server --host` does")
	case len(usage) > 0 && !slices.Contains(usage, x509.ExtKeyUsageServerAuth) && !slices.Contains(usage, x509.ExtKeyUsageAny):
		return errors.New("it is not a server certificate: its extended key usage lacks server authentication")
	}
	return nil
}

func checkTime(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("it expired at %s, and it is %s", c.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s, and it is %s", c.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
