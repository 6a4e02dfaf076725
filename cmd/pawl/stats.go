package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
)

func newStats(a *app) *cobra.Command {
	var window time.Duration
	cmd := &cobra.Command{
		Use: "stats [QUEUE]", Short: "Show recent statistics, and what needs attention", Args: cobra.MaximumNArgs(1),
		Long: `Show statistics of the tasks of one queue, or of all queues, over a window of time: how many were enqueued,
succeeded and failed, how long they waited and ran, and which types fail most. Without a queue it also shows
what needs attention now; docs/alerts.md says what to do about it.`,
		Example: "  pawl stats --watch\n  pawl stats mail --window 24h\n  pawl stats -o json",
	}
	cli.PeriodVar(cmd.Flags(), &window, "window", time.Hour, "2m, 5m, 1h or 24h")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		if len(args) == 1 {
			s, err := a.Admin(client).Queues().Stats(ctx, args[0], window)
			if err != nil {
				return err
			}
			a.noteMissing(s.Missing)
			return partial(a.PrintAnswer(func(w io.Writer) { writeStats(w, s) }), s.Missing)
		}
		s, err := a.Admin(client).Stats(ctx, window)
		if err != nil {
			return err
		}
		a.noteMissing(s.Missing)
		return partial(a.PrintAnswer(func(w io.Writer) {
			writeAttention(w, s)
			writeStats(w, &s.Stats)
		}), s.Missing)
	})
	return cmd
}

func writeAttention(w io.Writer, s *admin.NamespaceStats) {
	for _, x := range s.Attention {
		fmt.Fprintf(w, "%s %s: %s\n", x.Severity, x.Kind, text.Printable(x.Detail))
	}
	if len(s.Attention) > 0 {
		fmt.Fprintln(w)
	}
	q := s.Queues
	text.Fields(w, "Queues", text.Grouped(q.Queues), "Ready", text.Grouped(q.Ready), "Claimed", text.Grouped(q.Claimed),
		"Scheduled", text.Grouped(q.Scheduled), "Retrying", text.Grouped(q.Retrying), "Dead", text.Grouped(q.Dead),
		"Poisoned", text.Grouped(q.Poisoned))
}

func writeStats(w io.Writer, s *admin.Stats) {
	t := s.Totals
	text.Fields(w, "In the last", text.Period(s.Window), "Enqueued", text.Grouped(t.Enqueued), "Succeeded", text.Grouped(t.Succeeded),
		"Failed", fmt.Sprintf("%s attempts, %s crashed (%.1f %%)", text.Grouped(t.Failed), text.Grouped(t.Crashed), 100*s.FailureRate),
		"Dead letters", text.Grouped(t.Dead), "Poisoned", text.Grouped(t.Poisoned), "Discarded", text.Grouped(t.Discarded),
		"Cancelled", text.Grouped(t.Cancelled), "Waited", latencyText(s.Wait), "Ran", latencyText(s.Run))
	if len(s.Failing) == 0 {
		return
	}
	fmt.Fprintln(w)
	now, rows := time.Now(), make([][]string, len(s.Failing))
	for i, f := range s.Failing {
		rows[i] = []string{humanize.Named(f.Type, "types"), humanize.Named(f.Queue, "queues"), text.Grouped(f.Failures),
			text.Ago(f.LastAt, now), text.Short(f.LastError, 60)}
	}
	text.Columns(w, "FAILING|QUEUE|FAILURES|LAST|ERROR", rows)
}

// latencyText formats the percentiles of a duration; "" if there are none.
func latencyText(l admin.Latency) string {
	if l.Count == 0 {
		return ""
	}
	return fmt.Sprintf("half up to %s, 95 %% up to %s, 99 %% up to %s", brief(l.P50), brief(l.P95), brief(l.P99))
}

// brief rounds a duration to the precision worth reading.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// ratesText formats the rates at which tasks enter and leave a queue.
func ratesText(q *admin.Queue) string {
	if q.Rates == nil {
		return ""
	}
	s := fmt.Sprintf("%.1f/s in, %.1f/s out", q.Rates.In, q.Rates.Out)
	if q.Rates.Failed > 0 {
		s += fmt.Sprintf(", %.1f/s attempts failed", q.Rates.Failed)
	}
	if q.Drain != nil && *q.Drain > 0 {
		s += ", empty in " + text.Span(*q.Drain)
	}
	return s
}
