package query

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Matches summarizes the tasks that a filter selects in a shard.
type Matches struct {
	Count  int64
	States map[task.State]int64 // by state
	Sample []*View              // the newest ones
	Next   []byte               // where to continue counting; nil: the count is complete
}

func (n *Matches) take(s task.State, count int64) {
	if n.States == nil {
		n.States = map[task.State]int64{}
	}
	n.States[s] += count
	n.Count += count
}

// Add adds the matches of a later part of the shard, or of another shard.
func (n *Matches) Add(o Matches) {
	for s, count := range o.States {
		n.take(s, count)
	}
	n.Sample = append(n.Sample, o.Sample...)
}

// CountMatches counts the tasks that a filter selects, reading roughly that many rows from a cursor on, and returns the
// first few as a sample. If the queues' counters suffice, it reads no tasks.
func CountMatches(from store.Reader, ns string, f Filter, cursor []byte, rows, sample int) (n Matches, err error) {
	if cursor == nil && f.onlyCounted() {
		for _, c := range f.InStates(from, ns) {
			n.take(c.State, c.N)
		}
		if sample > 0 && n.Count > 0 {
			p, err := List(from, ns, f, nil, sample)
			n.Sample = p.Tasks
			return n, err
		}
		return n, nil
	}
	reach, err := f.Walk(from, ns, cursor, BudgetOf(rows, 20_000), func(id task.ID, x *schema.Exec) bool {
		n.take(x.State, 1)
		if len(n.Sample) < sample {
			n.Sample = append(n.Sample, ShowFrom(from, ns, id, x))
		}
		return true
	})
	n.Next = reach.Next
	return n, err
}
