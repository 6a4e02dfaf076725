package engine

import (
	"math"
	"sort"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Bounds of what a position looks at: it is read in a round, and must not hold up other calls.
const (
	MaxBefore      = 1_000 // older tasks counted, and other keys looked at
	maxBeforeReads = 100   // lanes that are read to see which key's task is older, where keys have used the same
	maxBeforeLanes = 100   // types of a key of which older tasks are counted
)

// Position is where a task that waits stands in its queue, as claims see it. To read it changes nothing; it holds until the round
// writes.
type Position struct {
	r    *Round
	q    *Queue
	x    *schema.Exec
	flow *flow     // nil: nothing of its key is ready or claimed, or it is cold
	cold *coldLane // of its key
}

// Position finds a task of a queue that waits.
func (r *Round) Position(q *Queue, x *schema.Exec) *Position {
	r.readKey(q, x.Priority, x.Key)
	return &Position{r: r, q: q, x: x, flow: q.lanes.flows[x.Key], cold: q.lanes.cold.byKey[x.Key]}
}

// InLane says whether the task is ready and waits for nothing but claims, pauses and limits.
func (p *Position) InLane() bool { return p.x.State == task.Ready && !p.x.Parked() }

// KeyClaims is how many tasks of its key are claimed.
func (p *Position) KeyClaims() int {
	if p.flow == nil {
		return 0
	}
	return p.flow.use.Count()
}

// KeyClaimed are those tasks, up to most.
func (p *Position) KeyClaimed(most int) (ids []task.ID) {
	if p.flow == nil {
		return nil
	}
	p.flow.use.Each(func(id task.ID) bool {
		ids = append(ids, id)
		return len(ids) < most
	})
	return ids
}

// IsProbe says whether the task is the one that the breaker of its type lets through.
func (p *Position) IsProbe() bool {
	shown := p.q.lanes.trials[p.x.Type]
	if shown == nil || !p.InLane() || shown != p.q.lanes.byName[p.x.Lane()] {
		return false
	}
	older, _ := p.r.countBefore(p.q, shown, p.x.Seq, 1)
	return older == 0
}

// HigherPriority counts the ready tasks of higher priorities of which some may run.
func (p *Position) HigherPriority() (n int64) {
	for higher := range int(p.x.Priority - task.High) {
		if p.q.lanes.waits(higher) {
			n += p.q.counts.Ready[higher]
		}
	}
	return n
}

// KeysBefore counts the keys of its priority whose next task comes before the next of this task's key. More says that there are more
// than MaxBefore.
func (p *Position) KeysBefore() (n int, more bool) {
	s, f, at := &p.q.lanes, p.flow, int(p.x.Priority-task.High)
	inOrder := f != nil && f.place[at] >= 0 || p.cold != nil && !p.cold.of.held
	if !p.InLane() || !inOrder || !s.shared() {
		return 0, false
	}
	return p.r.before(p.q, f, p.cold, at)
}

// TasksBefore counts the tasks of the same key and priority that became ready before, up to MaxBefore: those of its type, and all. They
// come first in claims that take their types.
func (p *Position) TasksBefore() (sameType, all int, more bool) {
	own := p.q.lanes.byName[p.x.Lane()]
	if p.cold != nil {
		own = p.cold.lane()
	}
	if !p.InLane() || own == nil {
		return 0, 0, false
	}
	sameType, more = p.r.countBefore(p.q, own, p.x.Seq, MaxBefore)
	n, looked := sameType, 0
	var others []ranked[*lane]
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
		if l := others[at].of; l != own {
			k, cut := p.r.countBefore(p.q, l, p.x.Seq, MaxBefore-n)
			n, more = n+k, cut
		}
		look(2*at + 1)
		look(2*at + 2)
	}
	look(0)
	return sameType, n, more
}

