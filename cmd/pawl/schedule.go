package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
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

func newSchedule(a *app) *cobra.Command {
	return cli.Group("schedule", "Enqueue tasks on a schedule", "A schedule enqueues a task at given times or intervals, once per tick.",
		newScheduleLs(a), newScheduleShow(a), newScheduleHistory(a), newScheduleAdd(a), newScheduleApply(a),
		newSchedulePause(a), newScheduleResume(a), newScheduleRun(a), newScheduleRm(a))
}

func newScheduleLs(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{
		Use: "ls", Short: "List schedules with their next runs", Args: cli.NoArgs,
		Example: "  pawl schedule ls --watch",
	}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Schedule], error) {
			return a.Admin(client).Schedules().ListPage(ctx, p)
		}, writeSchedules)
	})
	return cmd
}

func writeSchedules(w io.Writer, schedules []*admin.Schedule) {
	now := time.Now()
	rows := make([][]string, len(schedules))
	for i, s := range schedules {
		next := "never"
		switch {
		case s.Pause != nil:
			next = "paused"
			if s.Pause.Reason != "" {
				next += ": " + text.Short(s.Pause.Reason, 40)
			}
		case !s.NextRunAt.IsZero():
			next = text.Clock(s.NextRunAt, now)
		}
		rows[i] = []string{s.Name, ruleText(s), text.Short(cronWords(s), 40), s.Task.Queue, s.Task.Type, next, lastText(s.Last)}
	}
	text.Columns(w, "SCHEDULE|WHEN|IN WORDS|QUEUE|TYPE|NEXT|LAST", rows)
}

// ruleText describes when a schedule is due.
func ruleText(s *admin.Schedule) string {
	rule := s.Cron
	if s.Every > 0 {
		rule = "every " + text.Period(s.Every)
	}
	if s.TimeZone != "" {
		rule += " " + s.TimeZone
	}
	return rule
}

// cronWords describes a cron expression in words; "" for an interval, which needs none.
func cronWords(s *admin.Schedule) string {
	if s.Cron == "" {
		return ""
	}
	return s.InWords
}

func lastText(t *admin.Tick) string {
	if t == nil {
		return "-"
	}
	return outcomeText(t)
}

func outcomeText(t *admin.Tick) string {
	if t.Reason != "" {
		return string(t.Outcome) + ": " + t.Reason
	}
	return string(t.Outcome)
}

func newScheduleShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show SCHEDULE", Short: "Show a schedule and its task", Args: cobra.ExactArgs(1),
		Example: "  pawl schedule show nightly-report",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		s, err := a.Admin(client).Schedules().Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printSchedule(s)
	})
	return cmd
}

func (a *app) printSchedule(s *admin.Schedule) error {
	return a.PrintAnswer(func(w io.Writer) { writeSchedule(w, s, time.Now()) })
}

func writeSchedule(w io.Writer, s *admin.Schedule, now time.Time) {
	paused := "no"
	if s.Pause != nil {
		paused = "since " + text.Clock(s.Pause.At, now) + byWhom(s.Pause.By)
		if s.Pause.Reason != "" {
			paused += ": " + s.Pause.Reason
		}
	}
	last := ""
	if s.Last != nil {
		last = outcomeText(s.Last) + " " + text.Clock(s.Last.DecidedAt, now)
	}
	jitter := ""
	if s.Jitter > 0 {
		jitter = "up to " + text.Period(s.Jitter)
	}
	planned := ""
	if s.Jitter > 0 {
		planned = text.Clock(s.PlannedAt, now)
	}
	then := make([]string, len(s.Coming))
	for i, at := range s.Coming {
		then[i] = text.Clock(at, now)
	}
	pairs := []string{"Schedule", s.Name, "When", ruleText(s), "In words", cronWords(s), "Jitter", jitter,
		"Next run", text.Clock(s.NextRunAt, now), "Planned for", planned, "Then", strings.Join(then, ", "), "Paused", paused, "Last tick",
		last, "Missed ticks", string(s.Missed), "Overlap", string(s.Overlap), "Owner", s.Owner, "Created", text.Clock(s.CreatedAt, now),
		"Changed", text.Clock(s.UpdatedAt, now)}
	text.Fields(w, append(pairs, scheduledTaskFields(&s.Task)...)...)
}

// scheduledTaskFields returns the fields of a schedule's task.
func scheduledTaskFields(t *admin.ScheduledTask) []string {
	retry, unique, cost, attempts, kept := "", "", "", "", ""
	if t.Retry != nil {
		retry = view.RetryText(*t.Retry)
	}
	if t.Unique != nil {
		unique = t.Unique.Key + " (on conflict " + string(t.Unique.OnConflict) + ")"
	}
	if t.Cost > 1 {
		cost = strconv.Itoa(t.Cost)
	}
	if t.MaxAttempts > 0 {
		attempts = strconv.Itoa(t.MaxAttempts)
	}
	if t.Retention != nil {
		kept = text.Period(*t.Retention)
	}
	headers := make([]string, 0, len(t.Headers))
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		headers = append(headers, name+"="+t.Headers[name])
	}
	return []string{"Task", t.Type, "  queue", t.Queue, "  priority", string(t.Priority), "  key", t.Key, "  unique",
		unique, "  cost", cost, "  max attempts", attempts, "  retry", retry, "  timeout", text.Period(t.Timeout), "  expires in",
		text.Period(t.ExpiresIn), "  kept", kept, "  tags", strings.Join(t.Tags, ", "), "  headers", strings.Join(headers, ", "),
		"  payload", text.Short(string(t.Payload), 200), "  then", thenText(t.Then)}
}

