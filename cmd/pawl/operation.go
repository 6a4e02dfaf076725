package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/pawltype"
)

func newOperation(a *app) *cobra.Command {
	return cli.Group("operation", "List and control operations on many tasks",
		`An operation applies one action to many tasks in the background. "pawl dlq replay", "pawl task cancel"
and others start one when given a filter. Operations survive the failure of a server.`,
		newOperationLs(a), newOperationShow(a), newOperationWait(a),
		newOperationSteer(a, "pause", "Pause an operation", admin.Operations.Pause),
		newOperationSteer(a, "resume", "Resume a paused operation", admin.Operations.Resume),
		newOperationSteer(a, "abort", "Abort an operation; tasks already changed stay changed", admin.Operations.Abort))
}

func newOperationLs(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List operations, newest first", Args: cli.NoArgs,
		Example: "  pawl operation ls\n  pawl operation ls --watch",
	}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Operation], error) {
			return a.Admin(client).Operations().ListPage(ctx, p)
		}, writeOperations)
	})
	return cmd
}

func writeOperations(w io.Writer, all []*admin.Operation) {
	now := time.Now()
	rows := make([][]string, len(all))
	for i, o := range all {
		rows[i] = []string{o.ID, string(o.Action), operationState(o), far(o), view.ActorOf(o.Author), text.Ago(o.CreatedAt, now),
			text.Short(o.Reason, 40)}
	}
	text.Columns(w, "ID|ACTION|STATE|DONE|BY|STARTED|REASON", rows)
}

func newOperationShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show an operation", Args: cobra.ExactArgs(1), Example: "  pawl operation show 0199f3c2-…"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		o, err := a.Admin(client).Operations().GetWithStates(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printOperation(o)
	})
	return cmd
}

func newOperationWait(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait until an operation has ended or is paused", Args: cobra.ExactArgs(1),
		Long: "Wait until an operation has ended or is paused, and show its progress. The exit status is 0 if it is done for all tasks " +
			"that it met.",
		Example: "  pawl operation wait 0199f3c2-…"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		o, err := a.Admin(client).Operations().Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if o, err = a.follow(cmd.Context(), client, o, "done"); err != nil {
			return err
		}
		return errors.Join(a.printOutcome(o, "done"), incomplete(o, "done"))
	})
	return cmd
}

func newOperationSteer(a *app, verb, what string,
	do func(admin.Operations, context.Context, string) (*admin.Operation, error)) *cobra.Command {
	cmd := &cobra.Command{Use: verb + " ID...", Short: what, Args: cobra.MinimumNArgs(1),
		Example: "  pawl operation " + verb + " 0199f3c2-… --reason 'too many at once'"}
	a.addReason(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		var refused []error
		for _, id := range args {
			o, err := do(a.Admin(client).Operations(), cmd.Context(), id)
			if err == nil {
				err = a.printOperation(o)
			}
			refused = append(refused, err)
		}
		return errors.Join(refused...)
	})
	return cmd
}

func (a *app) printOperation(o *admin.Operation) error {
	return a.PrintAnswer(func(w io.Writer) {
		now := time.Now()
		text.Fields(w, "ID", o.ID, "Action", what(o), "Filter", o.Filter.String(), "State", operationState(o), "Why", o.StopReason,
			"Stopped by", view.ActorOf(o.StoppedBy), "Progress", far(o), "Waits for", o.WaitsFor, "Rate", view.RateWords(o.Rate),
			"Started", text.Clock(o.CreatedAt, now), "By", view.ActorOf(o.Author), "Reason", o.Reason, "Its tasks",
			"pawl task ls --operation "+o.ID, "Current states", stateCountsText(o.CurrentStates), "Paused", text.Clock(o.PausedAt, now),
			"Ended", text.Clock(o.EndedAt, now))
		writeRest(w, &o.Counts)
	})
}

// what describes an operation: "move to slow".
func what(o *admin.Operation) string {
	words := string(o.Action)
	switch {
	case o.ToQueue != "":
		words += " to " + o.ToQueue
	case o.Priority != "":
		words += " " + string(o.Priority)
	}
	if o.Max > 0 {
		words += fmt.Sprintf(", at most %d", o.Max)
	}
	if o.Canary > 0 {
		words += fmt.Sprintf(", first %d", o.Canary)
	}
	return words
}

// stateCountsText counts the current states of the tasks that an operation has changed: "3 succeeded, 1 dead", in the
// order of a task's life.
func stateCountsText(b *admin.StateCounts) string {
	if b == nil {
		return ""
	}
	var words []string
	for _, s := range lifeOrder {
		if n := b.States[s]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	if b.IsLowerBound {
		words = append(words, "or more: to count them all would take too long")
	}
	return strings.Join(words, ", ")
}

// lifeOrder lists the states in the order of a task's life.
var lifeOrder = []pawltype.State{pawltype.StateScheduled, pawltype.StateReady, pawltype.StateClaimed, pawltype.StateRetrying,
	pawltype.StateSucceeded, pawltype.StateDead, pawltype.StatePoisoned, pawltype.StateDiscarded, pawltype.StateCancelled}

func operationState(o *admin.Operation) string {
	if o.Stopping != "" {
		return string(o.State) + ", soon " + string(o.Stopping)
	}
	return string(o.State)
}

// far returns an operation's progress: "17 of 450", "17 of at least 450".
func far(o *admin.Operation) string {
	of := " of "
	if o.Counts.TotalIsLowerBound {
		of = " of at least "
	}
	return strconv.FormatInt(o.Counts.Done, 10) + of + strconv.FormatInt(o.Counts.Total, 10)
}