// before counts the keys that come before one in the order of a priority, looking at no more than MaxBefore. The key is a flow or a
// cold lane.
func (r *Round) before(q *Queue, f *flow, c *coldLane, p int) (n int, more bool) {
	s := &q.lanes
	turnOf := func(g *flow) float64 { return max(g.rank, turn(s.price(g, r.now))) } // as settle would have it
	reads := maxBeforeReads
	var mine order
	if c != nil {
		mine = order{c.rank().rank, r.firstOfCold(q, c, &reads)}
	} else {
		mine = order{turnOf(f), r.firstOf(q, f, p, &reads)}
	}
	looked := 0
	upTo := func(o order) bool {
		if more || mine.before(o) {
			return false // nor do those below it: their turn is no earlier than their rank
		}
		looked++
		more = looked > MaxBefore
		return !more
	}
	s.order[p].walk(upTo, func(g *flow) {
		if its := turnOf(g); g != f && (its < mine.rank || its == mine.rank && r.firstOf(q, g, p, &reads) < mine.first) {
			n++
		}
	})
	s.cold.order[p].walk(upTo, func(t *coldType) {
		t.lanes.walk(upTo, func(d *coldLane) {
			if its := d.rank().rank; d != c && (its < mine.rank || its == mine.rank && r.firstOfCold(q, d, &reads) < mine.first) {
				n++
			}
		})
	})
	return n, more
}

// firstOfCold is the sequence number of a cold lane's first task. One that is not in memory is read while there are reads left, else a
// lower bound is taken.
func (r *Round) firstOfCold(q *Queue, c *coldLane, reads *int) uint64 {
	if c.first.ID != (task.ID{}) {
		return c.first.Seq
	}
	return r.firstIn(q, c.lane(), c.first.Seq, reads)
}

// firstIn is the sequence number of a lane's first task, of which a lower bound is known.
func (r *Round) firstIn(q *Queue, l *lane, first uint64, reads *int) uint64 {
	if len(l.head) == 0 && *reads > 0 {
		*reads--
		schema.ScanLane(r.tx, q.ns, q.name, l.LaneName, l.inRow, first, math.MaxUint64, func(t schema.ReadyTask) bool {
			first = t.Seq
			return false
		})
	}
	return first
}

// firstOf is the first sequence number of a flow in a priority. Of lanes of which nothing is in memory it is read while there are
// reads left, else a lower bound is taken.
func (r *Round) firstOf(q *Queue, f *flow, p int, reads *int) uint64 {
	best, lanes := uint64(math.MaxUint64), f.ready[p].items
	var look func(at int)
	look = func(at int) {
		if at >= len(lanes) || lanes[at].first >= best {
			return
		}
		best = min(best, r.firstIn(q, lanes[at].of, lanes[at].first, reads))
		look(2*at + 1)
		look(2*at + 2)
	}
	look(0)
	return best
}

// countBefore counts the tasks of a lane before a sequence number, up to most.
func (r *Round) countBefore(q *Queue, l *lane, seq uint64, most int) (n int, more bool) {
	n = sort.Search(len(l.head), func(i int) bool { return l.head[i].Seq >= seq })
	if n == len(l.head) && l.scan < seq && l.count > int64(n) {
		schema.ScanLane(r.tx, q.ns, q.name, l.LaneName, l.inRow, l.scan, seq, func(schema.ReadyTask) bool {
			n++
			return n <= most
		})
	}
	if n > most {
		return most, true
	}
	return n, false
}

// Counts are the numbers of the queue's tasks by state, which must not be changed.
func (q *Queue) Counts() *schema.Counts { return &q.counts }

// Breaker is the breaker of a type; nil: the type has none, or nothing was heard of it lately.
func (q *Queue) Breaker(typ string) *breaker.Breaker { return q.breakers.Of(typ) }

// NextToken says whether the rate of a key, or for "" that of the queue, keeps tasks from running now, and until when.
func (q *Queue) NextToken(key string, now store.Time) (until store.Time, empty bool) {
	return q.buckets[key].EmptyUntil(q.rateOf(key), now)
}

// Space says how the namespace stands in this shard, and whether it runs as much as it may.
func (q *Queue) Space() (s task.Space, full bool) { return q.space.info(), q.space.full() }

// StaleRows are rows of claimed tasks that are not.
func (q *Queue) StaleRows() [][]byte { return q.stale }

// ClaimedTasks are claimed tasks of a queue, found among up to most tasks that this leader has in memory.
func (r *Round) ClaimedTasks(q *Queue, most int) (ids []task.ID) {
	looked := 0
	for id, t := range r.l.hot.tasks {
		if t.ns == q.ns && t.exec.Queue == q.name && t.exec.State == task.Claimed {
			ids = append(ids, id)
		}
		if looked++; looked == most {
			break
		}
	}
	return ids
}