func newScheduleHistory(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{
		Use: "history SCHEDULE", Short: "Show the outcome of each tick", Args: cobra.ExactArgs(1),
		Long: "Show the history of a schedule, newest first: every tick that fired, was caught up or was skipped, and why. The " +
			"newest 1,000 entries are kept.",
		Example: "  pawl schedule history nightly-report --limit 30",
	}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Tick], error) {
			return a.Admin(client).Schedules().HistoryPage(ctx, args[0], p)
		}, writeTicks)
	})
	return cmd
}

func writeTicks(w io.Writer, ticks []*admin.Tick) {
	const layout = "2006-01-02 15:04:05 MST"
	rows := make([][]string, len(ticks))
	for i, t := range ticks {
		planned, late := "-", "-"
		if !t.PlannedAt.IsZero() {
			planned = t.PlannedAt.Local().Format(layout)
		}
		if !t.Until.IsZero() {
			more := ""
			if t.Count == 100 { // the count stops at 100
				more = " or more"
			}
			planned += fmt.Sprintf(" to %s (%d%s)", t.Until.Local().Format(layout), t.Count, more)
		}
		if t.Late > 0 {
			late = text.Span(t.Late)
		}
		task := t.TaskID
		if task == "" {
			task = "-"
		}
		rows[i] = []string{strconv.FormatInt(t.Seq, 10), planned, outcomeText(t), late, task}
	}
	text.Columns(w, "NO|PLANNED|OUTCOME|LATE|TASK", rows)
}

func newScheduleAdd(a *app) *cobra.Command {
	var s admin.ScheduleSpec
	var spec specFlags
	var missed, overlap string
	cmd := &cobra.Command{
		Use: "add NAME TYPE [PAYLOAD | - | @FILE]", Short: "Add a schedule", Args: cobra.RangeArgs(2, 3),
		Long: `Add a schedule. Each tick enqueues a task of TYPE with PAYLOAD, as "pawl enqueue" would.
If a schedule with this name exists and differs, nothing is changed: see "pawl schedule apply".`,
		Example: `  pawl schedule add nightly-report report '{"kind":"day"}' --cron "30 2 * * *" --time-zone Europe/Berlin
  pawl schedule add heartbeat ping --every 30s --missed skip`,
	}
	f := cmd.Flags()
	f.StringVar(&s.Cron, "cron", "", `cron expression: five fields, or six with seconds first; or @daily and the like`)
	cli.PeriodVar(f, &s.Every, "every", 0, "an interval of whole seconds")
	f.StringVar(&s.TimeZone, "time-zone", "", "IANA `name` of the time zone of --cron (default UTC)")
	cli.PeriodVar(f, &s.Jitter, "jitter", 0, "delay each tick by a random time up to this")
	f.StringVar(&missed, "missed", "", "what to do about missed ticks: once, skip or all (default once)")
	f.StringVar(&overlap, "overlap", "", "what to do with a tick while an earlier task runs or waits: allow or skip (default allow)")
	f.StringVar(&s.Owner, "owner", "", "owner of the schedule, such as an application")
	spec.addTemplate(f)
	cmd.MarkFlagsMutuallyExclusive("cron", "every")
	cmd.MarkFlagsOneRequired("cron", "every")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) (err error) {
		raw := pawl.RawTask{Type: args[1], ContentType: spec.contentType}
		if len(args) == 3 {
			if raw.Payload, err = a.readPayload(args[2]); err != nil {
				return err
			}
		}
		s.Name, s.Task, s.Missed, s.Overlap = args[0], raw, admin.Missed(missed), admin.Overlap(overlap)
		if s.Options, err = spec.options(cmd.Flags()); err != nil {
			return err
		}
		done, err := a.Admin(client).Schedules().Create(cmd.Context(), s)
		if err != nil {
			return err
		}
		return a.printSchedule(done.Schedule)
	})
	return cmd
}

func newSchedulePause(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pause SCHEDULE", Short: "Pause a schedule", Args: cobra.ExactArgs(1),
		Long:    "Skip ticks until the schedule is resumed. The history shows which ones were skipped.",
		Example: "  pawl schedule pause nightly-report --reason 'warehouse maintenance'",
	}
	a.addReason(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		s, err := a.Admin(client).Schedules().Pause(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printSchedule(s)
	})
	return cmd
}

func newScheduleResume(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume SCHEDULE", Short: "Resume a schedule", Args: cobra.ExactArgs(1),
		Example: "  pawl schedule resume nightly-report",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		s, err := a.Admin(client).Schedules().Resume(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printSchedule(s)
	})
	return cmd
}

func newScheduleRun(a *app) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "run SCHEDULE", Short: "Enqueue a schedule's task now", Args: cobra.ExactArgs(1), Aliases: []string{"trigger"},
		Long: "Enqueue a schedule's task now, in addition to its ticks, even if it is paused. With --wait it waits for the task " +
			"like \"pawl enqueue --wait\".",
		Example: "  pawl schedule run nightly-report --wait",
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the task has ended and print its result")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ref, err := a.Admin(client).Schedules().Trigger(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if wait {
			return a.printEnd(cmd.Context(), client, ref.ID)
		}
		return a.PrintAnswer(func(w io.Writer) { fmt.Fprintln(w, ref.ID) })
	})
	return cmd
}

func newScheduleRm(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm SCHEDULE", Short: "Remove a schedule and its history", Args: cobra.ExactArgs(1),
		Long:    "Remove a schedule and its history. Tasks that it has enqueued stay.",
		Example: "  pawl schedule rm nightly-report",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		if err := a.Admin(client).Schedules().Delete(cmd.Context(), args[0]); err != nil {
			return err
		}
		shown := struct {
			Schedule string `json:"schedule"`
			Removed  bool   `json:"removed"`
		}{args[0], true}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "schedule %q removed\n", args[0]) })
	})
	return cmd
}
