package lanes

import "github.com/pawlq/pawl/internal/task"

// choice chooses the next task of a priority, in a round that reads what is not in memory.
type choice struct {
	r *Round
	s *Set
	p int // the priority, from 0
}

func (s *Set) in(r *Round, p task.Priority) choice { return choice{r, s, int(p - task.High)} }

// maxReprice bounds how many flows are reordered for one task: the price of every flow with running tasks grows all the
// time, and with thousands of them the order is only approximate.
const maxReprice = 8

// next returns the lane of the priority's next task of the types, with that task in its head, or nil if there is none.
func (c choice) next(types []string) *Lane {
	r, s, p := c.r, c.s, c.p
	if len(types) == 0 {
		return c.nextOfAny()
	}
	for {
		best, cold := c.nextOf(types), s.cold.first(p, types)
		if cold == nil || best != nil && !cold.rank().before(s.byType[p][best.Type].order(best)) {
			return best
		}
		r.thaw(s, cold)
	}
}

// nextOf is next without the cold lanes.
func (c choice) nextOf(types []string) (best *Lane) {
	r, s := c.r, c.s
	for _, t := range types {
		h := s.byType[c.p][t]
		if h == nil {
			continue
		}
		c.settle(func() *Flow { return h.top().flow })
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

func (c choice) nextOfAny() *Lane {
	r, s := c.r, c.s
	flows := &s.order[c.p]
	for {
		if flows.Len() > 0 {
			c.settle(flows.top)
		}
		cold := s.cold.first(c.p, nil)
		if cold != nil && cold.before(flows) {
			r.thaw(s, cold)
			continue
		}
		if flows.Len() == 0 {
			return nil
		}
		l := flows.top().ready[c.p].top()
		if len(l.head) > 0 {
			return l
		}
		r.fill(s, l)
		s.moved(l)
	}
}

// settle reorders flows until the price of the first one is current.
func (c choice) settle(top func() *Flow) {
	s, now := c.s, c.r.now
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
