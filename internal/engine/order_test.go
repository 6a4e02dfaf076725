package engine

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

func strictOrder() task.Settings {
	s := task.DefaultSettings()
	s.KeyOrder = task.KeyOrderStrict
	return s
}

// ShortLines makes a leader keep little of the order of keys in memory.
func ShortLines(t testing.TB) {
	was := lanes.OrderBounds
	t.Cleanup(func() { lanes.OrderBounds = was })
	lanes.OrderBounds.Lines, lanes.OrderBounds.Line = 3, 2
}

// Tasks that wait behind others of their key take no memory, and a new leader's first claim reads no more than in other queues.
func TestManyOrderedKeys(t *testing.T) {
	const keys = 20_000
	w := NewWorld(t)
	w.PutQueue("default", strictOrder(), false)
	w.enqueueKeys(keys, oneJob())
	w.enqueueKeys(keys, oneJob())
	w.enqueueKeys(keys, oneJob())
	q := func() *Queue { return w.Leader.queues[queueName{"default", "default"}] }
	inMemory := func(when string) {
		t.Helper()
		m := q().lanes.Memory()
		if m.Tasks > keys || m.Flows > lanes.Bounds.Warm+201 {
			t.Errorf("%s: %d tasks are in lanes, and %d flows are in memory", when, m.Tasks, m.Flows)
		}
	}
	inMemory("after enqueues")
	w.BecomeLeader()
	claim := ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 100, Lease: time.Hour}
	for range 3 { // the last two while ticks read
		got := w.Claim(claim)
		if len(got) != 100 || w.read > lanes.Bounds.ClaimRead {
			t.Errorf("a claim got %d tasks and read %d lanes", len(got), w.read)
		}
		w.Round(func(r *Round) {
			for _, c := range got {
				if _, err := Ack(r, Hold{Namespace: "default", ID: c.ID, Token: c.Token}, schema.Result{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		w.Round(Tick)
	}
	for w.Leader.NextDeadline() <= w.Now {
		w.Round(Tick)
	}
	inMemory("when all are read")
	if n := q().counts.Behind; n != 2*keys-300 {
		t.Errorf("%d tasks wait behind another one", n)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

// A purge, and the ends of a million tasks behind one, proceed in bounded steps: the end of each puts one other into its lane.
func TestPurgeOfOrderedKey(t *testing.T) {
	w := NewWorld(t)
	w.PutQueue("default", strictOrder(), false)
	spec := oneJob()
	spec.Key = "a"
	for range 50 {
		if _, err := w.Enqueue(spec); err != nil {
			t.Fatal(err)
		}
	}
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 9})
	if len(got) != 1 {
		t.Fatalf("claimed %d tasks, want 1", len(got))
	}
	total := 0
	for p := (Purging{}); !p.Done; {
		n, err := Run(w, func(r *Round) (n int, err error) {
			n, p, err = Purge(r, "default", "default", p, 7)
			return n, err
		})
		if err != nil || n > 7 {
			t.Fatalf("purged %d tasks (%v)", n, err)
		}
		total += n
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if total != 49 {
		t.Errorf("purged %d tasks, want 49", total)
	}
}

// Tasks with consecutive places follow each other, even if a leader has to look up the next.
func TestNeighboursInOrder(t *testing.T) {
	ShortLines(t)
	w := NewWorld(t)
	w.PutQueue("default", strictOrder(), false)
	w.Round(func(r *Round) {
		for range 4 {
			s := oneJob()
			s.Key, s.Delay = "a", time.Second
			if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: s}); err != nil {
				t.Fatal(err)
			}
		}
	})
	w.Pass(time.Second)
	for i := range 4 {
		w.BecomeLeader()
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
		if len(got) != 1 {
			t.Fatalf("after %d tasks, claimed %d, want 1", i, len(got))
		}
		if _, err := Run(w, func(r *Round) (Settled, error) {
			return Ack(r, Hold{Namespace: "default", ID: got[0].ID, Token: got[0].Token}, schema.Result{})
		}); err != nil {
			t.Fatal(err)
		}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkOrder is BenchmarkLife over 10,000 keys of which each has three tasks that wait, with a strict order of keys and without.
func BenchmarkOrder(b *testing.B) {
	keys := Size(10_000)
	for _, order := range []task.KeyOrder{task.KeyOrderNone, task.KeyOrderStrict} {
		b.Run(map[task.KeyOrder]string{task.KeyOrderNone: "none", task.KeyOrderStrict: "strict"}[order], func(b *testing.B) {
			w := BenchWorld(b)
			s := task.DefaultSettings()
			s.KeyOrder, s.MaxRunning = order, 10_000 // so that both have limits, and lanes of the same form
			w.PutQueue("default", s, false)
			rng := rand.New(rand.NewPCG(1, 2))
			enqueue := func(n int, key func() int) {
				w.Now += 1000
				w.Round(func(r *Round) {
					Tick(r)
					for range n {
						if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: task.Spec{Type: "job", Queue: "default",
							Priority: task.Normal, Payload: []byte("1"), Key: "tenant-" + strconv.Itoa(key())}}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			at := 0
			for range 3 * keys / 500 {
				enqueue(500, func() int { at++; return at % keys })
			}
			cpu := cpuTime()
			for b.Loop() {
				enqueue(benchBatch, func() int { return rng.IntN(keys) })
				got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: benchBatch})
				if len(got) != benchBatch {
					b.Fatalf("claimed %d tasks", len(got))
				}
				w.Round(func(r *Round) {
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
