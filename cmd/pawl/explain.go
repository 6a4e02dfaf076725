package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

func newTaskExplain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain ID", Short: "Explain why a task is not running", Args: cobra.ExactArgs(1),
		Long: `Explain why a task is not running, and what would change that: all reasons, the decisive one
first. For a running task it names the worker, and for a finished one the outcome.`,
		Example: "  pawl task explain 0199f3c2-…\n  pawl task explain 0199f3c2-… -o json",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		id, err := a.TaskID(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		e, err := a.Admin(client).Tasks().Explain(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) {
			text.Fields(w, "ID", e.TaskID, "State", string(e.State), "Queue", e.Queue, "Type", e.Type, "Key", e.Key)
			for _, r := range e.Reasons {
				fmt.Fprintf(w, "\n%s: %s\n  -> %s\n", r.Code, text.Printable(r.Detail), text.Printable(r.Change))
				writeRunners(w, r.Running)
			}
		})
	})
	return cmd
}

// writeRunners lists the tasks that use up a limit.
func writeRunners(w io.Writer, running []admin.TaskHolder) {
	if len(running) == 0 {
		return
	}
	now, rows := time.Now(), make([][]string, len(running))
	for i, t := range running {
		rows[i] = []string{"  " + t.TaskID, t.Worker, text.Ago(t.Since, now), text.Ago(t.Until, now)}
	}
	if !slices.ContainsFunc(running, func(t admin.TaskHolder) bool { return t.Worker != "" || !t.Since.IsZero() }) {
		for i := range rows {
			rows[i] = rows[i][:1]
		}
		text.Columns(w, "  FIRST", rows) // it is not running, and must before the others
		return
	}
	text.Columns(w, "  RUNNING|WORKER|SINCE|LEASE UNTIL", rows)
}

func newQueueExplain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain NAME", Short: "Explain what the ready tasks of a queue wait for", Args: cobra.ExactArgs(1),
		Long: `Explain what the ready tasks of a queue wait for: how many for each reason, which keys are held most,
and which types no worker takes. A task that waits for several reasons is counted under each.`,
		Example: "  pawl queue explain mail\n  pawl queue explain mail -o json",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		e, err := a.Admin(client).Queues().Explain(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		a.noteMissing(e.Missing)
		return partial(a.PrintAnswer(func(w io.Writer) { writeQueueExplanation(w, e) }), e.Missing)
	})
	return cmd
}

func writeQueueExplanation(w io.Writer, e *admin.QueueExplanation) {
	now := time.Now()
	partial := ""
	if e.Partial {
		partial = "yes: the numbers are those of what could be read"
	}
	text.Fields(w, "Queue", e.Queue, "Ready", strconv.FormatInt(e.Ready, 10), "Claimable", share(e.Claimable, e.Ready),
		"Running", strconv.FormatInt(e.Claimed, 10), "Not due yet", strconv.FormatInt(e.Waiting, 10), "Next due",
		text.Clock(e.NextDue, now), "Oldest ready", text.Clock(e.OldestReadyAt, now), "Partial", partial)
	for _, r := range e.Reasons {
		code := string(r.Code)
		if r.Shard != 0 {
			code += fmt.Sprintf(" in shard %d", r.Shard)
		}
		if r.Count > 0 {
			code += fmt.Sprintf(", %s", share(r.Count, e.Ready))
		}
		fmt.Fprintf(w, "\n%s: %s\n  -> %s\n", code, text.Printable(r.Detail), text.Printable(r.Change))
		writeRunners(w, r.Running)
	}
	if len(e.Keys) > 0 {
		fmt.Fprintln(w)
		rows := make([][]string, len(e.Keys))
		for i, k := range e.Keys {
			rows[i] = []string{k.Key, strconv.FormatInt(k.Tasks, 10), string(k.Code), text.Ago(k.Until, now)}
		}
		text.Columns(w, "KEY|HELD|BY|UNTIL", rows)
	}
	if len(e.UnservedTypes) > 0 {
		fmt.Fprintln(w)
		rows := make([][]string, len(e.UnservedTypes))
		for i, t := range e.UnservedTypes {
			rows[i] = []string{t.Type, strconv.FormatInt(t.Tasks, 10)}
		}
		text.Columns(w, "TYPE WITHOUT A WORKER|READY", rows)
	}
}

// share returns a number and its percentage of the whole.
func share(n, of int64) string {
	if of == 0 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d (%d %%)", n, 100*n/of)
}
