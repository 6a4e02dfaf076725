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
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

func newTask(a *app) *cobra.Command {
	var priority, to string
	return cli.Group("task", "List and control tasks",
		`List and control tasks, one by one or by a filter. For an id, its first eight digits are enough if no other
task has them, or what the web UI shows of it.`,
		newTaskLs(a), newTaskShow(a), newTaskExplain(a), newTaskWait(a), newTaskEdit(a),
		newTaskBulk(a, taskVerb{
			use: "cancel", done: "cancelled", short: "Cancel tasks that have not ended", action: admin.ActionCancel,
			long: `Cancel tasks that have not ended: those with the given ids, or all that match a filter.
A running handler's context is cancelled within a second. Cancelling a task again is not an error;
a task that has ended otherwise is refused.`,
			do: func(ctx context.Context, c *pawl.Client, id string) error {
				_, err := a.Admin(c).Tasks().Cancel(ctx, id)
				return err
			},
		}),
		newTaskBulk(a, taskVerb{
			use: "retry", done: "retried", short: "Retry tasks now", action: admin.ActionReplay,
			long: `Make tasks ready now: those that wait for their next attempt, and, with fresh attempts, those that
are dead, poisoned, discarded or cancelled. Give ids, or a filter for all that match.`,
			states: []pawltype.State{pawltype.StateRetrying, pawltype.StateDead, pawltype.StatePoisoned, pawltype.StateDiscarded,
				pawltype.StateCancelled},
			do: func(ctx context.Context, c *pawl.Client, id string) error {
				_, err := a.Admin(c).Tasks().Retry(ctx, id)
				return err
			},
		}),
		newTaskBulk(a, taskVerb{
			use: "discard", done: "discarded", short: "Discard waiting tasks or dead letters", action: admin.ActionDiscard,
			long: `Discard waiting tasks, or dead letters, which are written to the archive first: those with the
given ids, or all that match a filter.`,
			do: func(ctx context.Context, c *pawl.Client, id string) error {
				_, err := a.Admin(c).Tasks().Discard(ctx, id)
				return err
			},
		}),
		newTaskBulk(a, taskVerb{
			use: "run-now", done: "made ready", short: "Make scheduled and retrying tasks ready now", action: admin.ActionRunNow,
			long: "Make scheduled and retrying tasks ready now: those with the given ids, or all that match a filter.",
			do: func(ctx context.Context, c *pawl.Client, id string) error {
				_, err := a.Admin(c).Tasks().RunNow(ctx, id)
				return err
			},
		}),
		newTaskBulk(a, taskVerb{
			use: "set-priority", done: "changed", short: "Change the priority of waiting tasks", action: admin.ActionSetPriority,
			long: "Change the priority of waiting tasks: those with the given ids, or all that match a filter.",
			do: func(ctx context.Context, c *pawl.Client, id string) error {
				_, err := a.Admin(c).Tasks().Update(ctx, id, admin.TaskUpdate{Priority: pawltype.Priority(priority)})
				return err
			},
			flags: func(f *pflag.FlagSet) {
				f.StringVar(&priority, "priority", "", "high, normal or low")
				_ = cobra.MarkFlagRequired(f, "priority")
			},
			with: " --priority high",
			set:  func(o *admin.OperationSpec) { o.Priority = pawltype.Priority(priority) },
		}),
		newTaskBulk(a, taskVerb{
			use: "move", done: "moved", short: "Move waiting tasks to another queue", action: admin.ActionMove,
			long: `Move waiting tasks to another queue. Each ends in its old queue and continues as a new task with
fresh attempts, the same checkpoint and unique key; the idempotency key stays with the old task.`,
			flags: func(f *pflag.FlagSet) {
				f.StringVar(&to, "to", "", "destination queue")
				_ = cobra.MarkFlagRequired(f, "to")
			},
			with: " --to bulk",
			set:  func(o *admin.OperationSpec) { o.ToQueue = to },
		}))
}

// searchReported is how often a long search reports its progress.
const searchReported = 2 * time.Second

// withSearchProgress reads pages of tasks, and reports the progress of a long search on standard error.
func (a *app) withSearchProgress(read func(pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error)) func(pawltype.PageRequest) (
	pawltype.Page[*pawltype.Task], error) {
	reported, rows, found := time.Now(), int64(0), 0
	return func(p pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
		page, err := read(p)
		found += len(page.Items)
		if s := page.Searched; s != nil {
			rows += s.Rows
			if now := time.Now(); now.Sub(reported) >= searchReported {
				reported = now
				fmt.Fprintf(a.Err, "searched %s, back to %s: found %s\n", text.Count(rows, "row"), text.Clock(s.Until, now),
					text.Count(int64(found), "task"))
			}
		}
		return page, err
	}
}

