package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/node"
)

// recoveryView is the output of "pawl recover".
type recoveryView struct {
	Node    string               `json:"node"`
	Cluster string               `json:"cluster_id"`
	DryRun  bool                 `json:"dry_run"`
	Shards  []recoveredShardView `json:"shards"`
	Lost    []uint32             `json:"lost_shards"`
}

type recoveredShardView struct {
	Shard uint32 `json:"shard"`
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
}

func newRecover(a *app) *cobra.Command {
	var cfg node.RecoverConfig
	var yes bool
	cmd := &cobra.Command{
		Use: "recover --data DIR", Short: "Continue with one node after the majority is lost", Args: cli.NoArgs,
		Long: `Turn the data directory of a stopped node into a new cluster, for when so many nodes are lost that
no majority will come back. Data that only the lost nodes had is gone. Workers' claims become
invalid; their tasks run again when their leases end.

Stop all nodes first. Compare the survivors with --dry-run, and choose the one whose shards are most
up to date: the highest term, then the highest index. Start it as before, without --join; then start
the others with EMPTY data directories, so that they join it. From then on, the old data directories
of other nodes are refused. An interrupted recovery can be repeated; until it is complete, no server
starts there.`,
		Example: "  pawl recover --data /var/lib/pawl --dry-run\n  pawl recover --data /var/lib/pawl",
	}
	cmd.Flags().StringVar(&cfg.Dir, "data", "./pawl-data", "data directory of a stopped node")
	cmd.Flags().BoolVar(&cfg.DryRun, "dry-run", false, "write nothing; show how up to date the shards are")
	cmd.Flags().BoolVar(&cfg.AbandonShards, "abandon-shards", false, "recreate, empty, the shards of which this node has no replica")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask for confirmation")
	cmd.RunE = a.Run(func(cmd *cobra.Command, _ []string) error {
		if !cfg.DryRun {
			what := fmt.Sprintf("%s becomes a cluster of its own, and no other node of the old one can join it with its data", cfg.Dir)
			if !yes {
				if err := a.Ask(cmd.Context(), what, "add --yes, or --dry-run to see how up to date its shards are"); err != nil {
					return err
				}
			}
		}
		rec, err := node.Recover(cfg)
		if err != nil {
			return err
		}
		v := recoveryOf(rec, cfg.DryRun)
		return a.Print(v, func(w io.Writer) { writeRecovery(w, &v) })
	})
	return cmd
}

func recoveryOf(rec node.Recovery, dryRun bool) recoveryView {
	v := recoveryView{Node: rec.Node, Cluster: rec.Cluster, DryRun: dryRun, Shards: []recoveredShardView{},
		Lost: append([]uint32{}, rec.Lost...)}
	for _, s := range rec.Shards {
		v.Shards = append(v.Shards, recoveredShardView{s.Shard, s.Term, s.Index})
	}
	return v
}

func writeRecovery(w io.Writer, v *recoveryView) {
	if v.DryRun {
		fmt.Fprintf(w, "node %s has, including its logs:\n\n", v.Node)
	} else {
		fmt.Fprintf(w, "node %s is now cluster %s, with:\n\n", v.Node, v.Cluster)
	}
	var rows [][]string
	for _, s := range v.Shards {
		rows = append(rows, []string{strconv.FormatUint(uint64(s.Shard), 10), strconv.FormatUint(s.Term, 10),
			strconv.FormatUint(s.Index, 10)})
	}
	text.Columns(w, "SHARD|TERM|INDEX", rows)
	switch {
	case len(v.Lost) == 0:
	case !v.DryRun:
		fmt.Fprintf(w, "\n%s: starting over empty, since there was no replica\n", shardNames(v.Lost))
	default:
		fmt.Fprintf(w, "\nit has no state of the shards %d: recover from a node that has one, or recreate them empty with "+
			"--abandon-shards\n",
			v.Lost)
	}
}
