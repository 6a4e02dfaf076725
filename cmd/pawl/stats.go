package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/human"
	"github.com/spf13/cobra"
)

func newStats(a *app) *cobra.Command {
	var window time.Duration
	cmd := &cobra.Command{
		Use: "stats [QUEUE]", Short: "Tell what happened to tasks lately, and what needs attention", Args: cobra.MaximumNArgs(1),
		Long: `Tell what happened to the tasks of a queue, or of all, in a window of time: how many came, succeeded
and failed, how long they waited and ran, and which types fail most. Without a queue it also says what
needs attention now; docs/operations.md has what to do about it.`,
		Example: "  pawl stats --watch\n  pawl stats mail --window 24h\n  pawl stats -o json",
	}
	cmd.Flags().DurationVar(&window, "window", time.Hour, "2m, 5m, 1h or 24h")
	a.lists(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		if len(args) == 1 {
			s, err := a.admin(client).Queues().Stats(ctx, args[0], window)
			if err != nil {
				return err
			}
			return a.print(viewStats(args[0], s), func(w io.Writer) { writeStats(w, s) })
		}
		s, err := a.admin(client).Stats(ctx, window)
		if err != nil {
			return err
		}
		view := viewStats("", &s.Stats)
		q := s.Queues
		view.Queues = &queueTotalsView{Queues: q.Queues, Scheduled: q.Scheduled, Ready: q.Ready, Claimed: q.Claimed, Retrying: q.Retrying, Dead: q.Dead,
			Poisoned: q.Poisoned, OldestReady: q.OldestReady.Seconds(), OldestReadyQueue: q.OldestReadyQueue}
		view.Attention = make([]attentionView, len(s.Attention))
		for i, x := range s.Attention {
			view.Attention[i] = attentionView(x)
		}
		return a.print(view, func(w io.Writer) {
			writeAttention(w, s)
			writeStats(w, &s.Stats)
		})
	})
	return cmd
}

func writeAttention(w io.Writer, s *admin.NamespaceStats) {
	for _, x := range s.Attention {
		fmt.Fprintf(w, "%s %s: %s\n", x.Severity, x.Kind, printable(x.Detail))
	}
	if len(s.Attention) > 0 {
		fmt.Fprintln(w)
	}
	q := s.Queues
	fields(w, "Queues", grouped(q.Queues), "Ready", grouped(q.Ready), "Claimed", grouped(q.Claimed),
		"Scheduled", grouped(q.Scheduled), "Retrying", grouped(q.Retrying), "Dead", grouped(q.Dead),
		"Poisoned", grouped(q.Poisoned))
}

func writeStats(w io.Writer, s *admin.Stats) {
	t := s.Totals
	missing := ""
	for _, name := range s.MissingNodes {
		missing += name + " "
	}
	fields(w, "In the last", period(s.Window), "Enqueued", grouped(t.Enqueued), "Succeeded", grouped(t.Succeeded),
		"Failed", fmt.Sprintf("%s attempts, %s crashed (%.1f %%)", grouped(t.Failed), grouped(t.Crashed), 100*s.FailureRate),
		"Dead letters", grouped(t.Dead), "Poisoned", grouped(t.Poisoned), "Discarded", grouped(t.Discarded), "Cancelled", grouped(t.Cancelled),
		"Waited", latencyText(s.Wait), "Ran", latencyText(s.Run), "Not counted of", missing)
	if len(s.Failing) == 0 {
		return
	}
	fmt.Fprintln(w)
	now, rows := time.Now(), make([][]string, len(s.Failing))
	for i, f := range s.Failing {
		rows[i] = []string{human.Named(f.Type, "types"), human.Named(f.Queue, "queues"), grouped(f.Failures), ago(f.LastAt, now), short(f.LastError, 60)}
	}
	columns(w, "FAILING|QUEUE|FAILURES|LAST|ERROR", rows)
}

// latencyText is how long something took; "" if it did not happen.
func latencyText(l admin.Latency) string {
	if l.Count == 0 {
		return ""
	}
	return fmt.Sprintf("half up to %s, 95 %% up to %s, 99 %% up to %s", brief(l.P50), brief(l.P95), brief(l.P99))
}

// brief rounds a duration to what is worth reading of it.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// ratesText is what comes into a queue and leaves it.
func ratesText(q *admin.Queue) string {
	if q.Rates == nil {
		return ""
	}
	s := fmt.Sprintf("%.1f/s in, %.1f/s out", q.Rates.In, q.Rates.Out)
	if q.Rates.Failed > 0 {
		s += fmt.Sprintf(", %.1f/s attempts failed", q.Rates.Failed)
	}
	if q.Drain != nil && *q.Drain > 0 {
		s += ", empty in " + span(*q.Drain)
	}
	return s
}