func newTaskLs(a *app) *cobra.Command {
	var filter cli.FilterFlags
	var list cli.ListFlags
	var payload bool
	cmd := &cobra.Command{
		Use: "ls [FILTER...]", Short: "List tasks, newest first",
		Long: "List tasks, newest first. " + cli.FilterHelp,
		Example: `  pawl task ls 'queue:mail state:retrying,dead'
  pawl task ls --queue mail --state retrying,dead
  pawl task ls --type charge --error 'card declined' --created-after 2h -o json
  pawl task ls --queue mail --watch`,
	}
	filter.Add(cmd.Flags(), true)
	list.Add(cmd)
	cmd.Flags().BoolVar(&payload, "payload", false, "show payloads too")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		if err := filter.Take(args); err != nil {
			return err
		}
		f, err := filter.Read(time.Now())
		if err = errors.Join(err, list.Check()); err != nil {
			return err
		}
		page, err := cli.Collect(list, a.withSearchProgress(func(p pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
			p.WithPayload = payload
			return a.Admin(client).Tasks().ListPage(ctx, f, p)
		}))
		if err != nil {
			return err
		}
		err = a.printTasks(page, payload)
		if len(page.Items) == 0 && page.NextCursor == "" && f.Queue != "" {
			a.missesQueue(ctx, client, f.Queue)
		}
		return err
	})
	return cmd
}

// missesQueue warns about an empty list if the queue does not exist: its name may be misspelt. That is no error, since
// a queue is created with its first task.
func (a *app) missesQueue(ctx context.Context, client *pawl.Client, queue string) {
	if _, err := a.Admin(client).Queues().Get(ctx, queue); errors.Is(err, pawltype.ErrNotFound) {
		fmt.Fprintf(a.Err, "there is no queue %q\n", queue)
	}
}

// printTasks prints a list of tasks, and the cursor for more.
func (a *app) printTasks(page pawltype.Page[*pawltype.Task], payload bool) error {
	return printPage(a, page, func(w io.Writer, tasks []*pawltype.Task) {
		head, now := "ID|TYPE|QUEUE|STATE|PRIO|ATTEMPTS|CREATED|DUE", time.Now()
		wide := a.Format == "wide"
		if wide {
			head += "|KEY|TAGS|WORKER|ERROR"
		}
		if payload {
			head += "|PAYLOAD"
		}
		rows := make([][]string, len(tasks))
		for i, t := range tasks {
			rows[i] = []string{t.ID, text.Short(t.Type, text.MaxCell), text.Short(t.Queue, text.MaxCell), string(t.State),
				string(t.Priority), attempts(t), text.Ago(t.CreatedAt, now), due(t, now)}
			if wide {
				for _, s := range []string{t.Key, strings.Join(t.Tags, ","), t.Worker} {
					rows[i] = append(rows[i], text.Short(orDash(s), text.MaxCell))
				}
				rows[i] = append(rows[i], lastError(t))
			}
			if payload {
				rows[i] = append(rows[i], text.Short(text.PreviewTyped(t.Payload, t.ContentType), 60))
			}
		}
		text.Columns(w, head, rows)
	})
}

// lastError returns the beginning of the message of the last failure.
func lastError(t *pawltype.Task) string {
	if f := t.LastFailure(); f != nil {
		return text.Short(f.Message, 80)
	}
	return "-"
}

func attempts(t *pawltype.Task) string {
	return strconv.Itoa(t.Attempts) + "/" + strconv.Itoa(t.MaxAttempts)
}

// due returns when a task that waits for its time will be ready.
func due(t *pawltype.Task, now time.Time) string {
	if t.State == pawltype.StateScheduled || t.State == pawltype.StateRetrying {
		return text.Ago(t.RunAt, now)
	}
	return "-"
}

// taskOf returns the task with an id, of which the user may have given a part.
func (a *app) taskOf(ctx context.Context, client *pawl.Client, given string) (*pawltype.Task, error) {
	id, err := a.TaskID(ctx, client, given)
	if err != nil {
		return nil, err
	}
	return client.Task(ctx, id)
}

func newTaskShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show everything about a task", Args: cobra.ExactArgs(1),
		Example: "  pawl task show 0199f3c2-… -o yaml",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		t, err := a.taskOf(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}

func (a *app) printTask(t *pawltype.Task) error {
	return a.PrintAnswer(func(w io.Writer) { writeTask(w, t, time.Now()) })
}

