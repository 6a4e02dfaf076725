package cli

import (
	"bufio"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/keyring"
)

// maxKeyFile is the maximum size of a file of payload keys.
const maxKeyFile = 64 << 10

// KeyBytes is the size of a payload key.
const KeyBytes = 32

// ReadSecret reads a file of at most limit bytes, which only its owner may be able to read.
func ReadSecret(path string, limit int64) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case info.Size() > limit:
		return "", fmt.Errorf("it has %d bytes, at most %d are allowed", info.Size(), limit)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("others may read it (mode %04o): chmod 600 it", info.Mode().Perm())
	}
	b, err := os.ReadFile(path)
	return string(b), err
}

// ReadKeys reads a file of payload keys, which only its owner may be able to read. Its errors reveal no secret.
func ReadKeys(path string) (*keyring.Keyring, error) {
	file, err := ReadSecret(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	var cfg keyring.Config
	lines := bufio.NewScanner(strings.NewReader(file))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, rest, _ := strings.Cut(line, " ")
		secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
		if err != nil || len(secret) != KeyBytes {
			return nil, fmt.Errorf("file %q, line %d: want an id and %d bytes in base64, as pawl payload-key prints them", path, n,
				KeyBytes)
		}
		cfg.Keys = append(cfg.Keys, keyring.Key{ID: id, Secret: secret})
	}
	ring, err := keyring.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	return ring, lines.Err()
}

const (
	DefaultServer = "127.0.0.1:7295"
	// RetryFor is long enough for a hiccup, and short enough for a user at the terminal.
	RetryFor = 2 * time.Second
)

// Dial returns a client configured by the flags and by more options.
func (a *App) Dial(more ...pawl.DialOptions) (*pawl.Client, error) {
	return a.dialTo(a.Server, a.keys, more...)
}

// dialTo is Dial for one of the server's addresses or all of them, and with a file of payload keys; "": without.
func (a *App) dialTo(addr, keys string, more ...pawl.DialOptions) (*pawl.Client, error) {
	opts := pawl.DialOptions{RetryFor: RetryFor, Namespace: a.Namespace, Telemetry: pawl.Telemetry{TracerProvider: a.Tracers},
		Logger: slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if err := a.transport(&opts); err != nil {
		return nil, err
	}
	if err := a.credential(&opts); err != nil {
		return nil, err
	}
	if keys != "" {
		ring, err := ReadKeys(keys)
		if err != nil {
			return nil, fmt.Errorf("--payload-keys: %w", err)
		}
		opts.Keyring = ring
	}
	return pawl.Dial(withoutHTTP(addr), append([]pawl.DialOptions{opts}, more...)...)
}

// DialWithoutKeys is Dial for payloads that are sent as they are, encrypted or not.
func (a *App) DialWithoutKeys(more ...pawl.DialOptions) (*pawl.Client, error) {
	return a.dialTo(a.Server, "", more...)
}

// withoutHTTP removes http://, as in the address of a web page, from addresses. What is not encrypted needs no word for it.
func withoutHTTP(addresses string) string {
	all := strings.Split(addresses, ",")
	for i, addr := range all {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(addr), "http://"); ok {
			all[i] = strings.TrimSuffix(rest, "/")
		}
	}
	return strings.Join(all, ",")
}

// ReadRoots reads the CA certificates by which servers are verified.
func ReadRoots(path string) (*x509.CertPool, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(file) {
		return nil, errors.New("it contains no CA certificate in PEM format")
	}
	return roots, nil
}
