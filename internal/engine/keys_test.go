package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A task that waits in the row of its lane is found, and no other, by what comes in the same round.
func TestWaitingInOneRound(t *testing.T) {
	w := NewWorld(t)
	s := task.DefaultSettings()
	s.PerKey.MaxRunning = 5
	w.PutQueue("default", s, false)
	purged := func(r *Round) int {
		n, _, err := Purge(r, "default", "default", r.now, 10)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.Round(func(r *Round) {
		add := func() {
			if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: "job", Queue: "default", Priority: task.Normal, Key: "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		add()
		if n := purged(r); n != 1 {
			t.Errorf("%d purged of one that was enqueued in the round", n)
		}
		add()
		got, _ := ClaimTasks(r, &ClaimRequest{Namespace: "default", Queues: []Share{{Queue: "default"}}, Max: 1, Lease: time.Minute})
		if n := purged(r); len(got) != 1 || n != 0 {
			t.Errorf("%d claimed, %d purged of one that was claimed in the round", len(got), n)
		}
		add() // the lane begins again
	})
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	if got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 2}); len(got) != 1 {
		t.Errorf("%d claimed of the lane that began again", len(got))
	}
}

// What a key uses is found again by the next leader, however many of its tasks are claimed and whichever have ended since.
func TestClaimsOfAKey(t *testing.T) {
	w := NewWorld(t)
	s := task.DefaultSettings()
	s.PerKey.Rules = task.Rules{MaxRunning: maxNamed + 2, Rate: task.Rate{Limit: 100, Period: time.Hour}}
	w.PutQueue("default", s, false)
	add := func(n int) {
		w.Round(func(r *Round) {
			for range n {
				if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: "job", Queue: "default", Priority: task.Normal, Key: "a"}}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	add(20)
	all := ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 20, Lease: time.Hour}
	got := w.Claim(all)
	if len(got) != maxNamed+2 {
		t.Fatalf("%d claimed", len(got))
	}
	for _, ends := range [][]int{{0}, {1, 2, 3}, {maxNamed, maxNamed + 1}} { // the key's row keeps naming the first
		w.Round(func(r *Round) {
			for _, i := range ends {
				if _, err := Ack(r, Hold{Namespace: "default", ID: got[i].ID, Token: got[i].Token}, schema.Result{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		w.BecomeLeader()
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		e, err := ExplainQueue(w.Store, "default", "default", &Glance{Now: w.Now})
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Keys) > 0 {
			t.Errorf("after %d ended, %+v", len(ends), e.Keys)
		}
		if again := w.Claim(all); len(again) != len(ends) {
			t.Fatalf("%d claimed after %d ended", len(again), len(ends))
		}
	}
}
