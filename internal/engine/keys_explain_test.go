package engine_test

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// The next leader finds what a key uses, however many of its tasks are claimed and whichever have ended since.
func TestClaimsOfAKey(t *testing.T) {
	w := engine.NewWorld(t)
	s := task.DefaultSettings()
	s.PerKey.Rules = task.Rules{MaxRunning: limit.MaxNamed + 2, Rate: task.Rate{Limit: 100, Period: time.Hour}}
	w.PutQueue("default", s, false)
	add := func(n int) {
		w.Round(func(r *engine.Round) {
			for range n {
				if _, err := engine.Enqueue(r, &engine.NewTask{Namespace: "default", ID: w.NewID(),
					Spec: task.Spec{Type: "job", Queue: "default",
						Priority: task.Normal, Key: "a"}}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	add(20)
	all := engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Max: 20, Lease: time.Hour}
	got := w.Claim(all)
	if len(got) != limit.MaxNamed+2 {
		t.Fatalf("claimed %d tasks, want as many as the key may run", len(got))
	}
	for _, ends := range [][]int{{0}, {1, 2, 3}, {limit.MaxNamed, limit.MaxNamed + 1}} { // the key's row still lists the first
		w.Round(func(r *engine.Round) {
			for _, i := range ends {
				if _, err := engine.Ack(r, engine.Hold{Namespace: "default", ID: got[i].ID, Token: got[i].Token},
					schema.Result{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		w.BecomeLeader()
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		e, err := explain.Queue(w.Store, "default", "default", &explain.Memory{Now: w.Now})
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Keys) > 0 {
			t.Errorf("after %d tasks ended, the keys are %+v", len(ends), e.Keys)
		}
		if again := w.Claim(all); len(again) != len(ends) {
			t.Fatalf("claimed %d tasks after %d ended", len(again), len(ends))
		}
	}
}
