package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
)

func newQueueSpread(a *app) *cobra.Command {
	var onto admin.SpreadOptions
	var reason string
	cmd := &cobra.Command{
		Use: "spread QUEUE", Short: "Share a queue out over several shards, or move it", Args: cobra.ExactArgs(1),
		Long: `Share a queue out over several shards, or move it to others. One shard can carry only so much; a queue that needs
more is shared out by the keys of its tasks: 64 slots, the same number to each shard. New tasks go to their new shards
when this returns; those that are there stay where they are, and drain.

A queue in several parts keeps its promises within a slot: tasks of one key, repeats of one idempotency key or request.
Order, priorities, weights and the maximum length are those of each part. "pawl cluster add-shards" makes more shards.

With --own no other queue may be in these shards, and none that is new goes there, until the queue is spread without it.`,
		Example: "  pawl queue spread events --parts 4\n  pawl queue spread events --shards 5,6 --own --reason 'it slows down the others'",
	}
	cli.PositiveVar(cmd.Flags(), &onto.Parts, "parts", 0, "`number` of shards: those that have the queue first, then those with the fewest slots of others")
	cmd.Flags().IntSliceVar(&onto.Shards, "shards", nil, "numbers of the shards, with commas")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVar(&onto.Exclusive, "own", false, "keep all other queues out of these shards")
	cmd.MarkFlagsMutuallyExclusive("parts", "shards")
	cmd.MarkFlagsOneRequired("parts", "shards")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		q, err := a.Admin(client).Queues().Spread(cmd.Context(), args[0], onto, reason)
		if err != nil {
			return err
		}
		return a.Print(view.NewQueue(q), func(w io.Writer) { writeParts(w, q) })
	})
	return cmd
}

func writeParts(w io.Writer, q *admin.Queue) {
	rows := make([][]string, len(q.Parts))
	for i, p := range q.Parts {
		note := ""
		switch {
		case p.Moving:
			note = "slots are moving"
		case p.Slots == 0:
			note = "drains"
		case p.Exclusive:
			note = "its own"
		}
		d := p.Depth
		rows[i] = []string{fmt.Sprint(p.Shard), fmt.Sprint(p.Slots), fmt.Sprint(d.Ready), fmt.Sprint(d.Scheduled), fmt.Sprint(d.Retrying),
			fmt.Sprint(d.Claimed), fmt.Sprint(d.Dead + d.Poisoned), note}
	}
	text.Columns(w, "SHARD|SLOTS|READY|SCHEDULED|RETRYING|CLAIMED|DEAD|NOTE", rows)
}

// partsText lists the shards of a queue that was shared out.
func partsText(q *admin.Queue) string {
	if len(q.Parts) < 2 {
		return ""
	}
	texts := make([]string, len(q.Parts))
	for i, p := range q.Parts {
		texts[i] = fmt.Sprintf("%d (%d slots)", p.Shard, p.Slots)
	}
	return strings.Join(texts, ", ")
}
