package main

import (
	"context"
	"fmt"
	"io"
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
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func newQueue(a *app) *cobra.Command {
	return cli.Group("queue", "List and control queues",
		"List and control queues. A queue is created at its first use, or by \"queue set\".", newQueueLs(a), newQueueShow(a),
		newQueueExplain(a), newQueueSet(a), newQueueVerb(a, "pause", "Stop claims from a queue",
			"Stop claims from a queue. Tasks are still accepted, and running ones continue.", admin.Queues.Pause, admin.Queues.PauseSubset),
		newQueueVerb(a, "resume", "Resume a paused queue", "Resume a paused queue: its tasks can be claimed again.",
			admin.Queues.Resume, admin.Queues.ResumeSubset),
		newQueueCloseBreaker(a), newQueueSpread(a), newQueuePurge(a), newQueueRm(a))
}

func newQueueLs(a *app) *cobra.Command {
	var list cli.ListFlags
	var filter admin.QueueFilter
	var having string
	cmd := &cobra.Command{
		Use: "ls [PATTERN]", Short: "List queues and their depths", Args: cobra.MaximumNArgs(1),
		Long: `List queues with their depths. In a pattern, * stands for any characters; quote it, or the shell
expands it.`,
		Example: "  pawl queue ls --watch\n  pawl queue ls 'mail*' --having dead\n  pawl queue ls --most --limit 10\n" +
			"  pawl queue ls --series 1h\n  pawl queue ls -o json",
	}
	list.Add(cmd)
	flags := cmd.Flags()
	cli.PeriodVar(flags, &filter.Series, "series", 0, "also chart successes and failures over this long: 2m, 5m, 1h or 24h")
	flags.StringVar(&having, "having", "", "only queues with `what`: dead, poisoned, paused or no_worker (ready tasks, but no worker)")
	flags.BoolVar(&filter.Most, "most", false, "sort by the count of --having, or else of unfinished tasks, largest first; one page")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		filter.Having = admin.QueueTrait(having)
		filter.Pattern = cli.PatternArg(args)
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Queue], error) {
			return a.Admin(client).Queues().ListPage(ctx, filter, p)
		}, writeQueues)
	})
	return cmd
}

func writeQueues(w io.Writer, queues []*admin.Queue) {
	rows := make([][]string, len(queues))
	drawn := slices.ContainsFunc(queues, func(q *admin.Queue) bool { return q.Series != nil })
	for i, q := range queues {
		oldest := "-"
		if q.Depth.Ready > 0 {
			oldest = text.Span(q.OldestReady)
		}
		rows[i] = []string{text.Short(q.Name, text.MaxCell)}
		for _, n := range []int64{q.Depth.Ready, q.Depth.Held, q.Depth.Scheduled, q.Depth.Retrying, q.Depth.Claimed, q.Depth.Dead,
			q.Depth.Poisoned} {
			rows[i] = append(rows[i], strconv.FormatInt(n, 10))
		}
		rows[i] = append(rows[i], workersText(q), oldest)
		if drawn {
			succeeded, wrong := sparklines(q.Series)
			rows[i] = append(rows[i], succeeded, wrong)
		}
		rows[i] = append(rows[i], view.QueueNote(q))
	}
	head := "QUEUE|READY|HELD|SCHEDULED|RETRYING|CLAIMED|DEAD|POISONED|WORKERS|OLDEST|NOTE"
	if drawn {
		head = strings.Replace(head, "NOTE", "SUCCEEDED|WRONG|NOTE", 1)
	}
	text.Columns(w, head, rows)
}

// workersText returns how many workers take tasks from a queue, if that is known.
func workersText(q *admin.Queue) string {
	if q.Workers == nil {
		return ""
	}
	return strconv.Itoa(*q.Workers)
}

