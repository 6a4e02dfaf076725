package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

func newOperation(a *app) *cobra.Command {
	return group("operation", "List, show and steer operations on many tasks",
		`Operations do one thing with many tasks, in the background: "pawl dlq replay", "pawl task cancel"
and others start them, with a filter. They go on where they were when a server dies.`,
		newOperationLs(a), newOperationShow(a), newOperationWait(a),
		newOperationSteer(a, "pause", "Let an operation rest", admin.Operations.Pause),
		newOperationSteer(a, "resume", "Let an operation go on where it was", admin.Operations.Resume),
		newOperationSteer(a, "abort", "End an operation; what is done stays done", admin.Operations.Abort))
}

func newOperationLs(a *app) *cobra.Command {
	var list listFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List operations, newest first", Args: noArgs,
		Example: "  pawl operation ls\n  pawl operation ls --watch",
	}
	list.add(cmd)
	a.lists(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		if err := list.check(); err != nil {
			return err
		}
		all, next, err := collect(list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Operation], error) {
			return a.admin(client).Operations().ListPage(ctx, p)
		})
		if err != nil {
			return err
		}
		views := make([]operationView, len(all))
		for i, o := range all {
			views[i] = viewOperation(o)
		}
		return a.print(listView[operationView]{views, next}, func(w io.Writer) {
			now := time.Now()
			rows := make([][]string, len(all))
			for i, o := range all {
				rows[i] = []string{o.ID, string(o.Action), operationState(o), far(o), actorOf(o.Author), ago(o.CreatedAt, now), short(o.Reason, 40)}
			}
			columns(w, "ID|ACTION|STATE|DONE|BY|STARTED|REASON", rows)
		})
	})
	return cmd
}

func newOperationShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show an operation", Args: cobra.ExactArgs(1), Example: "  pawl operation show 0199f3c2-…"}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		o, err := a.admin(client).Operations().GetWithStates(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printOperation(o)
	})
	return cmd
}

func newOperationWait(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait until an operation has ended or is paused", Args: cobra.ExactArgs(1),
		Long:    "Wait until an operation has ended or is paused, and show how far it is. The exit status is 0 if it is done.",
		Example: "  pawl operation wait 0199f3c2-…"}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		o, err := a.admin(client).Operations().Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.follow(cmd.Context(), client, o, "done")
	})
	return cmd
}

func newOperationSteer(a *app, verb, what string, do func(admin.Operations, context.Context, string, string) (*admin.Operation, error)) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: verb + " ID...", Short: what, Args: cobra.MinimumNArgs(1), Example: "  pawl operation " + verb + " 0199f3c2-… --reason 'too many at once'"}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		var refused error
		for _, id := range args {
			o, err := do(a.admin(client).Operations(), cmd.Context(), id, reason)
			if err == nil {
				err = a.printOperation(o)
			}
			refused = errors.Join(refused, err)
		}
		return refused
	})
	return cmd
}

func (a *app) printOperation(o *admin.Operation) error {
	return a.print(viewOperation(o), func(w io.Writer) {
		now := time.Now()
		fields(w, "ID", o.ID, "Action", what(o), "Filter", o.Filter.String(), "State", operationState(o), "Why", o.StopReason, "Stopped by", actorOf(o.StoppedBy),
			"Progress", far(o), "Waits for", o.WaitsFor, "Rate", rateWords(o.Rate), "Started", clock(o.CreatedAt, now), "By", actorOf(o.Author),
			"Reason", o.Reason, "Its tasks", "pawl task ls --operation "+o.ID, "Became", becameWords(o.CurrentStates), "Paused", clock(o.PausedAt, now), "Ended", clock(o.EndedAt, now))
		writeRest(w, &o.Counts)
	})
}

// what an operation does: "move to slow".
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

