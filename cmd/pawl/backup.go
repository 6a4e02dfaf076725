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

// standardOutput is the FILE that is none.
const standardOutput = "-"

// backupView is what a backup tells.
type backupView struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Shards int    `json:"shards"` // with the system shard
}

func newBackup(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Back up the cluster while it serves", Args: cobra.ExactArgs(1),
		Long: `Write all tasks, queues and settings of the cluster to FILE, or to standard output if it is "-".
The cluster goes on serving. Everything that was answered before is in the backup. FILE must not exist; it
appears when the backup is complete and on disk. It holds payloads, so only its owner may read it.

The archive of dead letters is not in it: copy archive/ from the data directory of each node.
'pawl restore' creates a new cluster from it, and 'pawl restore --check' tells whether it is sound.`,
		Example: "  pawl backup /backup/pawl-$(date +%F)\n  pawl backup - | zstd > pawl.backup.zst",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		v := backupView{File: args[0]}
		if v.File == standardOutput {
			if text.IsTerminal(a.Out) {
				return cli.Usage("a backup is not for a terminal: name a file, or send it to a program")
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

// backup writes a backup to w, and what it is to v.
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

// backupTo writes a backup to a file beside that of its name, which gets the name when it is whole and on disk.
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

// mustNotExist keeps a backup from taking the place of another, or of anything.
func mustNotExist(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists: give another name", file)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
