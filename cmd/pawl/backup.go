package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
)

// standardOutput is the FILE argument that stands for standard output.
const standardOutput = "-"

// backupView is the output of "pawl backup".
type backupView struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Shards int    `json:"shards"` // including the system shard
}

func newBackup(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Back up the cluster while it serves", Args: cobra.ExactArgs(1),
		Long: `Write all tasks, queues and settings of the cluster to FILE, or to standard output if it is "-".
The cluster keeps serving. The backup contains everything that was acknowledged before it started. FILE must not
exist; it appears once the backup is complete and on disk. It contains payloads, so only its owner can read it.

The backup does not include the archive of dead letters: copy archive/ from the data directory of each node.
'pawl restore' creates a new cluster from a backup, and 'pawl restore --check' verifies one.`,
		Example: "  pawl backup /backup/pawl-$(date +%F)\n  pawl backup - | zstd > pawl.backup.zst",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		v := backupView{File: args[0]}
		if v.File == standardOutput {
			if text.IsTerminal(a.Out) {
				return cli.Usage("a backup can't be written to a terminal: give a file, or pipe it to a program")
			}
			return a.backup(cmd.Context(), client, a.Out, &v)
		}
		if err := a.backupTo(cmd.Context(), client, &v); err != nil {
			return err
		}
		return a.Print(v, func(w io.Writer) {
			text.Fields(w, "file", v.File, "size", humanize.Bytes(v.Bytes), "shards", fmt.Sprint(v.Shards), "sha256", v.SHA256)
		})
	})
	return cmd
}

// backup writes a backup to w and its description to v.
func (a *app) backup(ctx context.Context, client *pawl.Client, w io.Writer, v *backupView) error {
	bar := a.Progress("shards backed up", 0)
	defer func() { bar.Done() }()
	info, err := a.Admin(client).Cluster().Backup(ctx, w, func(p admin.BackupProgress) {
		if v.Shards == 0 && p.Shards > 0 {
			v.Shards, bar = p.Shards, a.Progress("shards backed up", p.Shards)
		}
		bar.Tell(p.ShardsDone, humanize.Bytes(p.Bytes))
	})
	if err != nil {
		return err
	}
	v.Bytes, v.SHA256 = info.Bytes, info.SHA256
	return nil
}

// backupTo writes a backup to a temporary file next to the target, and renames it once it is complete and synced.
func (a *app) backupTo(ctx context.Context, client *pawl.Client, v *backupView) (err error) {
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
	err = a.backup(ctx, client, f, v)
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
