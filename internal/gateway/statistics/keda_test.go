package statistics

import (
	"testing"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/stats"
)

// A queue drains as fast as its ready tasks become fewer: by claims, less the tasks that become ready. Tasks that come
// for later, or that wait to be retried, are none of them. Without ready tasks it is drained, and nothing is reported
// for unknown rates.
func TestDrains(t *testing.T) {
	const unknown = -1
	of := func(counts ...stats.Counter) (e stats.Event) {
		e = stats.Event{Namespace: "n", Queue: "q", Type: "t", Ran: -1}
		for _, c := range counts {
			e.Counts = e.Counts.With(c)
		}
		return e
	}
	readied := func(e stats.Event) stats.Event { e.Readied = true; return e }
	ready, later := readied(of(stats.Enqueued)), of(stats.Enqueued) // later: delayed, or scheduled for a time
	due, claim, done, failed := readied(of()), of(stats.Claimed), of(stats.Succeeded), of(stats.Failed)
	released := readied(of(stats.Released))
	for _, c := range []struct {
		name           string
		events         []stats.Event // each happens once a second
		ready, claimed int64
		want           float64 // in seconds
	}{
		{"nothing has happened", nil, 1, 0, unknown},
		{"an empty queue", []stats.Event{ready, claim, done}, 0, 0, 0},
		{"only running tasks", []stats.Event{done}, 0, 3, 0},
		{"workers claim twice as many as come", []stats.Event{ready, claim, claim, done, done}, 5, 2, 5},
		{"as many come as are claimed", []stats.Event{ready, claim, done}, 5, 0, unknown},
		{"more come than are claimed", []stats.Event{ready, ready, claim, done}, 5, 0, unknown},
		{"delayed tasks come", []stats.Event{later, later, later, claim, done}, 5, 0, 5},
		{"delayed tasks become due", []stats.Event{due, claim, claim, done, done}, 5, 0, 5},
		{"more of them than are claimed", []stats.Event{due, due, claim, done}, 5, 0, unknown},
		{"ticks of a schedule, and half as many claims", []stats.Event{ready, ready, claim, done}, 5, 0, unknown},
		{"half of the attempts fail and are retried later", []stats.Event{claim, claim, done, failed}, 6, 0, 3},
		{"all attempts fail, and their retries are due", []stats.Event{due, claim, failed}, 5, 0, unknown},
		{"workers release what they claim", []stats.Event{claim, released}, 5, 0, unknown},
		{"nothing is claimed, and tasks are cancelled", []stats.Event{of(stats.Cancelled)}, 5, 0, unknown},
	} {
		now := time.Now()
		recorder := stats.New(now.Add(-time.Hour))
		for at := range 60 {
			recorder.Record(now.Add(time.Duration(at)*time.Second), c.events)
		}
		q := &pawlv1.Queue{Depth: &pawlv1.Depth{Ready: c.ready, Claimed: c.claimed}}
		setRates(q, &recorder.Briefs(now.Add(59*time.Second), "n", []string{"q"})[0])
		got := float64(unknown)
		if q.DrainSeconds != nil {
			got = *q.DrainSeconds
		}
		if got != c.want {
			t.Errorf("%s: drains in %v s, want %v", c.name, got, c.want)
		}
	}
	q := &pawlv1.Queue{Depth: &pawlv1.Depth{}}
	if setRates(q, &stats.Brief{}); q.DrainSeconds != nil || q.Rates != nil {
		t.Errorf("without a span: %v, want no rates", q)
	}
}
