package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

func newTaskExplain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain ID", Short: "Say why a task is not running", Args: cobra.ExactArgs(1),
		Long: `Say why a task is not running, and what would change that: all reasons, the one that decides first
at the top. Of a task that runs it says by whom, of one that has ended how.`,
		Example: "  pawl task explain 0199f3c2-…\n  pawl task explain 0199f3c2-… -o json",
	}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		e, err := a.admin(client).Tasks().Explain(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		view := explainView{TaskID: e.TaskID, State: e.State, Status: e.Status, Queue: e.Queue, Type: e.Type, Key: e.Key, Reasons: viewReasons(e.Reasons)}
		return a.print(view, func(w io.Writer) {
			fields(w, "ID", e.TaskID, "State", string(e.State), "Queue", e.Queue, "Type", e.Type, "Key", e.Key)
			for _, r := range e.Reasons {
				fmt.Fprintf(w, "\n%s: %s\n  -> %s\n", r.Code, printable(r.Detail), printable(r.Change))
				writeRunners(w, r.Running)
			}
		})
	})
	return cmd
}

// writeRunners lists who uses up a limit.
func writeRunners(w io.Writer, running []admin.TaskHolder) {
	if len(running) == 0 {
		return
	}
	now, rows := time.Now(), make([][]string, len(running))
	for i, t := range running {
		rows[i] = []string{"  " + t.TaskID, t.Worker, ago(t.Since, now), ago(t.Until, now)}
	}
	columns(w, "  RUNNING|WORKER|SINCE|LEASE UNTIL", rows)
}

func newQueueExplain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain NAME", Short: "Say what the ready tasks of a queue wait for", Args: cobra.ExactArgs(1),
		Long: `Say what the ready tasks of a queue wait for, how many of them for what, of which keys most are held,
and which types no worker takes. A task that waits for several things is counted at each.`,
		Example: "  pawl queue explain mail\n  pawl queue explain mail -o json",
	}
	cmd.RunE = a.calls(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		e, err := a.admin(client).Queues().Explain(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.print(viewQueueExplanation(e), func(w io.Writer) { writeQueueExplanation(w, e) })
	})
	return cmd
}

func writeQueueExplanation(w io.Writer, e *admin.QueueExplanation) {
	now := time.Now()
	partial := ""
	if e.Partial {
		partial = "yes: the numbers are those of what could be read"
	}
	fields(w, "Queue", e.Queue, "Ready", strconv.FormatInt(e.Ready, 10), "Claimable", share(e.Claimable, e.Ready), "Running", strconv.FormatInt(e.Claimed, 10),
		"Not due yet", strconv.FormatInt(e.Waiting, 10), "Next due", clock(e.NextDue, now), "Oldest ready", clock(e.OldestReadyAt, now), "Partial", partial)
	for _, r := range e.Reasons {
		code := string(r.Code)
		if r.Shard != 0 {
			code += fmt.Sprintf(" in shard %d", r.Shard)
		}
		if r.Count > 0 {
			code += fmt.Sprintf(", %s", share(r.Count, e.Ready))
		}
		fmt.Fprintf(w, "\n%s: %s\n  -> %s\n", code, printable(r.Detail), printable(r.Change))
		writeRunners(w, r.Running)
	}
	if len(e.Keys) > 0 {
		fmt.Fprintln(w)
		rows := make([][]string, len(e.Keys))
		for i, k := range e.Keys {
			rows[i] = []string{k.Key, strconv.FormatInt(k.Tasks, 10), string(k.Code), ago(k.Until, now)}
		}
		columns(w, "KEY|HELD|BY|UNTIL", rows)
	}
	if len(e.UnservedTypes) > 0 {
		fmt.Fprintln(w)
		rows := make([][]string, len(e.UnservedTypes))
		for i, t := range e.UnservedTypes {
			rows[i] = []string{t.Type, strconv.FormatInt(t.Tasks, 10)}
		}
		columns(w, "TYPE WITHOUT A WORKER|READY", rows)
	}
}

