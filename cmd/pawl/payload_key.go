package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/keyring"
)

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
	cmd.RunE = a.Run(func(_ *cobra.Command, args []string) error {
		var secret [cli.KeyBytes]byte
		_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
		key := keyring.Key{ID: args[0], Secret: secret[:]}
		if _, err := keyring.New(keyring.Config{Keys: []keyring.Key{key}}); err != nil {
			return fmt.Errorf("ID: %w", err)
		}
		_, err := fmt.Fprintln(a.Out, key.ID, base64.StdEncoding.EncodeToString(key.Secret))
		return err
	})
	return cmd
}
