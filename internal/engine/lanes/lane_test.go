package lanes

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
)

// Tasks are added to a lane, mostly at the end, and removed. Its head holds the first of them, all before scan, and
// nothing behind needs to be read twice.
func TestLaneHead(t *testing.T) {
	was := Bounds
	defer func() { Bounds = was }()
	Bounds.LaneHead = 4
	rng := rand.New(rand.NewPCG(3, 4))
	l := &Lane{scan: 100}
	var all []schema.ReadyTask // in order
	next := uint64(100)
	for step := range 5000 {
		switch n := len(all); {
		case n == 0 || n < 20 && rng.IntN(2) == 0:
			task := schema.ReadyTask{Seq: next}
			if next += 1 + rng.Uint64N(3); rng.IntN(3) == 0 {
				task.Seq = 1 + rng.Uint64N(99) // one that returns to its old place
			}
			at, there := slices.BinarySearchFunc(all, task, func(a, b schema.ReadyTask) int { return cmp.Compare(a.Seq, b.Seq) })
			if there {
				continue
			}
			inMemory := len(l.head) == n // all of them
			l.insert(task)
			all = slices.Insert(all, at, task)
			if inMemory && n < Bounds.LaneHead && len(l.head) != n+1 {
				t.Fatalf("step %d: %d of %d tasks are in memory", step, len(l.head), n+1)
			}
		default:
			i := rng.IntN(n)
			l.remove(all[i].Seq)
			all = slices.Delete(all, i, i+1)
		}
		if len(l.head) == 0 && len(all) > 0 { // as fill does
			l.head = slices.Clone(all[:min(len(all), Bounds.LaneHead)])
			l.scan = l.head[len(l.head)-1].Seq + 1
		}
		n := len(l.head)
		switch {
		case l.count != int64(len(all)) || n > 2*Bounds.LaneHead || n > len(all) || !slices.Equal(l.head, all[:n]):
			t.Fatalf("step %d: the lane counts %d tasks with the head %v, want %v", step, l.count, l.head, all)
		case n < len(all) && all[n].Seq < l.scan || n > 0 && (l.scan <= l.head[n-1].Seq || l.first() != l.head[0].Seq):
			t.Fatalf("step %d: the lane begins at %d and is read up to %d, with %v in memory of %v", step, l.first(), l.scan, l.head, all)
		}
	}
}