func writeTask(w io.Writer, t *pawltype.Task, now time.Time) {
	state := string(t.State)
	if t.Reason != "" {
		state += " (" + t.Reason + ")"
	}
	progress := ""
	if t.Progress != (pawltype.Progress{}) {
		progress = strings.TrimSpace(fmt.Sprintf("%.0f%% %s", t.Progress.Percent, t.Progress.Message))
	}
	text.Fields(w, "ID", t.ID, "Type", t.Type, "Queue", t.Queue, "State", state, "Status", string(t.Status), "Priority", string(t.Priority),
		"Attempts", attempts(t), "Progress", progress, "Worker", t.Worker, "Created", text.Clock(t.CreatedAt, now),
		"Due", text.Clock(t.RunAt, now), "Claimed", text.Clock(t.ClaimedAt, now), "Lease until", text.Clock(t.LeaseExpiresAt, now),
		"Ended", text.Clock(t.EndedAt, now), "Expires", text.Clock(t.ExpiresAt, now), "Kept until", text.Clock(t.KeptUntil, now),
		"Timeout", text.Period(t.Timeout), "Moved to", t.MovedTo, "Moved from", t.MovedFrom, "Idempotency key", t.IdempotencyKey, "Key",
		t.Key, "Unique", uniqueText(t), "Tags", strings.Join(t.Tags, ", "), "Headers", pairs(t.Headers),
		"Payload", text.PreviewTyped(t.Payload, t.ContentType), "Result", text.PreviewTyped(t.Result, t.ResultContentType),
		"Checkpoint", text.Preview(t.Checkpoint), "Follows", parentText(t.Parent), "Group", t.GroupID)
	text.Fields(w, followerFields(t.Then)...)
	if len(t.AttemptLog) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := make([][]string, len(t.AttemptLog))
	for i, at := range t.AttemptLog {
		took, problem := "", ""
		if !at.EndedAt.IsZero() {
			took = text.Span(at.EndedAt.Sub(at.StartedAt))
		}
		if at.Error != nil {
			problem = text.Short(at.Error.Message, 100)
		}
		rows[i] = []string{strconv.Itoa(at.Attempt), text.Ago(at.StartedAt, now), took, text.Span(at.Waited), at.Worker,
			string(at.Outcome), problem}
	}
	text.Columns(w, "ATTEMPT|STARTED|TOOK|WAITED|WORKER|OUTCOME|ERROR", rows)
}

func newTaskWait(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait ID", Short: "Wait until a task has ended, and print its result", Args: cobra.ExactArgs(1),
		Long: `Wait until the task has ended and print its result; with -o json or yaml, the whole task.
The exit status is 1 if it did not succeed, or has not ended within --timeout.`,
		Example: "  pawl task wait 0199f3c2-… --timeout 5m",
	}
	cli.PeriodVar(cmd.Flags(), &timeout, "timeout", 0, "maximum time to wait (default: no limit)")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx := cmd.Context()
		if timeout < 0 {
			return cli.Usage("--timeout %s is negative", timeout)
		}
		if timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout)
			defer stop()
		}
		id, err := a.TaskID(ctx, client, args[0])
		if err == nil {
			err = a.printEnd(ctx, client, id)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("task %q has not ended within %s", args[0], text.Period(timeout))
		}
		return err
	})
	return cmd
}

func newTaskEdit(a *app) *cobra.Command {
	var priority, at, payload, etag string
	var in time.Duration
	var maxAttempts int
	cmd := &cobra.Command{
		Use: "edit ID", Short: "Change a waiting task", Args: cobra.ExactArgs(1),
		Long: "Change a task that is not claimed and has not ended. Fields that are not given are unchanged.",
		Example: `  pawl task edit 0199f3c2-… --priority high --in 0s
  pawl task edit 0199f3c2-… --payload '{"to":"b@example.com"}' --max-attempts 10`,
	}
	flags := cmd.Flags()
	flags.StringVar(&priority, "priority", "", "high, normal or low")
	cli.PeriodVar(flags, &in, "in", 0, "make it due this long from now")
	flags.StringVar(&at, "at", "", "make it due at this time, in RFC 3339")
	flags.StringVar(&payload, "payload", "", "a JSON value, - for standard input, or @FILE")
	cli.PositiveVar(flags, &maxAttempts, "max-attempts", 0, "failures after which it is a dead letter")
	flags.StringVar(&etag, "if-etag", "", "etag from 'pawl task show -o json': refuse if the task has changed since")
	cmd.MarkFlagsMutuallyExclusive("in", "at")
	cmd.MarkFlagsOneRequired("priority", "in", "at", "payload", "max-attempts")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		change := admin.TaskUpdate{MaxAttempts: maxAttempts, IfETag: etag}
		var err error
		if flags.Changed("priority") {
			if change.Priority, err = readPriority(priority); err != nil {
				return err
			}
		}
		if flags.Changed("in") {
			change.RunAt = time.Now().Add(in)
		}
		if flags.Changed("at") {
			if change.RunAt, err = time.Parse(time.RFC3339, at); err != nil {
				return cli.Usage("--at %q is not a time such as 2026-01-31T12:00:00Z", at)
			}
		}
		if flags.Changed("payload") {
			if change.Payload, err = a.readJSON(payload); err != nil {
				return err
			}
		}
		id, err := a.TaskID(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		t, err := a.Admin(client).Tasks().Update(cmd.Context(), id, change)
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
