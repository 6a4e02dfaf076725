package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// A task that becomes ready during a purge moves to a row that the purge has passed.
func TestPurgeOfTasksThatMove(t *testing.T) {
	w := NewWorld(t)
	for range 3 {
		s := oneJob()
		s.Delay = time.Second
		if _, err := w.Enqueue(s); err != nil {
			t.Fatal(err)
		}
	}
	var p Purging
	purge := func() (n int) {
		n, err := Run(w, func(r *Round) (n int, err error) {
			n, p, err = Purge(r, "default", "default", p, 1)
			return n, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := purge(); n != 1 || p.Done {
		t.Fatalf("purged %d tasks, done: %t, want 1 of 3", n, p.Done)
	}
	w.Pass(time.Second)
	total := 1
	for !p.Done {
		total += purge()
	}
	if total != 3 {
		t.Errorf("purged %d tasks, want 3", total)
	}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkPurge discards 10,000 ready tasks, a hundred in each round.
func BenchmarkPurge(b *testing.B) {
	const tasks, perRound = 10_000, 100
	w := NewWorld(b)
	w.PutQueue("default", task.DefaultSettings(), false)
	for b.Loop() {
		b.StopTimer()
		for range tasks / perRound {
			w.Round(func(r *Round) {
				for range perRound {
					if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: oneJob()}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.StartTimer()
		for p := (Purging{}); !p.Done; {
			_, err := Run(w, func(r *Round) (n int, err error) {
				n, p, err = Purge(r, "default", "default", p, perRound)
				return n, err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tasks), "ns/task")
}
