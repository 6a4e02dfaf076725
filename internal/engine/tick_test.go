package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Whichever tables deadlines are in, and however many are due at the same time, they are handled in order of time, a
// bounded number per round, and none is left out.
func TestDeadlinesPassInOrder(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := NewWorld(t)
		kinds := [][]schema.DeadlineKind{{schema.OnRequest, schema.OnLease}, {schema.OnTick, schema.OnLease},
			{schema.OnRequest, schema.OnTick,
				schema.OnLease, schema.OnLease}, {schema.OnLease}, {schema.OnRequest}}[seed%5]
		var want []schema.Deadline
		set := func(many int, span store.Time) {
			w.Round(func(r *Round) {
				for range many {
					id := w.NewID() // of no task and no schedule: it has no effect
					d := schema.Deadline{At: w.Now + store.Time(rng.IntN(int(span))), Kind: kinds[rng.IntN(len(kinds))],
						Namespace: "default", Rest: id[:]}
					if d.Kind == schema.OnTick {
						d.Rest = append(d.Rest, 0)
					}
					if d.Kind.Shared() {
						d.Shared = []task.ID{id}
						if rng.IntN(20) == 0 {
							d.Shared = slices.Repeat(d.Shared, 1+rng.IntN(deadline.MaxShared))
						}
					}
					if d.Kind.OfKeys() {
						d.Keys = slices.Repeat([][]byte{id[:]}, 1+rng.IntN(3))
					}
					r.tx.Set(d.Key(), d.Value())
					r.l.timelines.Set(d.At, d.Kind)
					want = append(want, d)
				}
			})
		}
		set(2500, 5000)
		for rounds := 0; len(want) > 0; rounds++ {
			if rounds > 3000 {
				t.Fatalf("seed %d: %d deadlines were never handled", seed, len(want))
			}
			if w.Now = max(w.Now, w.Leader.NextDeadline()) + store.Time(rng.IntN(2000)); rng.IntN(4) == 0 {
				set(rng.IntN(300), 3000)
			}
			w.Round(Tick)
			slices.SortFunc(want, schema.Deadline.Compare)
			left := w.deadlines()
			passed, acts := len(want)-len(left), 0
			for _, d := range want[:max(passed, 0)] {
				acts += d.Acts()
			}
			if passed < 0 || acts > tickLimit {
				t.Fatalf("seed %d: %d deadlines were handled in a round for %d tasks, want at most %d", seed, passed, acts, tickLimit)
			}
			if !slices.EqualFunc(left, want[passed:], func(a, b schema.Deadline) bool { return a.Compare(b) == 0 }) {
				t.Fatalf("seed %d: of %d deadlines %d were handled, but not the first ones", seed, len(want), passed)
			}
			if want = want[passed:]; len(want) > 0 && want[0].At < w.Leader.NextDeadline() {
				t.Fatalf("seed %d: a deadline at %d is left, but the next is reported at %d", seed, want[0].At, w.Leader.NextDeadline())
			}
			if rng.IntN(20) == 0 {
				w.BecomeLeader()
			}
		}
	}
}

// deadlines returns those of all tables, in order of time.
func (w *World) deadlines() (all []schema.Deadline) {
	for _, tab := range schema.Timelines {
		w.Store.Scan([]byte{tab}, []byte{tab + 1}, func(k, v []byte) bool {
			all = append(all, schema.ReadDeadline(k, v))
			return true
		})
	}
	slices.SortFunc(all, schema.Deadline.Compare)
	return all
}

// BenchmarkDue makes 10,000 scheduled tasks ready that are due at the same time.
func BenchmarkDue(b *testing.B) {
	const tasks, perRound = 10_000, 100
	w := NewWorld(b)
	w.PutQueue("default", task.DefaultSettings(), false)
	for b.Loop() {
		b.StopTimer()
		spec := oneJob()
		spec.Delay = time.Hour
		for range tasks / perRound {
			w.Round(func(r *Round) {
				for range perRound {
					if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: w.NewID(), Spec: spec}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.StartTimer()
		w.Pass(spec.Delay)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tasks), "ns/task")
}

// Rows that are no deadlines of this release, more than one round reads, stop nothing that is due after them.
func TestManyUnknownDeadlines(t *testing.T) {
	for _, rows := range []int{1, tickLimit - 1, tickLimit, 2*tickLimit + 1} {
		w := NewWorld(t)
		w.Round(func(r *Round) {
			for i := range rows {
				r.tx.Set(schema.DeadlineKey(w.Now, 200, "default", binary.BigEndian.AppendUint32(nil, uint32(i))), nil)
			}
		})
		delayed := oneJob()
		delayed.Delay = time.Second
		a, err := w.Enqueue(delayed)
		if err != nil {
			t.Fatal(err)
		}
		w.BecomeLeader()
		w.Pass(time.Second)
		if x, err := schema.ReadExec(w.Store, "default", a.ID); err != nil || x.State != task.Ready {
			t.Errorf("after %d rows that are no deadlines, the task is %+v (%v), want ready", rows, x, err)
		}
		if n := schema.CountApart(w.Store, 0); n["default"] != min(int64(rows), maxApart) {
			t.Errorf("%v of %d rows are set apart", n, rows)
		}
	}
}
