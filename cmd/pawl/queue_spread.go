package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
)

func newQueueSpread(a *app) *cobra.Command {
	var onto admin.SpreadOptions
	cmd := &cobra.Command{
		Use: "spread QUEUE", Short: "Spread a queue over several shards, or move it", Args: cobra.ExactArgs(1),
		Long: `Spread a queue over several shards, or move it to others. Use this for a queue that needs more than one shard can
handle: it is divided by its tasks' keys into 64 slots, the same number for each shard. When the command returns, new
tasks go to their new shards; waiting tasks stay where they are until they have run.

A spread queue keeps what its tasks' keys promise: the order and the limits of a key, one task for each unique key at a
time, and one for each idempotency key and request. For that, all keys of a task must be in one slot: Pawl refuses a task
whose key, unique key and idempotency key are not equal and do not contain the same text in braces, such as {order-7}.
If the queue has such tasks, the command is refused, unless you add --force. It does not look at schedules: ticks whose
tasks have such keys are skipped. Order, priorities and weights apply to each part. The limits max_running and max_length
are exact for the whole queue. "pawl cluster add-shards" adds shards.

With --own these shards hold no other queues, and get no new ones, until the queue is spread without --own.`,
		Example: "  pawl queue spread events --parts 4 --dry-run\n  pawl queue spread events --parts 4\n" +
			"  pawl queue spread events --shards 5,6 --own --reason 'it slows down other queues'",
	}
	cli.PositiveVar(cmd.Flags(), &onto.Parts, "parts", 0,
		"`number` of shards: preferably those that have the queue, then those with the fewest slots of other queues")
	cmd.Flags().IntSliceVar(&onto.Shards, "shards", nil, "shard numbers, separated by commas")
	a.addReason(cmd.Flags())
	cmd.Flags().BoolVar(&onto.Exclusive, "own", false, "reserve these shards for the queue")
	cmd.Flags().BoolVar(&onto.DryRun, "dry-run", false, "change nothing, but check and show what would change")
	cmd.Flags().BoolVar(&onto.Force, "force", false, "spread the queue even if it has tasks whose keys are in different slots; new tasks "+
		"like them will be refused")
	cmd.MarkFlagsMutuallyExclusive("parts", "shards")
	cmd.MarkFlagsOneRequired("parts", "shards")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		q, err := a.Admin(client).Queues().Spread(cmd.Context(), args[0], onto)
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) {
			if writeParts(w, q); onto.DryRun {
				fmt.Fprintln(w, "nothing was changed")
			}
		})
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

// partsText lists the shards over which a queue is spread.
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
