package lanes

import (
	"math"
	"slices"
	"sort"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Bounds of what a position looks at: it is computed in a round, and must not hold up other calls.
const (
	MaxBefore      = 1_000 // older tasks counted, and other keys examined
	maxBeforeReads = 100   // lanes that are read to see which key's task is older, for keys that have used the same
	maxBeforeLanes = 100   // types of a key whose older tasks are counted
	maxHigher      = 1_000 // lanes whose tasks of higher priority are counted
)

// Position is the place of a waiting task in its queue, as claims see it. Reading it changes nothing; it is valid until the round writes.
type Position struct {
	// Takes says which types the workers take that may claim the task; nil: any. Tasks of other types do not come before it.
	Takes func(typ string) bool

	r    *Round
	s    *Set
	x    *schema.Exec
	flow *Flow     // nil: its key has no ready or claimed tasks, or is cold
	cold *coldLane // of its key
}

// Position returns the position of a waiting task of a queue.
func (r *Round) Position(s *Set, x *schema.Exec) *Position {
	r.readKey(s, x.Priority, x.Key)
	return &Position{r: r, s: s, x: x, flow: s.flows[x.Key], cold: s.cold.byKey[x.Key]}
}

// InLane reports whether the task is ready and waits for nothing but claims, pauses and limits.
func (p *Position) InLane() bool { return p.x.State == task.Ready && !p.x.Parked() }

// KeyClaims returns how many tasks of its key are claimed.
func (p *Position) KeyClaims() int {
	if p.flow == nil {
		return 0
	}
	return p.flow.Use.Count()
}

// KeyHolders returns how many of them its key's order waits for.
func (p *Position) KeyHolders() int {
	if p.flow == nil {
		return 0
	}
	return p.flow.Use.Count() - p.flow.Use.Yielding
}

// KeyClaimed returns the claimed tasks of its key, up to most.
func (p *Position) KeyClaimed(most int) (ids []task.ID) {
	if p.flow == nil {
		return nil
	}
	p.flow.Use.Each(func(id task.ID) bool {
		ids = append(ids, id)
		return len(ids) < most
	})
	return ids
}

// IsProbe reports whether the task is the next probe of its type's breaker.
func (p *Position) IsProbe() bool {
	shown := p.s.trials[p.x.Type]
	if shown == nil || !p.InLane() || shown != p.s.byName[p.x.Lane()] {
		return false
	}
	older, _ := p.r.countBefore(p.s, shown, p.x.Seq, 1)
	return older == 0
}

// HigherPriority returns the number of ready tasks in those higher priorities that have runnable tasks. Ready holds the
// number of each priority. If the workers do not take all types, it is the number of runnable tasks of the types that
// they take; more is true if there are others.
func (p *Position) HigherPriority(ready [3]int64) (n int64, more bool) {
	for higher := range int(p.x.Priority - task.High) {
		switch {
		case !p.s.waits(higher):
		case p.Takes == nil:
			n += ready[higher]
		default:
			k, cut := p.runnable(higher)
			n, more = n+k, more || cut
		}
	}
	return n, more
}

// runnable returns the number of runnable tasks of a priority that the workers take.
func (p *Position) runnable(priority int) (n int64, more bool) {
	looked := 0
	for typ, lanes := range p.s.byType[priority] {
		if !p.Takes(typ) {
			continue
		}
		for _, l := range lanes.items {
			if looked++; looked > maxHigher {
				return n, true
			}
			n += l.of.count
		}
	}
	for typ, cold := range p.s.cold.byType[priority] {
		if p.Takes(typ) && !cold.held {
			n += cold.tasks
		}
	}
	return n, false
}

func (p *Position) takes(typ string) bool { return p.Takes == nil || p.Takes(typ) }

// KeysBefore returns the number of keys of its priority whose next task comes before the next of this task's key. More
// is true if there are more than MaxBefore.
func (p *Position) KeysBefore() (n int, more bool) {
	f, at := p.flow, int(p.x.Priority-task.High)
	inOrder := f != nil && f.place[at] >= 0 && p.takesOf(f, at) || p.cold != nil && !p.cold.of.held
	if !p.InLane() || !inOrder {
		return 0, false
	}
	return p.before(at)
}

// TasksBefore returns the numbers of tasks of the same key and priority that became ready earlier, up to MaxBefore:
// those of its type, and all. They come first in claims that take their types.
func (p *Position) TasksBefore() (sameType, all int, more bool) {
	own := p.s.byName[p.x.Lane()]
	if p.cold != nil {
		own = p.cold.lane()
	}
	if !p.InLane() || own == nil {
		return 0, 0, false
	}
	sameType, more = p.r.countBefore(p.s, own, p.x.Seq, MaxBefore)
	n, looked := sameType, 0
	var others []ranked[*Lane]
	if p.flow != nil {
		others = p.flow.ready[p.x.Priority-task.High].items
	}
	var look func(at int)
	look = func(at int) {
		if at >= len(others) || others[at].first > p.x.Seq || more {
			return
		}
		if looked++; looked > maxBeforeLanes {
			more = true
			return
		}
		if l := others[at].of; l != own && p.takes(l.Type) {
			k, cut := p.r.countBefore(p.s, l, p.x.Seq, MaxBefore-n)
			n, more = n+k, cut
		}
		look(2*at + 1)
		look(2*at + 2)
	}
	look(0)
	return sameType, n, more
}

// before returns the number of keys that come before the task's in the order of its priority p, examining no more than MaxBefore.
func (at *Position) before(p int) (n int, more bool) {
	r, s, f, c := at.r, at.s, at.flow, at.cold
	turnOf := func(g *Flow) float64 { return max(g.rank, turn(s.price(g, r.now))) } // as settle would compute it
	reads := maxBeforeReads
	var mine order
	if c != nil {
		mine = order{c.rank().rank, r.firstOfCold(s, c, &reads)}
	} else {
		mine = order{turnOf(f), r.firstOf(s, f, p, at.takes, &reads)}
	}
	looked := 0
	upTo := func(o order) bool {
		if more || mine.before(o) {
			return false // nor do those below it in the heap: their turn is no earlier than their rank
		}
		looked++
		more = looked > MaxBefore
		return !more
	}
	s.order[p].walk(upTo, func(g *Flow) {
		if its := turnOf(g); g != f && its <= mine.rank && at.takesOf(g, p) &&
			(its < mine.rank || r.firstOf(s, g, p, at.takes, &reads) < mine.first) {
			n++
		}
	})
	s.cold.order[p].walk(upTo, func(t *coldType) {
		if !at.takes(t.typ) {
			return
		}
		t.lanes.walk(upTo, func(d *coldLane) {
			if its := d.rank().rank; d != c && (its < mine.rank || its == mine.rank && r.firstOfCold(s, d, &reads) < mine.first) {
				n++
			}
		})
	})
	return n, more
}

// firstOfCold returns the sequence number of a cold lane's first task. If that is not in memory, it is read while reads
// are left; otherwise a lower bound is returned.
func (r *Round) firstOfCold(s *Set, c *coldLane, reads *int) uint64 {
	if c.first.ID != (task.ID{}) {
		return c.first.Seq
	}
	return r.firstIn(s, c.lane(), c.first.Seq, reads)
}

// firstIn returns the sequence number of a lane's first task. First is a known lower bound.
func (r *Round) firstIn(s *Set, l *Lane, first uint64, reads *int) uint64 {
	if len(l.head) == 0 && *reads > 0 {
		*reads--
		schema.ScanLane(r.tx, s.ns, s.queue, l.LaneName, l.inRow, first, math.MaxUint64, func(t schema.ReadyTask) bool {
			first = t.Seq
			return false
		})
	}
	return first
}

// takesOf reports whether a flow has a lane in a priority that the workers take.
func (at *Position) takesOf(f *Flow, p int) bool {
	return slices.ContainsFunc(f.ready[p].items, func(l ranked[*Lane]) bool { return at.takes(l.of.Type) })
}

// firstOf returns the first sequence number of a flow in a priority, of the types that are taken. For lanes with no
// task in memory it is read while reads are left; otherwise a lower bound is used.
func (r *Round) firstOf(s *Set, f *Flow, p int, takes func(string) bool, reads *int) uint64 {
	best, lanes := uint64(math.MaxUint64), f.ready[p].items
	var look func(at int)
	look = func(at int) {
		if at >= len(lanes) || lanes[at].first >= best {
			return
		}
		if takes(lanes[at].of.Type) {
			best = min(best, r.firstIn(s, lanes[at].of, lanes[at].first, reads))
		}
		look(2*at + 1)
		look(2*at + 2)
	}
	look(0)
	return best
}

// countBefore returns the number of tasks of a lane before a sequence number, up to most.
func (r *Round) countBefore(s *Set, l *Lane, seq uint64, most int) (n int, more bool) {
	n = sort.Search(len(l.head), func(i int) bool { return l.head[i].Seq >= seq })
	if l.scan < seq && l.count > int64(n) {
		schema.ScanLane(r.tx, s.ns, s.queue, l.LaneName, l.inRow, l.scan, seq, func(schema.ReadyTask) bool {
			n++
			return n <= most
		})
	}
	if n > most {
		return most, true
	}
	return n, false
}
