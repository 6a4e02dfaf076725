package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// BenchmarkSearch reads the first page of filters that select a few old tasks, next to 1,000,000 newer ones in another
// queue: a fifth of them claimed once and done, the rest ready.
func BenchmarkSearch(b *testing.B) {
	w := BenchWorld(b)
	many := Size(1_000_000)
	w.PutQueue("mail", task.DefaultSettings(), false)
	want := w.rare("mail", "mail.rare")
	payload := benchPayload()[:200]
	for n := 0; n < many; n += 1000 {
		w.Now += store.Time(100 * time.Millisecond / time.Microsecond)
		w.Round(func(r *Round) {
			for i := range 1000 {
				s := task.Spec{Type: fmt.Sprint("job.", i%10), Queue: "default", Priority: task.Normal, Payload: payload,
					Tags: []string{"bulk"}}
				if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Fresh: true, Spec: s}); err != nil {
					b.Fatal(err)
				}
			}
		})
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 200})
		w.Round(func(r *Round) {
			for _, t := range got {
				if _, err := Ack(r, Hold{Namespace: "default", ID: t.ID, Token: t.Token}, schema.Result{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if err := w.Store.Flush(); err != nil {
		b.Fatal(err)
	}
	state := func(s task.State) query.Filter { return query.Filter{States: []task.State{s}} }
	for _, c := range []struct {
		name   string
		filter query.Filter
		want   int
	}{
		{"dead", state(task.Dead), min(want[task.Dead], 100)},
		{"claimed", state(task.Claimed), want[task.Claimed]},
		{"retrying", state(task.Retrying), want[task.Retrying]},
		{"cancelled", state(task.Cancelled), want[task.Cancelled]},
		{"succeeded", state(task.Succeeded), 100},
		{"ready", state(task.Ready), 100},
		{"poisoned_in_queue", query.Filter{Queue: "default", States: []task.State{task.Poisoned}}, 0},
		{"succeeded_in_queue", query.Filter{Queue: "mail", States: []task.State{task.Succeeded}}, want[task.Succeeded]},
		{"discarded_in_queue", query.Filter{Queue: "default", States: []task.State{task.Discarded}}, 0},
		{"type", query.Filter{Type: "mail.rare"}, 100},
		{"type_in_queue", query.Filter{Queue: "default", Type: "none"}, 0},
		{"common_type", query.Filter{Type: "job.3"}, 100},
		{"type_and_state", query.Filter{Type: "mail.rare", States: []task.State{task.Succeeded}}, want[task.Succeeded]},
		{"ready_type", query.Filter{Type: "mail.rare", States: []task.State{task.Ready}}, want[task.Ready]},
		{"error", query.Filter{Error: "boom"}, 100},
		{"tag_partial", query.Filter{Tag: "none"}, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			rows := 0
			for b.Loop() {
				p, err := query.List(w.Store, "default", c.filter, nil, 100)
				if err != nil || len(p.Tasks) != c.want {
					b.Fatalf("listed %d tasks (%v), want %d", len(p.Tasks), err, c.want)
				}
				rows = p.Rows
			}
			b.ReportMetric(float64(rows), "rows/page")
		})
	}
	b.Run("count_dead", func(b *testing.B) {
		for b.Loop() {
			if n, err := query.CountMatches(w.Store, "default", state(task.Dead), nil, 5000, 10); err != nil ||
				n.Count != int64(want[task.Dead]) || n.Next != nil {
				b.Fatal(n.Count, n.Next, err)
			}
		}
	})
}