// statsView is what -o json and yaml print: as REST answers, with the steps as a list.
type statsView struct {
	Queue        string            `json:"queue,omitempty"`
	Window       string            `json:"window"`
	Step         string            `json:"step"`
	Start        time.Time         `json:"start"`
	Totals       countsView        `json:"totals"`
	Steps        []countsView      `json:"steps"`
	FailureRate  float64           `json:"failure_rate"`
	Wait         latencyView       `json:"wait"`
	Run          latencyView       `json:"run"`
	Failing      []failingTypeView `json:"failing,omitempty"`
	Queues       *queueTotalsView  `json:"queues,omitempty"`
	Attention    []attentionView   `json:"attention,omitempty"`
	MissingNodes []string          `json:"missing_nodes,omitempty"`
}

type countsView struct {
	Enqueued  int64 `json:"enqueued"`
	Claimed   int64 `json:"claimed"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Crashed   int64 `json:"crashed"`
	Dead      int64 `json:"dead"`
	Poisoned  int64 `json:"poisoned"`
	Discarded int64 `json:"discarded"`
	Cancelled int64 `json:"cancelled"`
	Replayed  int64 `json:"replayed"`
}

type latencyView struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
}

type failingTypeView struct {
	Queue         string    `json:"queue"`
	Type          string    `json:"type"`
	Failures      int64     `json:"failures"`
	LastError     string    `json:"last_error,omitempty"`
	LastErrorType string    `json:"last_error_type,omitempty"`
	LastAt        time.Time `json:"last_at"`
}

type queueTotalsView struct {
	Queues           int64   `json:"queues"`
	Scheduled        int64   `json:"scheduled"`
	Ready            int64   `json:"ready"`
	Claimed          int64   `json:"claimed"`
	Retrying         int64   `json:"retrying"`
	Dead             int64   `json:"dead"`
	Poisoned         int64   `json:"poisoned"`
	OldestReady      float64 `json:"oldest_ready_age_seconds"`
	OldestReadyQueue string  `json:"oldest_ready_queue,omitempty"`
}

type attentionView struct {
	Kind     string  `json:"kind"`
	Severity string  `json:"severity"`
	Subject  string  `json:"subject,omitempty"`
	Detail   string  `json:"detail"`
	Value    float64 `json:"value"`
	More     int64   `json:"more"`
}

type ratesView struct {
	In     float64 `json:"in"`
	Out    float64 `json:"out"`
	Failed float64 `json:"failed"`
}

// seriesView are the events of a queue in a window.
type seriesView struct {
	Step      string    `json:"step"`
	Start     time.Time `json:"start"`
	In        []int64   `json:"in"`
	Out       []int64   `json:"out"`
	Failed    []int64   `json:"failed"`
	Succeeded []int64   `json:"succeeded"`
	Poisoned  []int64   `json:"poisoned"`
}

func viewCounts(c admin.EventCounts) countsView {
	return countsView{Enqueued: c.Enqueued, Claimed: c.Claimed, Succeeded: c.Succeeded, Failed: c.Failed, Crashed: c.Crashed, Dead: c.Dead,
		Poisoned: c.Poisoned, Discarded: c.Discarded, Cancelled: c.Cancelled, Replayed: c.Replayed}
}

func viewLatency(l admin.Latency) latencyView {
	return latencyView{Count: l.Count, Mean: l.Mean.Seconds(), P50: l.P50.Seconds(), P95: l.P95.Seconds(), P99: l.P99.Seconds()}
}

func viewStats(queue string, s *admin.Stats) statsView {
	v := statsView{Queue: queue, Window: period(s.Window), Step: period(s.Step), Start: s.Start, Totals: viewCounts(s.Totals), FailureRate: s.FailureRate,
		Wait: viewLatency(s.Wait), Run: viewLatency(s.Run), MissingNodes: s.MissingNodes, Steps: make([]countsView, len(s.Series))}
	for i, c := range s.Series {
		v.Steps[i] = viewCounts(c)
	}
	for _, f := range s.Failing {
		v.Failing = append(v.Failing, failingTypeView(f))
	}
	return v
}

// setRates adds to the view of a queue what happened to it lately.
func (v *queueView) setRates(q *admin.Queue) {
	v.Workers = q.Workers
	if s := q.Series; s != nil {
		v.Series = &seriesView{Step: period(s.Step), Start: s.Start, In: s.In, Out: s.Out, Failed: s.Failed, Succeeded: s.Succeeded, Poisoned: s.Poisoned}
	}
	if q.Rates == nil {
		return
	}
	rates, wait, run := ratesView(*q.Rates), viewLatency(q.Wait), viewLatency(q.Run)
	v.Rates, v.Wait, v.Run = &rates, &wait, &run
	if q.Drain != nil {
		seconds := q.Drain.Seconds()
		v.Drain = &seconds
	}
}