// sparklines draws how many tasks succeeded in each step, and how many attempts failed, on a common scale. "-" means
// none in the whole window.
func sparklines(s *admin.QueueSeries) (succeeded, wrong string) {
	if s == nil {
		return "", ""
	}
	well, badly := humanize.Series(s.Succeeded), humanize.Series(s.Failed)
	most := int64(1)
	for _, n := range slices.Concat(well, badly) {
		most = max(most, n)
	}
	return sparkline(well, most), sparkline(badly, most)
}

// sparkline draws a bar for each number: 0 is a low bar, not a blank, and any other number is higher.
func sparkline(numbers []int64, most int64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	line, some := make([]rune, len(numbers)), false
	for i, n := range numbers {
		some = some || n > 0
		line[i] = bars[(max(n, 0)*int64(len(bars)-1)+most-1)/most]
	}
	if !some {
		return "-"
	}
	return string(line)
}

func newQueueShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show QUEUE", Short: "Show a queue and its settings", Args: cobra.ExactArgs(1),
		Example: "  pawl queue show mail",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		q, err := a.Admin(client).Queues().Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return partial(a.printQueue(q), q.Missing)
	})
	return cmd
}

func (a *app) printQueue(q *admin.Queue) error {
	a.noteMissing(q.Missing)
	return a.PrintAnswer(func(w io.Writer) { writeQueue(w, q, time.Now()) })
}

func writeQueue(w io.Writer, q *admin.Queue, now time.Time) {
	paused := "no"
	if q.Paused {
		paused = "since " + text.Clock(q.PausedAt, now) + byWhom(q.PausedBy)
		if q.PausedReason != "" {
			paused += ": " + q.PausedReason
		}
	}
	d, r, s := q.Depth, q.ReadyByPriority, q.Settings
	order := "strict"
	if s.Weights != nil {
		order = fmt.Sprintf("weighted: high %d, normal %d, low %d", s.Weights.High, s.Weights.Normal, s.Weights.Low)
	}
	oldest := ""
	if d.Ready > 0 {
		oldest = text.Span(q.OldestReady)
	}
	keys := "none"
	if s.KeyOrder == admin.KeyOrderStrict {
		keys = "strict: the tasks of a key run one after the other"
	}
	length := "no limit"
	if s.MaxLength > 0 {
		length = strconv.FormatInt(s.MaxLength, 10)
	}
	text.Fields(w, "Queue", q.Name, "Created", text.Clock(q.CreatedAt, now), "Paused", paused, "Shards", partsText(q),
		"Ready", fmt.Sprintf("%d (high %d, normal %d, low %d)", d.Ready, r.High, r.Normal, r.Low), "Oldest ready", oldest,
		"Scheduled", strconv.FormatInt(d.Scheduled, 10), "Retrying", strconv.FormatInt(d.Retrying, 10),
		"Claimed", strconv.FormatInt(d.Claimed, 10), "Held", strconv.FormatInt(d.Held, 10), "Dead", strconv.FormatInt(d.Dead, 10),
		"Poisoned", strconv.FormatInt(d.Poisoned, 10), "Rates", ratesText(q), "Workers", workersText(q), "Waited", latencyText(q.Wait),
		"Ran", latencyText(q.Run), "Settings", "version "+strconv.FormatInt(q.Version, 10), "  order", order, "  order of keys", keys,
		"  max attempts", strconv.Itoa(s.MaxAttempts), "  retry", view.RetryText(s.Retry), "  lease", text.Period(s.Lease),
		"  timeout", text.Period(s.Timeout), "  max length", length, "  max wait", text.Period(s.MaxWait),
		"  limits", limitsText(s.QueueLimits), "  of each key", limitsText(s.PerKey), "  breaker", breakerText(s.Breaker),
		"  kept", fmt.Sprintf("succeeded %s, discarded %s, cancelled %s, dead %s, poisoned %s", text.Days(s.Retention.Succeeded),
			text.Days(s.Retention.Discarded), text.Days(s.Retention.Cancelled), text.Days(s.Retention.Dead),
			text.Days(s.Retention.Poisoned)))
	writeRules(w, q, now)
	writeBreakers(w, q, now)
}

