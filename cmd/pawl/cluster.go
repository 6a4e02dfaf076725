package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func newCluster(a *app) *cobra.Command {
	return cli.Group("cluster", "Manage nodes and shards",
		`Manage the nodes of a cluster and the shards that they hold. Replicas and leaders move one step at a
time: a command that moves them returns once the move is decided, and "pawl cluster status" shows its
progress. Irreversible commands ask for confirmation.`,
		newClusterStatus(a), newClusterAdd(a), newClusterDrain(a), newClusterRemove(a), newClusterMove(a), newClusterTransfer(a),
		newClusterAddShards(a), newClusterReplication(a), newClusterAuditRetention(a), newClusterRaiseLevel(a))
}

// yesFlag adds --yes, which every irreversible command has.
func yesFlag(flags *pflag.FlagSet) *bool {
	return flags.BoolP("yes", "y", false, "don't ask for confirmation")
}

// confirmIrreversible asks for confirmation of an irreversible command.
func (a *app) confirmIrreversible(ctx context.Context, yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	return a.Ask(ctx, fmt.Sprintf(format, args...), "add --yes")
}

func newClusterDrain(a *app) *cobra.Command {
	var undo, wait bool
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Move replicas and leaders off a node", Args: cobra.ExactArgs(1),
		Long: `Move replicas and leaders off a node, as far as other nodes can take them, and give it no new ones.
The node keeps serving clients. With --undo it takes replicas again; those already moved don't come back
automatically.`,
		Example: "  pawl cluster drain n2 --wait\n  pawl cluster drain n2 --undo",
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the node take replicas again")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node holds no replicas")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx, operator := cmd.Context(), a.Admin(client)
		shown := nodeState{Node: args[0], State: "draining"}
		switch {
		case undo && wait:
			return cli.Usage("--wait and --undo exclude each other")
		case undo:
			shown.State = "active"
			if err := operator.Cluster().UndrainNode(ctx, args[0]); err != nil {
				return err
			}
		default:
			if err := operator.Cluster().DrainNode(ctx, args[0]); err != nil {
				return err
			}
		}
		if wait {
			if err := a.waitDrained(ctx, operator, args[0]); err != nil {
				return err
			}
			shown.State = drained
		}
		return a.printNodeState(shown)
	})
	return cmd
}

// drained is the state of a draining node that holds no replicas any more.
const drained = "drained"

// nodeState is a node's state in one word.
type nodeState struct {
	Node  string `json:"node"`
	State string `json:"state"`
}

func (a *app) printNodeState(v nodeState) error {
	return a.Print(v, func(w io.Writer) { fmt.Fprintf(w, "node %q is %s\n", v.Node, v.State) })
}

const (
	// drainEvery is the polling interval of --wait.
	drainEvery = time.Second
	// drainAnswerTimeout is how long --wait goes without an answer: the replica being moved may be the leader of the system shard.
	drainAnswerTimeout = 30 * time.Second
	// stuckAfter is how long --wait sees no change before it prints the reason.
	stuckAfter = 10 * time.Second
)

