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
	"github.com/pawlq/pawl/pawltype"
)

func newDLQ(a *app) *cobra.Command {
	return cli.Group("dlq", "List, group, replay and discard dead letters",
		`Dead letters are tasks that have failed for good. They are kept until somebody replays or discards
them, or retention moves them to the archive. With --poisoned the same commands apply to tasks whose
payload could not be read. Without --queue they cover all queues.`,
		newDLQLs(a), newDLQGroups(a), newDLQShow(a),
		newDLQBulk(a, deadVerb{use: "replay", done: "replayed", like: []string{"retry", "requeue", "redrive"},
			short:  "Put dead letters back into their queue",
			long:   "Put dead letters back into their queue with fresh attempts. They keep id, idempotency key and attempt log.",
			action: admin.ActionReplay, one: admin.Tasks.Retry}),
		newDLQBulk(a, deadVerb{use: "discard", done: "discarded", like: []string{"purge", "delete", "rm"}, short: "Discard dead letters",
			long:   "Discard dead letters. Each is written to the archive first; \"pawl dlq archive restore\" restores it.",
			action: admin.ActionDiscard, one: func(tasks admin.Tasks, ctx context.Context, id string) (*pawltype.Task, error) {
				return tasks.Discard(ctx, id)
			}}),
		newArchive(a))
}

func newDLQLs(a *app) *cobra.Command {
	var filter cli.FilterFlags
	var list cli.ListFlags
	var poisoned bool
	cmd := &cobra.Command{
		Use: "ls [FILTER...]", Short: "List dead letters, newest first in each queue",
		Long:    "List dead letters, newest first in each queue. " + cli.FilterHelp,
		Example: "  pawl dlq ls 'queue:mail error:timeout after:2h'\n  pawl dlq ls --queue mail --error timeout\n  pawl dlq ls --watch",
	}
	filter.Add(cmd.Flags(), false)
	list.Add(cmd)
	cmd.Flags().BoolVar(&poisoned, "poisoned", false, "poisoned tasks instead of dead letters")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		if err := filter.Take(args); err != nil {
			return err
		}
		f, err := filter.Read(time.Now())
		if err = errors.Join(err, list.Check()); err != nil {
			return err
		}
		if list.Cursor != "" && f.Queue == "" {
			return cli.Usage("--cursor belongs to the list of one queue: name it with --queue")
		}
		page, err := a.deadTasks(ctx, client, f, list, poisoned)
		if err != nil {
			return err
		}
		return printPage(a, page, writeDead)
	})
	return cmd
}

// deadTasks lists the dead letters of one queue, or of every queue that has any. Only the list of one queue has a cursor.
func (a *app) deadTasks(ctx context.Context, client *pawl.Client, f admin.Filter, list cli.ListFlags,
	poisoned bool) (all pawltype.Page[*pawltype.Task], err error) {
	page := a.Admin(client).DeadLetters().ListPage
	if poisoned {
		page = a.Admin(client).DeadLetters().ListPoisonedPage
	}
	names, missing, err := queuesWith(ctx, client, f.Queue, poisoned)
	if err != nil {
		return all, err
	}
	a.Forget() // what is listed is the dead letters, also of no queue
	all.Missing = missing
	var more []string // queues of which not all are listed
	for i, name := range names {
		one, rest := f, list
		one.Queue = name
		rest.Limit -= len(all.Items)
		if rest.Limit < 1 {
			more = append(more, names[i:]...)
			break
		}
		some, err := cli.Collect(rest, a.withSearchProgress(func(p pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
			return page(ctx, one, p)
		}))
		if err != nil {
			return all, err
		}
		all.Items, all.Missing = append(all.Items, some.Items...), cli.JoinMissing(all.Missing, some.Missing)
		switch {
		case f.Queue != "":
			all.NextCursor = some.NextCursor
		case some.NextCursor != "":
			more = append(more, name)
		}
	}
	if len(more) > 0 {
		fmt.Fprintf(a.Err, "there may be more in %s: give --queue, or a higher --limit\n", someQueues(more))
	}
	return all, nil
}

