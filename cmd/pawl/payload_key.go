package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/keyring"
)

func newPayloadKey(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "payload-key ID", Short: "Print a new payload key", Args: cobra.ExactArgs(1),
		Long: `Print a new payload key, as a line for the file of --payload-keys: its id, which is public, and its
secret. The first key in the file encrypts, and all of them decrypt. To rotate keys, append the new key to the
files of all workers first, and move it to the top once all have it. Lines that begin with # are comments.

Programs use the same keys with DialOptions.Keyring. Without the key, one can only see that a payload is
encrypted, and with which key. Keep a copy: payloads encrypted with a lost key are lost.`,
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
