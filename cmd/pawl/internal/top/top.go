// Package top implements "pawl top": a server's queues, workers and failures on one screen that refreshes itself.
package top

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

const (
	// topLimit is the maximum number of queues and of workers: one page of each.
	topLimit = 1000
	// topPatience is how long pawl top waits for an answer before it reports that there is none.
	topPatience = 10 * time.Second
	// Bounds of --every.
	minTopEvery, maxTopEvery = 500 * time.Millisecond, time.Hour
)

// New returns the command "pawl top".
func New(a *cli.App) *cobra.Command {
	every := cli.WatchEvery
	cmd := &cobra.Command{
		Use: "top", Short: "Watch queues, workers and failures live", Args: cli.NoArgs,
		Long: `Watch queues, workers and failures live, full-screen: rates, waits, failures of the last hour, and what needs attention
now. Press ? for the keys. Without a terminal, "pawl stats", "pawl queue ls" and "pawl worker ls" show the same.`,
		Example: "  pawl top\n  pawl top --every 5s",
	}
	cmd.Flags().DurationVar(&every, "every", every, "refresh interval, 500ms to 1h")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, _ []string) error {
		if every < minTopEvery || every > maxTopEvery {
			return cli.Usage("--every %s is not between %s and %s", every, minTopEvery, maxTopEvery)
		}
		if a.Format != "table" {
			return cli.Usage("--output %q: top is for a terminal; \"pawl stats\" and \"pawl queue ls\" write %s", a.Format, a.Format)
		}
		if text.DumbTerminal() {
			return cli.Usage("top needs a terminal whose cursor it can move, and TERM is \"dumb\": \"pawl stats\" and \"pawl queue ls " +
				"--watch\" do without")
		}
		if !text.IsTerminal(a.In) || !text.IsTerminal(a.Out) {
			return cli.Usage("top needs a terminal: \"pawl stats\" and \"pawl queue ls --watch\" do without")
		}
		operator := a.Admin(client)
		if _, err := operator.Cluster().Server(cmd.Context()); err != nil { // a wrong address should not clear the screen
			return err
		}
		screen, err := tcell.NewScreen()
		if err == nil {
			err = screen.Init()
		}
		if err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		defer screen.Fini()
		v := &model{server: a.Server, every: every, now: time.Now}
		run(cmd.Context(), screen, v, func(ctx context.Context) (shot, error) {
			s, err := takeShot(ctx, operator)
			if err != nil {
				return s, errors.New(a.Describe(err))
			}
			return s, nil
		})
		return nil
	})
	return cmd
}

// takeShot asks the broker for everything that pawl top shows.
func takeShot(ctx context.Context, operator admin.Client) (shot, error) {
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	queues, err := operator.Queues().ListPage(ctx, admin.QueueFilter{}, pawltype.PageRequest{Limit: topLimit})
	if err != nil {
		return shot{}, err
	}
	workers, err := operator.Workers().ListPage(ctx, admin.WorkerFilter{}, pawltype.PageRequest{Limit: topLimit})
	if err != nil {
		return shot{}, err
	}
	stats, err := operator.Stats(ctx, 5*time.Minute)
	if err != nil {
		return shot{}, err
	}
	s := shot{at: time.Now(), sums: sumsOf(stats), moreQueues: queues.NextCursor != "", moreWorkers: workers.NextCursor != ""}
	s.list(queues.Items, workers.Items)
	s.addRates()
	s.note(stats)
	for _, m := range cli.JoinMissing(cli.JoinMissing(queues.Missing, workers.Missing), stats.Missing) {
		name := m.Node
		if name == "" {
			name = fmt.Sprintf("shard %d", m.Shard)
		}
		s.away = append(s.away, name)
	}
	return s, nil
}

// list adds the queues, each with the number of workers that take tasks from it, and the workers.
func (s *shot) list(queues []*admin.Queue, workers []*admin.Worker) {
	takers := map[string]int{}
	for _, w := range workers {
		s.workers = append(s.workers, workerOf(w, s.at))
		if w.Lost() {
			continue
		}
		for _, q := range queueNames(w.Queues) {
			takers[q]++
		}
	}
	for _, q := range queues {
		workers := takers[q.Name]
		if q.Workers != nil { // of all workers, while those listed may be the first of more
			workers = *q.Workers
		}
		s.queues = append(s.queues, queueOf(q, workers))
	}
}