// someQueues names a few queues: "queue mail", "queues a, b, c and 4 more".
func someQueues(names []string) string {
	const shown = 3
	if len(names) == 1 {
		return "queue " + names[0]
	}
	rest := ""
	if n := len(names) - shown; n > 0 {
		rest = fmt.Sprintf(" and %d more", n)
	}
	return "queues " + strings.Join(names[:min(len(names), shown)], ", ") + rest
}

func writeDead(w io.Writer, tasks []*pawltype.Task) {
	now := time.Now()
	rows := make([][]string, len(tasks))
	for i, t := range tasks {
		message := ""
		if f := t.LastFailure(); f != nil {
			message = text.Short(f.Message, 60)
		}
		rows[i] = []string{t.ID, t.Type, t.Queue, t.Reason, attempts(t), text.Ago(t.EndedAt, now), message}
	}
	text.Columns(w, "ID|TYPE|QUEUE|REASON|ATTEMPTS|ENDED|ERROR", rows)
}

func newDLQGroups(a *app) *cobra.Command {
	var queue string
	var poisoned bool
	cmd := &cobra.Command{
		Use: "groups", Short: "Count dead letters by type and error", Args: cli.NoArgs,
		Long: "Count dead letters by type and error, with numbers and ids in the message replaced: a thousand of them usually " +
			"come down to two problems.\n" +
			"Without --queue, all queues are counted together, and QUEUE is the one with the most. 1H and 24H count those that died " +
			"in that time.",
		Example: "  pawl dlq groups\n  pawl dlq groups --queue mail -o json",
	}
	cmd.Flags().StringVar(&queue, "queue", "", "in this queue")
	cmd.Flags().BoolVar(&poisoned, "poisoned", false, "poisoned tasks instead of dead letters")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		groups, err := a.Admin(client).DeadLetters().Groups(ctx, queue, poisoned)
		if err != nil {
			return err
		}
		a.noteMissing(groups.Missing)
		return partial(a.PrintAnswer(func(w io.Writer) { writeFailures(w, groups.Groups, groups.Partial) }), groups.Missing)
	})
	return cmd
}

func writeFailures(w io.Writer, groups []admin.DeadGroup, partial bool) {
	now := time.Now()
	rows := make([][]string, len(groups))
	for i, g := range groups {
		queue := g.Queue
		if g.Queues > 1 {
			queue = fmt.Sprintf("%s and %d more", g.Queue, g.Queues-1)
		}
		hour, day := lastHourAndDay(g.Trend)
		rows[i] = []string{strconv.FormatInt(g.Count, 10), strconv.FormatInt(hour, 10), strconv.FormatInt(day, 10), queue, g.Type,
			text.Ago(g.FirstAt, now), text.Ago(g.LastAt, now), g.Fingerprint, g.SampleTaskID, text.Short(g.Message, 80)}
	}
	text.Columns(w, "COUNT|1H|24H|QUEUE|TYPE|FIRST|LAST|FINGERPRINT|SAMPLE|ERROR", rows)
	if partial {
		fmt.Fprintln(w, "there are too many to count: the counts cover the newest")
	}
}

// lastHourAndDay returns how many dead letters of a trend came in the last hour, and in all of its hours.
func lastHourAndDay(trend []int64) (hour, day int64) {
	for _, n := range trend {
		hour, day = n, day+n
	}
	return hour, day
}

func newDLQShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter with its attempt log", Args: cobra.ExactArgs(1),
		Example: "  pawl dlq show 0199f3c2-…",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		t, err := a.taskOf(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		if t.State != pawltype.StateDead && t.State != pawltype.StatePoisoned {
			return fmt.Errorf("task %q is not a dead letter: it is %s", t.ID, t.State)
		}
		return a.printTask(t)
	})
	return cmd
}

// deadVerb is replay or discard: an operation for a filter, a call for each task by id.
type deadVerb struct {
	use, done, short, long string
	like                   []string // what people call it
	action                 admin.Action
	one                    func(tasks admin.Tasks, ctx context.Context, id string) (*pawltype.Task, error)
}

