package engine

import (
	"strconv"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// enqueueBroken enqueues n tasks, with types and keys derived from their numbers.
func enqueueBroken(w *World, n int, of func(i int) (typ, key string)) {
	for i := 0; i < n; {
		w.Round(func(r *Round) {
			for ; i < n; i++ {
				typ, key := of(i)
				if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: typ, Queue: "default",
					Priority: task.Normal, Payload: []byte("1"), Key: key}}); err != nil {
					w.T.Fatal(err)
				}
				if i%1000 == 999 {
					i++
					return
				}
			}
		})
	}
}

// BenchmarkBreaker is BenchmarkLife with breakers that stay closed.
func BenchmarkBreaker(b *testing.B) {
	for _, types := range []int{1, 10, 10_000} {
		b.Run(strconv.Itoa(types)+" types", func(b *testing.B) {
			w := BenchWorld(b)
			s := task.DefaultSettings()
			s.Breaker = task.DefaultBreaker
			w.PutQueue("default", s, false)
			n := 0
			cpu := cpuTime()
			for b.Loop() {
				w.Now += 1000
				enqueueBroken(w, benchBatch, func(int) (string, string) {
					n++
					return "job-" + strconv.Itoa(n%types), ""
				})
				got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: benchBatch})
				w.Round(func(r *Round) {
					Tick(r)
					for _, t := range got {
						if _, err := Ack(r, Hold{Namespace: "default", ID: t.ID, Token: t.Token}, schema.Result{}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			reportPerTask(b, cpu)
		})
	}
}

// BenchmarkProbe lets a probe through of a type with tasks of 100,000 keys, and ends it again. Opening and closing moves all of them.
func BenchmarkProbe(b *testing.B) {
	w := BenchWorld(b)
	s := task.DefaultSettings()
	s.Breaker = task.DefaultBreaker
	s.Breaker.MinAttempts, s.Breaker.Probes = 1, 1
	w.PutQueue("default", s, false)
	enqueueBroken(w, Size(100_000), func(i int) (string, string) { return "job", strconv.Itoa(i) })
	fail := func(f FailRequest, verb func(r *Round, h Hold, f FailRequest) (Settled, error)) {
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
		if len(got) != 1 {
			b.Fatal("the breaker let no probe through")
		}
		if _, err := Run(w, func(r *Round) (Settled, error) {
			return verb(r, Hold{Namespace: "default", ID: got[0].ID, Token: got[0].Token}, f)
		}); err != nil {
			b.Fatal(err)
		}
	}
	release := func(r *Round, h Hold, _ FailRequest) (Settled, error) { return Release(r, h, 0) }
	b.Run("open and close", func(b *testing.B) {
		for b.Loop() {
			fail(FailRequest{}, Fail)
			w.Round(func(r *Round) { _, _ = CloseBreakers(r, "default", "default", "") })
		}
	})
	fail(FailRequest{}, Fail)
	w.Pass(task.DefaultBreaker.Hold)
	b.Run("probe", func(b *testing.B) {
		for b.Loop() {
			fail(FailRequest{}, release)
		}
	})
}