// share is a number, and how much of the whole that is.
func share(n, of int64) string {
	if of == 0 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d (%d %%)", n, 100*n/of)
}

type explainView struct {
	TaskID  string          `json:"task_id"`
	State   pawltype.State  `json:"state,omitempty"`
	Status  pawltype.Status `json:"status,omitempty"`
	Queue   string          `json:"queue,omitempty"`
	Type    string          `json:"type,omitempty"`
	Key     string          `json:"key,omitempty"`
	Reasons []reasonView    `json:"reasons"`
}

type reasonView struct {
	Code    admin.ReasonCode `json:"code"`
	Detail  string           `json:"detail"`
	Change  string           `json:"change"`
	Since   time.Time        `json:"since,omitzero"`
	Until   time.Time        `json:"until,omitzero"`
	Queue   string           `json:"queue,omitempty"`
	Type    string           `json:"type,omitempty"`
	Key     string           `json:"key,omitempty"`
	Cause   string           `json:"cause,omitempty"`
	Error   string           `json:"error,omitempty"`
	Limit   int              `json:"limit,omitempty"`
	Rate    *rateView        `json:"rate,omitempty"`
	Running []runnerView     `json:"running,omitempty"`
	Types   []string         `json:"types,omitempty"`
	Count   int64            `json:"count,omitempty"`
	More    bool             `json:"more,omitempty"`
	Shard   uint32           `json:"shard,omitempty"`
}

type runnerView struct {
	TaskID string    `json:"task_id"`
	Worker string    `json:"worker"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

type queueExplainView struct {
	Queue         string         `json:"queue"`
	Ready         int64          `json:"ready"`
	Claimable     int64          `json:"claimable"`
	Claimed       int64          `json:"claimed"`
	Waiting       int64          `json:"waiting"`
	Reasons       []reasonView   `json:"reasons"`
	Keys          []heldKeyView  `json:"keys"`
	IdleTypes     []idleTypeView `json:"idle_types"`
	NextDue       time.Time      `json:"next_due,omitzero"`
	OldestReadyAt time.Time      `json:"oldest_ready_at,omitzero"`
	Partial       bool           `json:"partial"`
}

type heldKeyView struct {
	Key   string           `json:"key"`
	Code  admin.ReasonCode `json:"code"`
	Tasks int64            `json:"tasks"`
	Until time.Time        `json:"until,omitzero"`
}

type idleTypeView struct {
	Type  string `json:"type"`
	Tasks int64  `json:"tasks"`
}

func viewReasons(reasons []admin.Reason) []reasonView {
	views := make([]reasonView, len(reasons))
	for i, r := range reasons {
		v := reasonView{Code: r.Code, Detail: r.Detail, Change: r.Change, Since: r.Since, Until: r.Until, Queue: r.Queue, Type: r.Type, Key: r.Key,
			Cause: r.Cause, Error: r.Error, Limit: r.Limit, Types: r.Types, Count: r.Count, More: r.More, Shard: r.Shard}
		if r.Rate != (admin.RateLimit{}) {
			v.Rate = &rateView{r.Rate.Limit, period(r.Rate.Period), r.Rate.Burst}
		}
		for _, t := range r.Running {
			v.Running = append(v.Running, runnerView(t))
		}
		views[i] = v
	}
	return views
}

func viewQueueExplanation(e *admin.QueueExplanation) queueExplainView {
	v := queueExplainView{Queue: e.Queue, Ready: e.Ready, Claimable: e.Claimable, Claimed: e.Claimed, Waiting: e.Waiting, Reasons: viewReasons(e.Reasons),
		Keys: []heldKeyView{}, IdleTypes: []idleTypeView{}, NextDue: e.NextDue, OldestReadyAt: e.OldestReadyAt, Partial: e.Partial}
	for _, k := range e.Keys {
		v.Keys = append(v.Keys, heldKeyView(k))
	}
	for _, t := range e.UnservedTypes {
		v.IdleTypes = append(v.IdleTypes, idleTypeView(t))
	}
	return v
}
