package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// A task stored in the row of its lane is found, and no other, by later steps of the same round.
func TestWaitingInOneRound(t *testing.T) {
	w := NewWorld(t)
	s := task.DefaultSettings()
	s.PerKey.MaxRunning = 5
	w.PutQueue("default", s, false)
	purged := func(r *Round) int {
		n, _, err := Purge(r, "default", "default", Purging{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.Round(func(r *Round) {
		add := func() {
			if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: "job", Queue: "default",
				Priority: task.Normal, Key: "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		add()
		if n := purged(r); n != 1 {
			t.Errorf("purged %d tasks, want the one that was enqueued in this round", n)
		}
		add()
		got, _ := ClaimTasks(r, &ClaimRequest{Namespace: "default", Queues: []Share{{Queue: "default"}}, Max: 1, Lease: time.Minute})
		if n := purged(r); len(got) != 1 || n != 0 {
			t.Errorf("claimed %d tasks in this round, then purged %d, want 1 and 0", len(got), n)
		}
		add() // a new lane begins
	})
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	if got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 2}); len(got) != 1 {
		t.Errorf("claimed %d tasks of the new lane, want 1", len(got))
	}
}