// waitDrained waits until a node holds no replicas, and shows how many it still holds.
func (a *app) waitDrained(ctx context.Context, operator admin.Client, node string) error {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	answered, total := time.Now(), 0
	var held []uint32
	bar := a.Progress("moved off", 0)
	defer func() { bar.Done() }()
	var stuck stuckText
	for {
		info, err := operator.Cluster().Status(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("stopped waiting: node %q still holds %s", node, shardNames(held))
		case err != nil && (!errors.Is(err, pawltype.ErrUnavailable) || time.Since(answered) > drainAnswerTimeout):
			return err
		case err == nil:
			answered, held = time.Now(), heldBy(info, node)
			if len(held) == 0 {
				return nil
			}
			if total < len(held) {
				bar.Done()
				total = len(held)
				bar = a.Progress("moved off", total)
			}
			if text := stuck.look(waitedFor(info, held), answered); text != "" {
				bar.Done()
				fmt.Fprintln(a.Err, text)
				bar = a.Progress("moved off", total)
			}
			bar.Set(total - len(held))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// heldBy returns the shards of which a node holds a replica. A removed node holds none.
func heldBy(info *admin.ClusterStatus, node string) []uint32 {
	for _, n := range info.Nodes {
		if n.Name == node {
			return n.Replicas
		}
	}
	return nil
}

// waitedFor returns the problems that keep shards from moving.
func waitedFor(info *admin.ClusterStatus, shards []uint32) string {
	var of []admin.ShardStatus
	for _, s := range info.Shards {
		if slices.Contains(shards, s.Shard) {
			of = append(of, s)
		}
	}
	lines := shardProblems(of)
	for i := range lines {
		lines[i] = text.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// shardProblems returns one line for each problem, with the shards that have it.
func shardProblems(shards []admin.ShardStatus) (lines []string) {
	var texts []string // in the order in which shards first have them
	having := map[string][]uint32{}
	for _, s := range shards {
		text := s.Problem
		if s.Leader == "" {
			text = strings.TrimSuffix("no leader answers: "+s.Problem, ": ")
		}
		if text == "" {
			continue
		}
		if having[text] == nil {
			texts = append(texts, text)
		}
		having[text] = append(having[text], s.Shard)
	}
	for _, text := range texts {
		lines = append(lines, shardNames(having[text])+": "+text)
	}
	return lines
}

// stuckText returns a text that hasn't changed for stuckAfter, once.
type stuckText struct {
	text     string
	since    time.Time
	reported bool
}

func (s *stuckText) look(text string, now time.Time) string {
	if text != s.text {
		s.text, s.since, s.reported = text, now, false
	}
	if s.reported || now.Sub(s.since) < stuckAfter {
		return ""
	}
	s.reported = true
	return text
}

func newClusterRemove(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "remove NODE", Short: "Remove a node permanently", Args: cobra.ExactArgs(1),
		Long: `Remove a node permanently. To come back it must join again with an empty data directory. A node that
still holds replicas can't be removed: drain it first. With --force its replicas are dropped, provided
that every shard can continue without them; use that for a dead node.`,
		Example: "  pawl cluster drain n2 --wait && pawl cluster remove n2\n  pawl cluster remove n2 --force --yes",
	}
	yes := yesFlag(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "even if it holds replicas")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx, operator := cmd.Context(), a.Admin(client)
		if !*yes {
			info, err := operator.Cluster().Status(ctx)
			if err != nil {
				return err
			}
			holds := ""
			if held := heldBy(info, args[0]); len(held) > 0 {
				holds = ", and holds replicas of " + shardNames(held)
			}
			if err := a.confirmIrreversible(ctx, false, "node %q will be removed permanently%s", args[0], holds); err != nil {
				return err
			}
		}
		if err := operator.Cluster().RemoveNode(ctx, args[0], force); err != nil {
			return err
		}
		return a.printNodeState(nodeState{Node: args[0], State: "removed"})
	})
	return cmd
}

// shardArg parses a shard number.
func shardArg(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, cli.Usage("SHARD %q is not the number of a shard", s)
	}
	return uint32(n), nil
}

// numberArg parses a whole number.
func numberArg(name, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, cli.Usage("%s %q is not a whole number", name, s)
	}
	return n, nil
}

func newClusterMove(a *app) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use: "move SHARD --from NODE --to NODE", Short: "Move a replica of a shard to another node", Args: cobra.ExactArgs(1),
		Long:    "Add a replica of a shard on one node, and remove the one on another node once the new one can vote.",
		Example: "  pawl cluster move 3 --from n1 --to n4",
	}
	cmd.Flags().StringVar(&from, "from", "", "node that gives up the replica")
	cmd.Flags().StringVar(&to, "to", "", "node that gets the replica")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		shard, err := shardArg(args[0])
		if err != nil {
			return err
		}
		if from == "" || to == "" {
			return cli.Usage("--from and --to are required")
		}
		if err := a.Admin(client).Cluster().MoveReplica(cmd.Context(), shard, from, to); err != nil {
			return err
		}
		shown := struct {
			Shard uint32 `json:"shard"`
			From  string `json:"from"`
			To    string `json:"to"`
		}{shard, from, to}
		return a.Print(shown, func(w io.Writer) {
			fmt.Fprintf(w, "%s moves from node %q to %q\n", shardNames([]uint32{shard}), from, to)
		})
	})
	return cmd
}

func newClusterTransfer(a *app) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "transfer SHARD [--to NODE]", Short: "Choose the node that leads a shard", Args: cobra.ExactArgs(1),
		Long:    "Set the preferred leader of a shard. Without --to there is none, and leaders are balanced across nodes.",
		Example: "  pawl cluster transfer 3 --to n2\n  pawl cluster transfer 3",
	}
	cmd.Flags().StringVar(&to, "to", "", "preferred leader; without it, any node")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		shard, err := shardArg(args[0])
		if err != nil {
			return err
		}
		if err := a.Admin(client).Cluster().TransferLeader(cmd.Context(), shard, to); err != nil {
			return err
		}
		shown := struct {
			Shard     uint32 `json:"shard"`
			Preferred string `json:"preferred,omitempty"`
		}{shard, to}
		return a.Print(shown, func(w io.Writer) {
			who := "any node"
			if to != "" {
				who = strconv.Quote(to)
			}
			fmt.Fprintf(w, "%s should be led by %s\n", shardNames([]uint32{shard}), who)
		})
	})
	return cmd
}