// addRates makes the totals' rates those of the queues, if all are listed: a server that started a moment ago has
// counted for less than the minute of the totals, and the queues' rates allow for that.
func (s *shot) addRates() {
	if s.moreQueues {
		return
	}
	s.sums.in, s.sums.out, s.sums.failing = 0, 0, 0
	for _, q := range s.queues {
		s.sums.in, s.sums.out, s.sums.failing = s.sums.in+q.in, s.sums.out+q.out, s.sums.failing+q.failing
	}
}

// note adds the failures, and what needs attention.
func (s *shot) note(stats *admin.NamespaceStats) {
	for _, f := range stats.Failing {
		s.failures = append(s.failures, failure{queue: humanize.Named(f.Queue, "queues"), typ: humanize.Named(f.Type, "types"),
			last: f.LastError, failures: f.Failures, lastAt: f.LastAt})
	}
	for _, at := range stats.Attention {
		s.notes = append(s.notes, note{grave: at.Severity == "critical", text: text.Printable(at.Detail)})
	}
}

// sumsOf returns totals over all queues. Rates are those of the last complete minute, for which a server that started
// later counts as idle.
func sumsOf(s *admin.NamespaceStats) sums {
	q := s.Queues
	out := sums{queues: q.Queues, scheduled: q.Scheduled, ready: q.Ready, claimed: q.Claimed, retrying: q.Retrying, dead: q.Dead,
		poisoned: q.Poisoned, oldest: q.OldestReady}
	whole := s.Series[:max(len(s.Series)-1, 0)] // the last step is not complete
	if s.Step > 0 {
		whole = whole[max(len(whole)-int(time.Minute/s.Step), 0):]
	}
	seconds := float64(len(whole)) * s.Step.Seconds()
	if seconds == 0 {
		return out
	}
	for _, c := range whole {
		out.in += float64(c.Enqueued+c.Replayed) / seconds
		out.out += float64(c.Succeeded+c.Dead+c.Poisoned+c.Discarded+c.Cancelled) / seconds
		out.failing += float64(c.Failed+c.Crashed) / seconds
	}
	return out
}

func queueOf(q *admin.Queue, workers int) queue {
	t := queue{name: q.Name, ready: q.Depth.Ready, held: q.Depth.Held, scheduled: q.Depth.Scheduled, retrying: q.Depth.Retrying,
		claimed: q.Depth.Claimed, dead: q.Depth.Dead, poisoned: q.Depth.Poisoned, wait95: q.Wait.P95, run95: q.Run.P95, workers: workers,
		note: view.QueueNote(q)}
	if q.Depth.Ready > 0 {
		t.oldest = q.OldestReady
	}
	if q.Rates != nil {
		t.in, t.out, t.failing = q.Rates.In, q.Rates.Out, q.Rates.Failed
	}
	if q.Drain != nil {
		t.drain, t.drains = *q.Drain, true
	}
	return t
}

func workerOf(w *admin.Worker, now time.Time) worker {
	t := worker{id: w.Name, host: w.Host, node: w.Node, queues: view.QueueWords(w.Queues), slots: w.Slots, claimed: w.Running,
		lastClaim: w.ClaimedAt}
	if w.Lost() {
		t.lost, t.note = true, "lost "+text.Ago(w.LostAt, now)
		return t
	}
	for _, task := range w.Tasks {
		t.longest = max(t.longest, now.Sub(task.Since))
	}
	switch {
	case w.Draining:
		t.note = "draining"
	case w.Quiet != nil:
		t.note = "quiet"
		if w.Quiet.Reason != "" {
			t.note += ": " + w.Quiet.Reason
		}
	}
	return t
}

func queueNames(q pawl.Queues) []string {
	switch q := q.(type) {
	case pawl.Strict:
		return q
	case pawl.Weighted:
		return slices.Collect(maps.Keys(q))
	}
	return nil
}
