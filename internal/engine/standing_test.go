package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// TestNewDeadAreCountedUpToABound: of a queue with more of them than are counted is said that there are more.
func TestNewDeadAreCountedUpToABound(t *testing.T) {
	w := NewWorld(t)
	for range 3 {
		w.Die("mail", 1, Deadly)
		w.Pass(time.Minute)
	}
	for _, c := range []struct {
		back time.Duration
		most int64
		want int64
		more bool
	}{{time.Hour, 10, 3, false}, {time.Hour, 3, 3, false}, {time.Hour, 2, 2, true}, {90 * time.Second, 10, 1, false}, {2 * time.Minute, 10, 2, false}, {0, 10, 0, false}} {
		s := &Standing{Namespace: "default", Queue: "mail"}
		if s.countNewDead(w.Store, w.Now.Add(-c.back), c.most); s.NewDead != c.want || s.MoreNewDead != c.more {
			t.Errorf("of the last %v, at most %d: %d (more: %v), want %d (%v)", c.back, c.most, s.NewDead, s.MoreNewDead, c.want, c.more)
		}
	}
}

// Die makes dead letters in a queue, all in one round, or poisoned tasks.
func (w *World) Die(queue string, n int, f FailRequest) {
	w.T.Helper()
	for range n {
		if _, err := w.Enqueue(task.Spec{Type: "job", Queue: queue, MaxAttempts: 1}); err != nil {
			w.T.Fatal(err)
		}
	}
	claimed := w.Claim(ClaimRequest{Queues: []Share{{Queue: queue}}, Max: n, Lease: time.Hour})
	w.Round(func(r *Round) {
		for _, c := range claimed {
			if _, err := Fail(r, Hold{Namespace: "default", ID: c.ID, Token: c.Token}, f); err != nil {
				w.T.Fatal(err)
			}
		}
	})
}

var Deadly = FailRequest{Fall: FallDead, Failure: schema.Failure{Type: "io", Message: "\n  disk 7 is full\nat line 3"}}