func newQueueVerb(a *app, verb, short, long string, whole func(admin.Queues, context.Context, string) (*admin.Queue, error),
	part func(admin.Queues, context.Context, string, admin.Subset) (*admin.Queue, error)) *cobra.Command {
	var of admin.Subset
	cmd := &cobra.Command{
		Use: verb + " QUEUE", Short: short, Long: long, Args: cobra.ExactArgs(1),
		Example: fmt.Sprintf("  pawl queue %s mail --reason 'provider is down'", verb),
	}
	a.addReason(cmd.Flags())
	cmd.Flags().StringVar(&of.Type, "type", "", "only tasks of this `type`")
	cmd.Flags().StringVar(&of.Key, "key", "", "only tasks of this `key`")
	cmd.MarkFlagsMutuallyExclusive("type", "key")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		var q *admin.Queue
		var err error
		if queues := a.Admin(client).Queues(); of == (admin.Subset{}) {
			q, err = whole(queues, cmd.Context(), args[0])
		} else {
			q, err = part(queues, cmd.Context(), args[0], of)
		}
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) { writeQueues(w, []*admin.Queue{q}) })
	})
	return cmd
}

func newQueuePurge(a *app) *cobra.Command {
	var bulk cli.BulkFlags
	cmd := &cobra.Command{
		Use: "purge QUEUE", Short: "Discard the waiting tasks of a queue", Args: cobra.ExactArgs(1),
		Long:    "Discard the waiting tasks of a queue. They end as discarded, and are kept for the usual time; running tasks continue.",
		Example: "  pawl queue purge mail --dry-run\n  pawl queue purge mail --yes --reason 'sent twice'",
	}
	bulk.Add(cmd.Flags())
	a.addReason(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		ctx, operator := cmd.Context(), a.Admin(client)
		q, err := operator.Queues().Get(ctx, args[0])
		if err != nil {
			return err
		}
		result := cli.CountView{Matched: q.Depth.Ready + q.Depth.Scheduled + q.Depth.Retrying, DryRun: bulk.DryRun}
		if !bulk.DryRun {
			if err := a.Confirm(ctx, &bulk, fmt.Sprintf("%s of queue %q will be discarded", text.Count(result.Matched, "task"),
				q.Name)); err != nil {
				return err
			}
			if result.Done, err = operator.Queues().Purge(ctx, q.Name); err != nil {
				return err
			}
		}
		return a.printCount(result, "task", "discarded")
	})
	return cmd
}

func newQueueRm(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm QUEUE", Short: "Remove an empty queue and its settings", Args: cobra.ExactArgs(1),
		Example: "  pawl queue rm mail",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		if err := a.Admin(client).Queues().Delete(cmd.Context(), args[0]); err != nil {
			return err
		}
		shown := struct {
			Queue   string `json:"queue"`
			Removed bool   `json:"removed"`
		}{args[0], true}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "queue %q removed\n", args[0]) })
	})
	return cmd
}

// queuesWith names the queues that have dead letters, or poisoned tasks: the requested one, or all. What missing shards have is not known.
func queuesWith(ctx context.Context, client *pawl.Client, only string, poisoned bool) (names []string,
	missing []pawltype.Missing, err error) {
	if only != "" {
		return []string{only}, nil, nil
	}
	for q, err := range admin.New(client).Queues().List(ctx, admin.QueueFilter{}) {
		if err != nil {
			return nil, nil, err
		}
		if !poisoned && q.Depth.Dead > 0 || poisoned && q.Depth.Poisoned > 0 {
			names = append(names, q.Name)
		}
		missing = cli.JoinMissing(missing, slices.DeleteFunc(q.Missing, func(m pawltype.Missing) bool { return m.Node != "" }))
	}
	slices.Sort(names)
	return names, missing, nil
}
