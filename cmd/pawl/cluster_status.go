package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
)

func newClusterStatus(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show nodes, shards and problems", Args: cli.NoArgs,
		Long: `Show the state of the nodes, where each shard's replicas are and which one leads, and any problems. Shard 0 is
the system shard, which keeps the list of nodes, shards and queues.

The node that the command calls asks all others, and the first line names it. HEALTH is "no answer" if a node does not
answer that one. It is "no report" if a node answers, but the leader of the system shard has not heard from it for 10 s.
Both say how long ago that leader last heard from the node.

If that node is cut off from the leader, it shows what it sees by itself, and the exit status is 1. Of several addresses
in --server, the command then asks the others.`,
		Example: "  pawl cluster status --watch\n  pawl cluster status -o json",
	}
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		info, err := a.Admin(client).Cluster().Status(ctx)
		if err != nil {
			return err
		}
		if err := a.PrintAnswer(func(w io.Writer) { writeCluster(w, info) }); err != nil || info.SeenBy == "" {
			return err
		}
		return cli.ErrSilent // the rest of the cluster is missing here
	})
	cmd.Aliases = nil // the status covers everything; it is not a list of one kind
	return cmd
}

func writeCluster(w io.Writer, info *admin.ClusterStatus) {
	s := info.Settings
	fmt.Fprintf(w, "%s, %s, replication %d, feature level %d, audit kept for %s; node %s answered\n\n",
		text.Count(int64(len(info.Nodes)), "node"), text.Count(int64(s.DataShards), "data shard"), s.Replication, s.FeatureLevel,
		text.Days(s.AuditRetention), info.Node)
	writeNodes(w, info.Nodes)
	fmt.Fprintln(w)
	writeShards(w, info)
	fmt.Fprintln(w)
	if len(info.Problems) == 0 {
		fmt.Fprintln(w, "no problems")
		return
	}
	fmt.Fprintln(w, "problems:")
	for _, p := range info.Problems {
		fmt.Fprintf(w, "  %s\n", text.Printable(p))
	}
}

func writeNodes(w io.Writer, nodes []admin.Node) {
	rows := make([][]string, len(nodes))
	for i, n := range nodes {
		state, offset := n.State, "-"
		if n.State == "draining" && len(n.Replicas) == 0 {
			state = drained
		}
		if n.Reported {
			offset = fmt.Sprintf("%+.1fms", n.ClockOffset.Seconds()*1000)
		}
		rows[i] = []string{n.Name, state, healthText(n), orDash(n.Version), orDash(n.APIAddress), orDash(n.PeerAddress),
			diskText(n), offset, humanize.Counted(n.Replicas), humanize.Counted(n.Leads)}
	}
	text.Columns(w, "NODE|STATE|HEALTH|VERSION|CLIENTS AT|NODES AT|DISK FREE|CLOCK|REPLICAS|LEADS", rows)
}

func healthText(n admin.Node) string {
	if n.Alive {
		return n.Health()
	}
	return n.Health() + " for " + text.Span(n.Silent)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// diskText returns the free space on a node's disk: "12.5GiB (31%)".
func diskText(n admin.Node) string {
	if n.DiskTotal <= 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%.0f%%)", humanize.Bytes(n.DiskFree), 100*float64(n.DiskFree)/float64(n.DiskTotal))
}

// shardNames names shards in a sentence.
func shardNames(shards []uint32) string {
	switch len(shards) {
	case 0:
		return "nothing"
	case 1:
		return "shard " + humanize.Ranges(shards)
	}
	return "shards " + humanize.Ranges(shards)
}

func writeShards(w io.Writer, info *admin.ClusterStatus) {
	rows := make([][]string, len(info.Shards))
	for i, s := range info.Shards {
		leader, term, applied := "-", "-", "-"
		if s.Leader != "" {
			leader, term, applied = s.Leader, strconv.FormatUint(s.Term, 10), strconv.FormatUint(s.Applied, 10)
		}
		if s.Preferred != "" && s.Preferred != s.Leader {
			leader += " (should be " + s.Preferred + ")"
		}
		members := make([]string, len(s.Members))
		for j, m := range s.Members {
			members[j] = memberText(m)
		}
		rows[i] = []string{strconv.FormatUint(uint64(s.Shard), 10), leader, term, applied, orDash(strings.Join(members, " ")),
			orDash(text.Short(s.LastStep, 60))}
	}
	text.Columns(w, "SHARD|LEADER|TERM|APPLIED|REPLICAS|LAST STEP", rows)
}

// memberText returns a replica: "n2", with anything notable in parentheses.
func memberText(m admin.Replica) string {
	var notes []string
	if !m.Voter {
		notes = append(notes, "learns")
	}
	if !m.Answers {
		notes = append(notes, "no answer")
	}
	if m.Leaving {
		notes = append(notes, "leaves")
	}
	if m.Snapshotting {
		notes = append(notes, "gets a snapshot")
	}
	if m.Lag > 0 {
		notes = append(notes, strconv.FormatUint(m.Lag, 10)+" behind")
	}
	if len(notes) == 0 {
		return m.Node
	}
	return m.Node + "(" + strings.Join(notes, ", ") + ")"
}
