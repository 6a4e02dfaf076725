package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/node"
	"github.com/pawlq/pawl/internal/version"
)

// contentsView describes what a backup contains.
type contentsView struct {
	File    string              `json:"file"`
	Bytes   int64               `json:"bytes"`
	Cluster string              `json:"cluster_id"`
	Node    string              `json:"node"` // the node that wrote it
	Program string              `json:"program"`
	Level   int                 `json:"level"`
	Time    time.Time           `json:"time"`
	Shards  []restoredShardView `json:"shards"`
}

type restoredShardView struct {
	Shard uint32 `json:"shard"`
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
	Rows  uint64 `json:"rows"`
	Bytes int64  `json:"bytes"`
}

// restoreView is the output of "pawl restore".
type restoreView struct {
	Data    string       `json:"data"`
	Node    string       `json:"node"`
	Cluster string       `json:"cluster_id"`
	Backup  contentsView `json:"backup"`
	Lost    []uint32     `json:"lost_shards"`
}

func newRestore(a *app) *cobra.Command {
	var cfg node.RestoreConfig
	var check bool
	var keyFile string
	cmd := &cobra.Command{
		Use: "restore FILE --data DIR", Short: "Create a new cluster from a backup", Args: cobra.ExactArgs(1),
		Long: `Create a new cluster of one node from a backup, in an empty data directory.
The cluster has a new id: nodes of the old one can't join it with their data, and workers' claims
are invalid; their tasks run again when their leases end. The whole backup is verified before
anything is written. With --key-file, a backup that was not encrypted with this key is refused.

Everything that happened after the backup is undone: tasks that have ended since run again, and tasks
and idempotency keys accepted since are gone. Stop the old cluster first, or workers may do
everything twice.

Start the server on the directory without --join, then others with empty directories and its address
in --join. An interrupted restore can be repeated; until it is complete, no server starts there.`,
		Example: "  pawl restore --check /backup/pawl-2026-01-31\n  pawl restore /backup/pawl-2026-01-31 --data /var/lib/pawl --node n1",
	}
	cmd.Flags().StringVar(&cfg.Dir, "data", "./pawl-data", "data directory to create: absent or empty")
	cmd.Flags().StringVar(&cfg.Name, "node", node.DefaultName, "name of the node")
	cmd.Flags().BoolVar(&check, "check", false, "write nothing; verify the backup and show what it contains")
	keyFlag(cmd, &keyFile)
	cmd.RunE = a.Run(func(cmd *cobra.Command, args []string) (err error) {
		cfg.File = args[0]
		if cfg.Key, err = readBackupKey(keyFile); err != nil {
			return err
		}
		if !check {
			return a.restore(cmd.Context(), cfg)
		}
		if cmd.Flags().Changed("data") || cmd.Flags().Changed("node") {
			return cli.Usage("--check writes nothing: omit --data and --node")
		}
		return a.checkBackup(cmd.Context(), cfg.File, cfg.Key)
	})
	return cmd
}

func (a *app) checkBackup(ctx context.Context, file, key string) error {
	progress, done := a.readProgress()
	defer done()
	found, err := node.CheckBackup(ctx, file, key, progress)
	done()
	if err != nil {
		return err
	}
	v := contentsOf(file, found)
	return a.Print(v, func(w io.Writer) {
		fmt.Fprint(w, "the backup is sound:\n\n")
		writeContents(w, &v)
	})
}

func (a *app) restore(ctx context.Context, cfg node.RestoreConfig) error {
	progress, done := a.readProgress()
	defer done()
	cfg.Progress, cfg.Version = progress, version.Version
	res, err := node.Restore(ctx, cfg)
	done()
	if err != nil {
		return err
	}
	v := restoreView{Data: cfg.Dir, Node: res.Node, Cluster: res.Cluster, Backup: contentsOf(cfg.File, res.Backup),
		Lost: append([]uint32{}, res.Lost...)}
	return a.Print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s is the data directory of node %s of the new cluster %s, restored from:\n\n", v.Data, v.Node, v.Cluster)
		writeContents(w, &v.Backup)
		if len(v.Lost) > 0 {
			fmt.Fprintf(w, "\n%s: added while the backup was made, empty\n", shardNames(v.Lost))
		}
	})
}

// readProgress shows how much of a file has been read. done may be called more than once.
func (a *app) readProgress() (progress func(read, of int64), done func()) {
	var bar *text.ProgressBar
	progress = func(read, of int64) {
		if bar == nil {
			bar = a.Progress("MiB read", int(of>>20)+1)
		}
		bar.Set(int(read >> 20))
	}
	return progress, func() {
		if bar != nil {
			bar.Done()
		}
	}
}

func contentsOf(file string, b node.Backup) contentsView {
	v := contentsView{File: file, Bytes: b.Bytes, Cluster: b.Cluster, Node: b.Node, Program: b.Program, Level: b.Level, Time: b.Time,
		Shards: []restoredShardView{}}
	for _, p := range b.Parts {
		v.Shards = append(v.Shards, restoredShardView{p.Shard, p.Term, p.Index, p.Rows, p.Bytes})
	}
	return v
}

func writeContents(w io.Writer, v *contentsView) {
	text.Fields(w, "cluster", v.Cluster, "made", text.Clock(v.Time, time.Now()), "by node", v.Node+", pawl "+v.Program,
		"feature level", strconv.Itoa(v.Level), "size", humanize.Bytes(v.Bytes))
	fmt.Fprintln(w)
	var rows [][]string
	for _, s := range v.Shards {
		rows = append(rows, []string{strconv.FormatUint(uint64(s.Shard), 10), strconv.FormatUint(s.Term, 10),
			strconv.FormatUint(s.Index, 10), strconv.FormatUint(s.Rows, 10), humanize.Bytes(s.Bytes)})
	}
	text.Columns(w, "SHARD|TERM|ENTRY|ROWS|SIZE", rows)
}