func newDLQBulk(a *app, v deadVerb) *cobra.Command {
	var filter cli.FilterFlags
	var flags operateFlags
	var all, poisoned bool
	cmd := &cobra.Command{
		Use: v.use + " [ID... | FILTER...]", Short: v.short,
		Long: v.long + `
Give ids, a filter, or --all. The command reports an id that is not a dead letter (with --poisoned: a poisoned
task), leaves that task unchanged, and exits with 1. With a filter or --all it starts an operation, which continues
in the background even if the command is interrupted: see "pawl operation". ` + cli.FilterHelp,
		SuggestFor: v.like,
		Example: fmt.Sprintf("  pawl dlq %[1]s 0199f3c2-…\n  pawl dlq %[1]s --queue mail --error 'connection refused' --dry-run\n"+
			"  pawl dlq %[1]s --all --rate 50/s --detach", v.use),
	}
	filter.Add(cmd.Flags(), false)
	flags.add(a, cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters, or with --poisoned all poisoned tasks, in every queue")
	cmd.Flags().BoolVar(&poisoned, "poisoned", false, "poisoned tasks instead of dead letters")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		if cli.AreFilter(args) {
			if err := filter.Take(args); err != nil {
				return err
			}
			args = nil
		}
		switch {
		case len(args) > 0 && (filter.Given() || all):
			return cli.Usage("give either ids or a filter")
		case len(args) > 0 && flags.given():
			return cli.Usage("--detach, --rate, --max and --canary are for filters, not for ids")
		case all && filter.Given():
			return cli.Usage("--all and a filter exclude each other")
		case len(args) == 0 && !filter.Given() && !all:
			return cli.Usage("give ids, a filter such as --queue, or --all")
		}
		if len(args) == 0 {
			f, err := filter.Read(time.Now())
			if err != nil {
				return err
			}
			if f.States = []pawltype.State{pawltype.StateDead}; poisoned {
				f.States = []pawltype.State{pawltype.StatePoisoned}
			}
			return a.operate(cmd.Context(), client, admin.OperationSpec{Action: v.action, Filter: &f}, &flags, v.done)
		}
		want := pawltype.StateDead
		if poisoned {
			want = pawltype.StatePoisoned
		}
		return a.eachDead(cmd.Context(), client, v, args, want, flags.DryRun)
	})
	return cmd
}

// eachDead replays or discards tasks by id, or with dryRun counts them. It leaves alone those that are not in the state
// that is wanted, and returns why.
func (a *app) eachDead(ctx context.Context, client *pawl.Client, v deadVerb, args []string, want pawltype.State, dryRun bool) error {
	result := cli.CountView{DryRun: dryRun}
	tasks, seen := a.Admin(client).Tasks().WithStates(want), map[string]bool{}
	var refused []error
	for _, arg := range args {
		id, err := a.TaskID(ctx, client, arg)
		if err == nil && seen[id] {
			continue
		}
		seen[id] = true
		switch {
		case err != nil:
		case dryRun:
			err = inState(ctx, client, id, want)
		default:
			_, err = v.one(tasks, ctx, id)
		}
		if err == nil {
			result.Matched++
		}
		refused = append(refused, err)
		if err != nil && !ofOneTask(err) {
			break
		}
	}
	if !dryRun {
		result.Done = result.Matched
	}
	return errors.Join(a.printCount(result, "task", v.done), errors.Join(refused...))
}

// ofOneTask reports whether an error says nothing of the other tasks that a command names.
func ofOneTask(err error) bool {
	e, ok := errors.AsType[*pawltype.Error](err)
	return ok && (e.Code == pawltype.ErrNotFound || e.Code == pawltype.ErrWrongState || e.Field == "task_id")
}

// inState returns an error unless a task is in a state.
func inState(ctx context.Context, client *pawl.Client, id string, want pawltype.State) error {
	t, err := client.Task(ctx, id)
	if err == nil && t.State != want {
		err = &pawltype.Error{Code: pawltype.ErrWrongState, State: t.State, Message: fmt.Sprintf("task %q is %s, not %s",
			id, t.State, want)}
	}
	return err
}
