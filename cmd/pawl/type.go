package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func newType(a *app) *cobra.Command {
	return cli.Group("type", "Show task types: rates, errors and durations",
		`Show statistics by task type: how many tasks are enqueued and end, how long they wait and run, and the share of
attempts that fail. The servers keep the counts of the last 24 hours in memory.`,
		newTypeLs(a), newTypeShow(a))
}

func newTypeLs(a *app) *cobra.Command {
	var list cli.ListFlags
	var f admin.TypeFilter
	var order string
	cmd := &cobra.Command{
		Use: "ls", Short: "List types by name, or by failures", Args: cli.NoArgs,
		Example: "  pawl type ls\n  pawl type ls --order failing --window 5m --watch\n  pawl type ls --queue mail --pattern 'mail.*'",
	}
	list.Add(cmd)
	cli.PeriodVar(cmd.Flags(), &f.Window, "window", time.Hour, "5m, 1h or 24h")
	cmd.Flags().StringVar(&f.Queue, "queue", "", "only in this queue")
	cmd.Flags().StringVar(&f.Pattern, "pattern", "", "only matching types, where * stands for any characters")
	cmd.Flags().StringVar(&order, "order", "", "most: most active first; failing: most failed attempts first (default by name)")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		f.Order = admin.TypeOrder(order)
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Type], error) {
			return a.Admin(client).Types().ListPage(ctx, f, p)
		}, writeTypes)
	})
	return cmd
}

func writeTypes(w io.Writer, all []*admin.Type) {
	now, rows := time.Now(), make([][]string, len(all))
	for i, t := range all {
		failed := ""
		if !t.LastFailedAt.IsZero() {
			failed = text.Ago(t.LastFailedAt, now) + ": " + text.Short(t.LastError, 50)
		}
		rows[i] = []string{humanize.Named(t.Name, "types"), text.Short(strings.Join(t.Queues, ","), 30), fmt.Sprintf("%.1f/s", t.Rates.In),
			fmt.Sprintf("%.1f/s", t.Rates.Out), fmt.Sprintf("%.1f %%", 100*t.FailureRate), briefOf(t.Run, t.Run.P50),
			briefOf(t.Run, t.Run.P95), failed}
	}
	text.Columns(w, "TYPE|QUEUES|IN|OUT|FAILED|RUN P50|RUN P95|LAST ERROR", rows)
}

// briefOf formats a quantile; "" if there is none.
func briefOf(l admin.Latency, quantile time.Duration) string {
	if l.Count == 0 {
		return ""
	}
	return brief(quantile)
}

func newTypeShow(a *app) *cobra.Command {
	var q admin.TypeQuery
	var around string
	cmd := &cobra.Command{
		Use: "show TYPE", Short: "Show the statistics of a type", Args: cobra.ExactArgs(1),
		Long: `Show the statistics of a task type over a window of time: how many tasks were enqueued and ended, how long they
waited and ran, the errors, and the slowest runs of the last hour. --around compares before and after a time.`,
		Example: "  pawl type show mail.welcome\n  pawl type show mail.welcome --queue mail --window 24h\n" +
			"  pawl type show mail.welcome --around 20m",
	}
	cli.PeriodVar(cmd.Flags(), &q.Window, "window", time.Hour, "5m, 1h or 24h")
	cmd.Flags().StringVar(&q.Queue, "queue", "", "only in this queue")
	cmd.Flags().StringVar(&around, "around", "", "compare before and after this time: RFC 3339, or an age such as 20m; within the "+
		"last 24 hours")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		var err error
		if q.Around, err = cli.ReadMoment("--around", around, time.Now()); err != nil {
			return err
		}
		s, err := a.Admin(client).Types().Stats(ctx, args[0], q)
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) { writeType(w, s) })
	})
	return cmd
}

func writeType(w io.Writer, s *admin.TypeStats) {
	text.Fields(w, "Type", humanize.Named(s.Type, "types"), "Queues", strings.Join(s.Queues, ", "), "Counted in", s.Queue)
	writeStats(w, &s.Stats)
	now := time.Now()
	if len(s.Slowest) > 0 {
		rows := make([][]string, len(s.Slowest))
		for i, r := range s.Slowest {
			how := "succeeded"
			if r.Failed {
				how = "failed"
			}
			rows[i] = []string{r.TaskID, brief(r.Run), how, text.Ago(r.EndedAt, now), r.Worker}
		}
		fmt.Fprintln(w)
		text.Columns(w, "SLOWEST|RAN|ENDED|WHEN|WORKER", rows)
	}
	if c := s.Comparison; c != nil {
		fmt.Fprintln(w)
		text.Columns(w, "AROUND "+text.Clock(c.Around, now)+"|BEFORE|AFTER", [][]string{
			{"Length", text.Period(c.Before.Length), text.Period(c.After.Length)},
			{"In", fmt.Sprintf("%.1f/s", c.Before.Rates.In), fmt.Sprintf("%.1f/s", c.After.Rates.In)},
			{"Out", fmt.Sprintf("%.1f/s", c.Before.Rates.Out), fmt.Sprintf("%.1f/s", c.After.Rates.Out)},
			{"Failed", fmt.Sprintf("%.1f %%", 100*c.Before.FailureRate), fmt.Sprintf("%.1f %%", 100*c.After.FailureRate)},
			{"Run p95", briefOf(c.Before.Run, c.Before.Run.P95), briefOf(c.After.Run, c.After.Run.P95)},
		})
	}
}
