package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
)

func newQueueSpread(a *app) *cobra.Command {
	var parts int
	var shards []int
	var reason string
	cmd := &cobra.Command{
		Use: "spread QUEUE", Short: "Share a queue out over several shards, or move it", Args: cobra.ExactArgs(1),
		Long: `Share a queue out over several shards, or move it to others. One shard can carry only so much; a queue that needs
more is shared out by the keys of its tasks: 64 slots, the same number to each shard. New tasks go to their new shards
when this returns; those that are there stay where they are, and drain.

A queue in several parts keeps its promises within a slot: tasks of one key, repeats of one idempotency key or request.
Order, priorities, weights and the maximum length are those of each part. "pawl cluster add-shards" makes more shards.`,
		Example: "  pawl queue spread events --parts 4\n  pawl queue spread events --shards 5,6 --reason 'it slows down the others'",
	}
	cmd.Flags().IntVar(&parts, "parts", 0, "`number` of shards: those that have the queue first, then those with the fewest slots of others")
	cmd.Flags().IntSliceVar(&shards, "shards", nil, "numbers of the shards, with commas")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.MarkFlagsMutuallyExclusive("parts", "shards")
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		var q *pawl.QueueInfo
		var err error
		switch {
		case cmd.Flags().Changed("parts"):
			q, err = client.Admin().SpreadQueue(cmd.Context(), args[0], parts, reason)
		case len(shards) > 0:
			q, err = client.Admin().MoveQueue(cmd.Context(), args[0], shards, reason)
		default:
			err = errors.New("give --parts or --shards")
		}
		if err != nil {
			return err
		}
		return a.print(viewQueue(q), func(w io.Writer) { writeParts(w, q) })
	})
	return cmd
}

func writeParts(w io.Writer, q *pawl.QueueInfo) {
	rows := make([][]string, len(q.Parts))
	for i, p := range q.Parts {
		note := ""
		switch {
		case p.Moving:
			note = "slots are moving"
		case p.Slots == 0:
			note = "drains"
		}
		d := p.Depth
		rows[i] = []string{fmt.Sprint(p.Shard), fmt.Sprint(p.Slots), fmt.Sprint(d.Ready), fmt.Sprint(d.Scheduled), fmt.Sprint(d.Retrying),
			fmt.Sprint(d.Claimed), fmt.Sprint(d.Dead + d.Poisoned), note}
	}
	columns(w, "SHARD|SLOTS|READY|SCHEDULED|RETRYING|CLAIMED|DEAD|NOTE", rows)
}

// partsText lists the shards of a queue that was shared out.
func partsText(q *pawl.QueueInfo) string {
	if len(q.Parts) < 2 {
		return ""
	}
	texts := make([]string, len(q.Parts))
	for i, p := range q.Parts {
		texts[i] = fmt.Sprintf("%d (%d slots)", p.Shard, p.Slots)
	}
	return strings.Join(texts, ", ")
}
