package lanes

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Has says whether a priority has a task of one of the types that may run; no types mean any.
func (s *Set) Has(p task.Priority, types []string) bool {
	at := int(p - task.High)
	if len(types) == 0 {
		return s.waits(at)
	}
	return slices.ContainsFunc(types, func(t string) bool { return s.byType[at][t] != nil }) || s.coldFirst(at, types) != nil
}

// Next is the task of a priority and the types that comes next. There must be one.
func (s *Set) Next(r *Round, p task.Priority, types []string) schema.ReadyTask {
	return s.next(r, p, types).head[0]
}

// next is the lane from which a priority's next task of the types comes, with that task in its head; nil if there is none.
func (s *Set) next(r *Round, p task.Priority, types []string) *Lane {
	at := int(p - task.High)
	if len(types) == 0 {
		return s.nextOfAny(r, at)
	}
	for {
		best, c := s.nextOf(r, at, types), s.coldFirst(at, types)
		if c == nil || best != nil && !c.rank().before(s.byType[at][best.Type].order(best)) {
			return best
		}
		r.thaw(s, c)
	}
}

// nextOf is next without the cold lanes.
func (s *Set) nextOf(r *Round, p int, types []string) (best *Lane) {
	for _, t := range types {
		h := s.byType[p][t]
		if h == nil {
			continue
		}
		s.settle(func() *Flow { return h.top().flow }, r.now)
		for len(h.top().head) == 0 {
			r.fill(s, h.top())
			s.moved(h.top())
		}
		if best == nil || h.order(h.top()).before(h.order(best)) {
			best = h.top()
		}
	}
	return best
}

func (s *Set) nextOfAny(r *Round, p int) *Lane {
	for {
		if s.order[p].Len() > 0 {
			s.settle(s.order[p].top, r.now)
		}
		c := s.coldFirst(p, nil)
		if c != nil && s.comesFirst(c, p) {
			r.thaw(s, c)
			continue
		}
		if s.order[p].Len() == 0 {
			return nil
		}
		l := s.order[p].top().ready[p].top()
		if len(l.head) > 0 {
			return l
		}
		r.fill(s, l)
		s.moved(l)
	}
}

// maxReprice bounds how many flows are put in order anew for one task: the price of each that runs something grows all the
// time, and with thousands of them the order is only about right.
const maxReprice = 8

// soonCount is how many tasks of different keys are read at once.
const soonCount = 128

// Soon are the first tasks of the flows whose turn comes next, as far as is known without reading.
func (s *Set) Soon(p task.Priority) []schema.ReadyTask {
	tasks := make([]schema.ReadyTask, 0, soonCount)
	s.order[p-task.High].firsts(soonCount, func(f *Flow) {
		if l := f.ready[p-task.High].top(); len(l.head) > 0 {
			tasks = append(tasks, l.head[0])
		}
	})
	if s.cold.order[p-task.High].Len() > 0 {
		s.cold.order[p-task.High].top().lanes.firsts(soonCount, func(c *coldLane) {
			if c.first.ID != (task.ID{}) {
				tasks = append(tasks, c.first)
			}
		})
	}
	return tasks
}

// settle puts flows in order until the first one has its price of now.
func (s *Set) settle(top func() *Flow, now store.Time) {
	if !s.shared() {
		return
	}
	for range maxReprice {
		f := top()
		if turn(s.price(f, now)) <= f.rank {
			return
		}
		s.reprice(f, now)
	}
}

// Oldest is since when the task of a priority that has waited longest is ready, held or not; false if the priority has none.
func (s *Set) Oldest(r *Round, p task.Priority) (since store.Time, some bool) {
	l, c := s.oldestLane(r, p), s.oldestCold(int(p-task.High))
	for c != nil && (l == nil || c.first.Seq < l.head[0].Seq) {
		if c.first.ID != (task.ID{}) {
			return c.first.ReadyAt, true
		}
		r.thaw(s, c)
		l, c = s.oldestLane(r, p), s.oldestCold(int(p-task.High))
	}
	if l == nil {
		return 0, false
	}
	return l.head[0].ReadyAt, true
}

// oldestLane is the lane with that task in its head, without the cold ones.
func (s *Set) oldestLane(r *Round, p task.Priority) *Lane {
	var nowhere int32
	age := ranking[*Lane]{order: byAge, place: func(*Lane) *int32 { return &nowhere }}
	for name, l := range s.byName {
		if name.Priority == p {
			age.add(l)
		}
	}
	for age.Len() > 0 {
		l := age.top()
		if len(l.head) > 0 {
			return l
		}
		r.fill(s, l)
		s.moved(l)
		age.movedAt(0)
	}
	return nil
}