// becameWords is how the tasks stand that an operation has changed: "3 succeeded, 1 dead", in the order of a task's life.
func becameWords(b *admin.StateCounts) string {
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

// lifeOrder are the states of tasks from the beginning to the ends.
var lifeOrder = []pawltype.State{pawltype.StateScheduled, pawltype.StateReady, pawltype.StateClaimed, pawltype.StateRetrying, pawltype.StateSucceeded, pawltype.StateDead, pawltype.StatePoisoned,
	pawltype.StateDiscarded, pawltype.StateCancelled}

func operationState(o *admin.Operation) string {
	if o.Stopping != "" {
		return string(o.State) + ", soon " + string(o.Stopping)
	}
	return string(o.State)
}

// far is how far an operation is: "17 of 450", "17 of at least 450".
func far(o *admin.Operation) string {
	of := " of "
	if o.Counts.TotalIsLowerBound {
		of = " of at least "
	}
	return strconv.FormatInt(o.Counts.Done, 10) + of + strconv.FormatInt(o.Counts.Total, 10)
}

func actorOf(by *admin.Actor) string {
	if by == nil {
		return ""
	}
	return by.Actor
}

func rateWords(perSecond float64) string {
	if perSecond == 0 {
		return ""
	}
	return strconv.FormatFloat(perSecond, 'g', 4, 64) + "/s"
}

// operationView is an operation in JSON and YAML, with the names of REST.
type operationView struct {
	OperationID string               `json:"operation_id"`
	Action      admin.Action         `json:"action"`
	Filter      map[string]any       `json:"filter"`
	ToQueue     string               `json:"to_queue,omitempty"`
	Priority    pawltype.Priority    `json:"priority,omitempty"`
	Max         int64                `json:"max,omitempty"`
	Canary      int64                `json:"canary,omitempty"`
	Rate        string               `json:"rate,omitempty"`
	State       admin.OperationState `json:"state"`
	Stopping    admin.OperationState `json:"stopping,omitempty"`
	Actor       string               `json:"actor,omitempty"`
	Reason      string               `json:"reason,omitempty"`
	Why         string               `json:"why,omitempty"`
	CreatedAt   time.Time            `json:"created_at"`
	PausedAt    time.Time            `json:"paused_at,omitzero"`
	EndedAt     time.Time            `json:"ended_at,omitzero"`
	operationCounts
	WaitsFor string      `json:"waits_for,omitempty"`
	Became   *becameView `json:"became,omitempty"`
}

// becameView is how the tasks stand that an operation has changed.
type becameView struct {
	States       map[pawltype.State]int64 `json:"states"`
	IsLowerBound bool                     `json:"is_lower_bound"`
}

type operationCounts struct {
	Total             int64            `json:"total"`
	TotalIsLowerBound bool             `json:"total_is_lower_bound"`
	Matched           int64            `json:"matched"`
	Done              int64            `json:"done"`
	Skipped           int64            `json:"skipped"`
	SkippedReasons    map[string]int64 `json:"skipped_reasons,omitempty"`
	Failed            int64            `json:"failed"`
}

func viewOperation(o *admin.Operation) operationView {
	c := &o.Counts
	var became *becameView
	if b := o.CurrentStates; b != nil {
		became = &becameView{b.States, b.IsLowerBound}
	}
	return operationView{Became: became, OperationID: o.ID, Action: o.Action, Filter: viewFilter(o.Filter), ToQueue: o.ToQueue, Priority: o.Priority, Max: o.Max, Canary: o.Canary,
		Rate: rateWords(o.Rate), State: o.State, Stopping: o.Stopping, Actor: actorOf(o.Author), Reason: o.Reason, Why: o.StopReason, CreatedAt: o.CreatedAt,
		PausedAt: o.PausedAt, EndedAt: o.EndedAt, WaitsFor: o.WaitsFor,
		operationCounts: operationCounts{c.Total, c.TotalIsLowerBound, c.Matched, c.Done, c.SkippedTasks(), c.Skipped, c.Failed}}
}

func viewFilter(f *admin.Filter) map[string]any {
	v := map[string]any{"state": f.States}
	for name, value := range map[string]string{"queue": f.Queue, "type": f.Type, "tag": f.Tag, "key": f.Key, "worker": f.Worker, "error": f.Error, "fingerprint": f.Fingerprint, "operation": f.Operation, "q": f.Text} {
		if value != "" {
			v[name] = value
		}
	}
	for name, at := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !at.IsZero() {
			v[name] = at
		}
	}
	return v
}