func newClusterAddShards(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "add-shards TOTAL", Short: "Add data shards", Args: cobra.ExactArgs(1),
		Long: `Add data shards until there are TOTAL, at most 64. Their number can't be reduced. Queues stay where they are;
new ones go to the shards with the fewest queues.`,
		Example: "  pawl cluster add-shards 8",
	}
	yes := yesFlag(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx, operator := cmd.Context(), a.Admin(client)
		total, err := numberArg("TOTAL", args[0])
		if err != nil {
			return err
		}
		info, err := operator.Cluster().Status(ctx)
		if err != nil {
			return err
		}
		if have := info.Settings.DataShards; total > have {
			what := text.Count(int64(total), "data shard")
			if err := a.confirmIrreversible(ctx, *yes, "there will be %s instead of %d, and the number can't be reduced", what,
				have); err != nil {
				return err
			}
		}
		if err := operator.Cluster().AddShards(ctx, total); err != nil {
			return err
		}
		shown := struct {
			DataShards int `json:"data_shards"`
		}{total}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "%s\n", text.Count(int64(total), "data shard")) })
	})
	return cmd
}

func newClusterReplication(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replication N", Short: "Set the number of replicas of each shard", Args: cobra.ExactArgs(1),
		Long: "Set how many replicas each shard should have: 1, 3, 5 or 7. With fewer nodes, there are as many as the nodes can hold.\n" +
			"A lower number deletes replicas, and asks for confirmation.",
		Example: "  pawl cluster replication 5",
	}
	yes := yesFlag(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		n, err := numberArg("N", args[0])
		if err != nil {
			return err
		}
		info, err := a.Admin(client).Cluster().Status(cmd.Context())
		if err != nil {
			return err
		}
		if has := info.Settings.Replication; n < has {
			if err := a.confirmIrreversible(cmd.Context(), *yes, "each shard will have %s instead of %d, and the others are deleted",
				text.Count(int64(n), "replica"), has); err != nil {
				return err
			}
		}
		if err := a.Admin(client).Cluster().SetReplication(cmd.Context(), n); err != nil {
			return err
		}
		shown := struct {
			Replication int `json:"replication"`
		}{n}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "each shard should have %s\n", text.Count(int64(n), "replica")) })
	})
	return cmd
}

// leastAudit is the server's minimum. A shorter time is refused there, so there is no need to ask first.
const leastAudit = 24 * time.Hour

func newClusterAuditRetention(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit-retention PERIOD", Short: "Set how long audit entries are kept", Args: cobra.ExactArgs(1),
		Long: `Set how long audit entries are kept, from 1 day to 10 years; the default is 90 days. The change takes effect within
a day, and is itself an audit entry. A shorter time removes older entries for good.`,
		Example: "  pawl cluster audit-retention 365d",
	}
	yes := yesFlag(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		d, err := humanize.Duration(args[0])
		if err != nil {
			return cli.Usage("PERIOD %v", err)
		}
		info, err := a.Admin(client).Cluster().Status(cmd.Context())
		if err != nil {
			return err
		}
		if was := info.Settings.AuditRetention; d < was && d >= leastAudit {
			if err := a.confirmIrreversible(cmd.Context(), *yes, "audit entries older than %s will be removed; so far they are kept for %s",
				text.Days(d), text.Days(was)); err != nil {
				return err
			}
		}
		if err := a.Admin(client).Cluster().SetAuditRetention(cmd.Context(), d); err != nil {
			return err
		}
		shown := struct {
			AuditRetention string `json:"audit_retention"`
		}{text.Period(d)}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "audit entries are kept for %s\n", text.Days(d)) })
	})
	return cmd
}

func newClusterRaiseLevel(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "raise-level", Short: "Enable the features that all nodes support", Args: cli.NoArgs,
		Long: `Raise the feature level to the highest that all nodes support. Do this once all of them run the new
version. It can't be undone: nodes of an older version can no longer join.`,
		Example: "  pawl cluster raise-level",
	}
	yes := yesFlag(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, _ []string) error {
		ctx, operator := cmd.Context(), a.Admin(client)
		if !*yes {
			info, err := operator.Cluster().Status(ctx)
			if err != nil {
				return err
			}
			if err := a.confirmIrreversible(ctx, false,
				"the feature level, now %d, will be raised to the highest that %s support, and can't be "+
					"lowered again",
				info.Settings.FeatureLevel, text.Count(int64(len(info.Nodes)), "node")); err != nil {
				return err
			}
		}
		level, err := operator.Cluster().RaiseFeatureLevel(ctx)
		if err != nil {
			return err
		}
		shown := struct {
			Level int `json:"level"`
		}{level}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "the feature level is %d\n", level) })
	})
	return cmd
}
