package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/pawlq/pawl/keyring"
	"github.com/spf13/cobra"
)

// maxKeyFile bounds a file with payload keys.
const maxKeyFile = 64 << 10

// keyBytes is how many random bytes a payload key has.
const keyBytes = 32

func newPayloadKey(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "payload-key ID", Short: "Print a new key that encrypts payloads", Args: cobra.ExactArgs(1),
		Long: `Print a new key that encrypts payloads, as a line of a file for --payload-keys: its id, which everybody may
see, and its secret. The first key of the file encrypts, all decrypt: add a new one at the end of the
files of all who run tasks, and move it to the top when all have it. Lines that begin with # are not read.

Programs use the same keys with DialOptions.Keyring. Who has none sees that a payload is encrypted, and with
which key. Keep a copy: what was encrypted with a key that is lost is lost.`,
		Example: `  (umask 077 && pawl payload-key 2026-11 > payload.keys)
  pawl enqueue mail.welcome '{"to":"a@b"}' --payload-keys payload.keys
  pawl work --type mail.welcome --exec ./send-mail.sh --payload-keys payload.keys`}
	cmd.RunE = a.does(func(_ *cobra.Command, args []string) error {
		var secret [keyBytes]byte
		_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
		key := keyring.Key{ID: args[0], Secret: secret[:]}
		if _, err := keyring.New(keyring.Config{Keys: []keyring.Key{key}}); err != nil {
			return fmt.Errorf("ID: %w", err)
		}
		_, err := fmt.Fprintln(a.out, key.ID, base64.StdEncoding.EncodeToString(key.Secret))
		return err
	})
	return cmd
}

// readKeys reads a file of payload keys that only its owner may read. Its errors repeat no secret.
func readKeys(path string) (*keyring.Keyring, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.Size() > maxKeyFile:
		return nil, fmt.Errorf("file %q: %d bytes, at most %d", path, info.Size(), maxKeyFile)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("file %q: others may read it (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cfg keyring.Config
	lines := bufio.NewScanner(bytes.NewReader(file))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, rest, _ := strings.Cut(line, " ")
		secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
		if err != nil || len(secret) != keyBytes {
			return nil, fmt.Errorf("file %q, line %d: want an id and %d bytes in base64, as pawl payload-key prints them", path, n, keyBytes)
		}
		cfg.Keys = append(cfg.Keys, keyring.Key{ID: id, Secret: secret})
	}
	ring, err := keyring.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	return ring, lines.Err()
}
