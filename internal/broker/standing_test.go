package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// TestIdleQueues: of more queues than are looked at closely, all that nobody takes are counted, and no others.
func TestIdleQueues(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		configs, specs := map[string]task.QueueConfig{}, []task.Spec{}
		add := func(name string, tasks int, paused bool) {
			configs[name] = task.QueueConfig{Version: 1, Settings: task.DefaultSettings(), Paused: paused}
			for range tasks {
				s := task.Spec{Type: "job", Queue: name}
				s.Fill()
				specs = append(specs, s)
			}
		}
		for i := range engine.Closely {
			add(fmt.Sprintf("large-%d", i), 3, false)
		}
		add("paused", 1, true)
		add("taken", 1, false)
		add("idle", 1, false)
		add("idle-2", 2, false)
		w.must(w.CopyQueues(ctx, one, ns, configs))
		_, _, err := w.Enqueue(ctx, one, ns, specs)
		w.must(err)
		_, _, err = w.Claim(ctx, one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "taken"}}, Max: 1, MaxBytes: 1 << 20, Lease: time.Second}, 0)
		w.must(err)
		w.pass(2 * time.Second) // it is ready again, and somebody asked a moment ago
		got, err := w.Standing(ctx, ns, 0)
		w.must(err)
		if want := (Idle{Queues: 2, Tasks: 3, Largest: "idle-2", Most: 2}); got.Idle != want || len(got.Busy) != engine.Closely {
			t.Errorf("idle beside the %d that were looked at: %+v; want %+v", len(got.Busy), got.Idle, want)
		}
	})
}

// TestIdleParts: a queue that lies in several shards is idle if nobody takes any part that has ready tasks.
func TestIdleParts(t *testing.T) {
	idle, served, empty := Standing{Idle: true, Ready: 1}, Standing{Ready: 1}, Standing{}
	for _, c := range []struct {
		a, b Standing
		want bool
	}{{idle, idle, true}, {idle, empty, true}, {empty, idle, true}, {idle, served, false}, {served, idle, false}, {empty, empty, false}} {
		sum := c.a
		if sum.Add(&c.b); sum.Idle != c.want {
			t.Errorf("%+v and %+v are idle: %v, want %v", c.a, c.b, sum.Idle, c.want)
		}
	}
}

// TestCountsEnd: a count without patience ends after some rows and says that there may be more; one with patience counts all, by state.
func TestCountsEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		w.must(w.CopyQueues(ctx, one, ns, map[string]task.QueueConfig{"mail": {Version: 1, Settings: task.DefaultSettings()}}))
		specs := make([]task.Spec, 1000)
		for i := range specs {
			specs[i] = task.Spec{Type: "job", Queue: "mail"}
			specs[i].Fill()
		}
		for range countRows/len(specs) + 1 {
			_, _, err := w.Enqueue(ctx, one, ns, specs)
			w.must(err)
		}
		for _, c := range []struct {
			patience time.Duration
			claims   int
			want     string
		}{{0, 0, "5000 map[ready:5000], more: true"}, {time.Second, 7, "6000 map[claimed:7 ready:5993], more: false"}} {
			if c.claims > 0 {
				_, _, err := w.Claim(ctx, one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "mail"}}, Max: c.claims, MaxBytes: 1 << 20, Lease: time.Hour}, 0)
				w.must(err)
			}
			n, _, err := w.CountMatches(ctx, one, ns, Filter{Queue: "mail"}, 0, c.patience)
			w.must(err)
			states := map[string]int64{}
			for s, k := range n.States {
				states[s.String()] = k
			}
			if got := fmt.Sprintf("%d %v, more: %t", n.Count, states, n.Next != nil); got != c.want {
				t.Errorf("for %v: %s, want %s", c.patience, got, c.want)
			}
		}
	})
}
