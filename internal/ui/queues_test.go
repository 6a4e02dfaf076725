package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/chart"
)

func TestWhenAQueueIsEmpty(t *testing.T) {
	rates := &admin.QueueRates{Out: 10}
	for _, c := range []struct {
		ready, claimed int64
		rates          *admin.QueueRates
		drain          *time.Duration // the server's, as the command line shows it
		want           string
	}{
		{0, 0, nil, nil, "now"},
		{0, 0, rates, new(time.Duration(0)), "now"},
		{1, 0, nil, nil, "unknown"},
		{1, 0, rates, nil, "never at this rate"},
		{0, 5, rates, new(time.Duration(0)), "now"},
		{1, 5, rates, new(time.Minute), "about 1 min"},
		{50, 5, rates, new(5 * time.Second), "about 5 s"},
	} {
		q := &admin.Queue{Rates: c.rates, Drain: c.drain}
		q.Depth.Ready, q.Depth.Claimed = c.ready, c.claimed
		if got := drainText(q); got != c.want {
			t.Errorf("drainText with %d ready and %d claimed tasks, rates %+v and drain %v = %q, want %q", c.ready, c.claimed, c.rates,
				c.drain, got, c.want)
		}
	}
}

// TestQueueRows: a row's numbers fit their columns and can be compared down them, and a queue whose ready tasks are all held says so.
func TestQueueRows(t *testing.T) {
	row := func(d admin.Depth, oldest time.Duration, rates *admin.QueueRates) queueRow {
		return rowOf(&admin.Queue{Name: "q", Depth: d, OldestReady: oldest, Rates: rates})
	}
	text, _ := rendered(t, "queues", &queuesView{Rows: []queueRow{
		row(admin.Depth{Ready: 3}, 12*time.Minute+5*time.Second, &admin.QueueRates{In: 0.4, Out: 1.5}),
		row(admin.Depth{Ready: 4, Held: 4}, 0, nil), row(admin.Depth{}, 0, nil),
	}})
	for _, want := range []string{"In · out, per min", "24 · 90 – 12 min", "– – held", "– – –"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list lacks %q: %s", want, text)
		}
	}
	for held, want := range map[int64]string{0: "363 ready 0 claimed", 350: "363 ready, 350 held 0 claimed"} {
		q := &admin.Queue{Name: "q", Depth: admin.Depth{Ready: 363, Held: held}, OldestReady: 12*time.Minute + 5*time.Second}
		if text, _ := rendered(t, "queue", queueView{queueRow: rowOf(q), Counts: chart.DepthCounts(q.Depth),
			Stats: &admin.Stats{}}); !strings.Contains(text, want) || !strings.Contains(text, "12 min oldest wait") {
			t.Errorf("with %d held tasks, the page lacks %q or the oldest wait: %.600s", held, want, text)
		}
	}
}
