package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/backup"
	"github.com/pawlq/pawl/internal/humanize"
)

// standardOutput is the FILE argument that stands for standard output.
const standardOutput = "-"

// maxBackupKeyFile bounds the file of --key-file in bytes: a key has at most 1,024 characters.
const maxBackupKeyFile = 2 << 10

// backupView is the output of "pawl backup".
type backupView struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Shards int    `json:"shards"` // including the system shard
}

func newBackup(a *app) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Back up the cluster while it serves", Args: cobra.ExactArgs(1),
		Long: `Write all tasks, queues and settings of the cluster to FILE, or to standard output if it is "-".
The cluster keeps serving. The backup contains everything that was acknowledged before it started. FILE must not
exist; it appears once the backup is complete and on disk. It contains payloads, so only its owner can read it.

With --key-file, this command encrypts the backup in the format of age with a passphrase: the server never sees the
key. The file holds a key of at least 32 random characters. Without the key, nobody can read the backup, change it, or
make another one that 'pawl restore --key-file' accepts. Keep a copy of the key: without it the backup is lost.

The backup does not include the archive of dead letters: copy archive/ from the data directory of each node.
'pawl restore' creates a new cluster from a backup, and 'pawl restore --check' verifies one.`,
		Example: "  pawl backup /backup/pawl-$(date +%F)\n  pawl backup - | zstd > pawl.backup.zst\n" +
			"  (umask 077 && head -c 32 /dev/urandom | base64 > backup.key)\n  pawl backup /backup/pawl-$(date +%F) --key-file backup.key",
	}
	keyFlag(cmd, &keyFile)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		v := backupView{File: args[0]}
		key, err := readBackupKey(keyFile)
		if err != nil {
			return err
		}
		if v.File == standardOutput {
			if text.IsTerminal(a.Out) {
				return cli.Usage("a backup can't be written to a terminal: give a file, or pipe it to a program")
			}
			return a.backup(cmd.Context(), client, a.Out, key, &v)
		}
		if err := a.backupTo(cmd.Context(), client, key, &v); err != nil {
			return err
		}
		return a.Print(v, func(w io.Writer) {
			text.Fields(w, "file", v.File, "size", humanize.Bytes(v.Bytes), "shards", fmt.Sprint(v.Shards), "sha256", v.SHA256)
		})
	})
	return cmd
}

// keyFlag declares the flag that names the file with the key of a backup.
func keyFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "key-file", "", "file with the key of an encrypted backup, readable by its owner only")
}

// readBackupKey returns the key in a file, or "" if no file is named. Its errors reveal no secret.
func readBackupKey(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	key, err := cli.ReadSecret(file, maxBackupKeyFile)
	if err == nil {
		key = strings.TrimSpace(key)
		err = backup.CheckKey(key)
	}
	if err != nil {
		return "", fmt.Errorf("--key-file %q: %w", file, err)
	}
	return key, nil
}

// backup writes a backup to out, encrypted if there is a key, and its description to v.
func (a *app) backup(ctx context.Context, client *pawl.Client, out io.Writer, key string, v *backupView) error {
	sum := sumWriter{w: out, sum: sha256.New()}
	var w io.WriteCloser = &sum
	if key != "" {
		encrypted, err := backup.Encrypt(&sum, key)
		if err != nil {
			return err
		}
		w = encrypted
	}
	bar := a.Progress("shards backed up", 0)
	defer func() { bar.Done() }()
	_, err := a.Admin(client).Cluster().Backup(ctx, w, func(p admin.BackupProgress) {
		if v.Shards == 0 && p.Shards > 0 {
			v.Shards, bar = p.Shards, a.Progress("shards backed up", p.Shards)
		}
		bar.Tell(p.ShardsDone, humanize.Bytes(p.Bytes))
	})
	if err == nil {
		err = w.Close()
	}
	v.Bytes, v.SHA256 = sum.bytes, hex.EncodeToString(sum.sum.Sum(nil))
	return err
}

// sumWriter counts and hashes what it writes.
type sumWriter struct {
	w     io.Writer
	sum   hash.Hash
	bytes int64
}

// Write implements io.Writer.
func (s *sumWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	_, _ = s.sum.Write(p[:n])
	s.bytes += int64(n)
	return n, err
}

// Close implements io.Closer. It does not close the file.
func (s *sumWriter) Close() error { return nil }

// backupTo writes a backup to a temporary file next to the target, and renames it once it is complete and synced.
func (a *app) backupTo(ctx context.Context, client *pawl.Client, key string, v *backupView) (err error) {
	if err := mustNotExist(v.File); err != nil {
		return err
	}
	dir, name := filepath.Split(v.File)
	f, err := os.CreateTemp(filepath.Clean(dir), "."+name+".unfinished-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = a.backup(ctx, client, f, key, v)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := mustNotExist(v.File); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), v.File); err != nil {
		return err
	}
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// mustNotExist fails if the file exists, so that a backup overwrites nothing.
func mustNotExist(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists: choose another name", file)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
