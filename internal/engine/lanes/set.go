package lanes

import (
	"math"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Rules are the current settings of a queue.
type Rules interface {
	// Weight returns the weight of a key, at least 1.
	Weight(key string) float64
	// Held returns why no further task of a key may run while it has those claims; 0: one may.
	Held(key string, claims *limit.Claims, now store.Time) Hold
}

// Hold is the reason why ready tasks must not run; 0: they may.
type Hold byte

const (
	HeldByPause Hold = 1 + iota
	HeldByRunning
	HeldByRate
	HeldByOrder // a task of the key is claimed and does not yield, in a queue with strict key order
)

// Set holds the lanes of one queue that are not empty.
type Set struct {
	rows      // the stored lanes, and which are still to be read
	flowTable // by key
	accounts  // what flows have used
	laneTable
	types
	orders

	heldTasks int64 // the sum of Lane.held

	cold    coldLanes // of keys that have waiting tasks only, if there are many; they are in none of the tables
	reading bool      // lanes are being read
}

// New returns an empty Set for a queue.
func New(ns, queue string, rules Rules) *Set {
	return &Set{rows: rows{ns: ns, queue: queue}, flowTable: flowTable{rules: rules, flows: map[string]*Flow{}},
		laneTable: laneTable{byName: map[schema.LaneName]*Lane{}}, types: types{held: map[string]bool{}}, orders: newOrders(),
		cold: newColdLanes()}
}

func (s *Set) add(l *Lane, f *Flow, now store.Time) {
	s.link(l, f)
	if !s.held[l.Type] {
		s.show(l, now)
	} else if _, tried := s.trials[l.Type]; tried {
		trial{s, l.Type}.offerIfBetter(l, now)
	}
}

// link adds a lane to its flow, without putting it in order.
func (s *Set) link(l *Lane, f *Flow) {
	s.byName[l.LaneName] = l
	l.flow, l.own, l.sameType = f, -1, -1
	f.lanes++
	s.countHeld(l)
	if s.ofType != nil {
		s.index(l)
	}
}

func (s *Set) drop(l *Lane, now store.Time) {
	delete(s.byName, l.LaneName)
	if l.own >= 0 {
		s.hide(l)
	}
	l.flow.lanes--
	if s.ofType != nil {
		s.unindex(l)
		if s.trials[l.Type] == l {
			trial{s, l.Type}.offer(now)
		}
	}
}

// WatchTypes starts or stops tracking lanes by type, which breakers need.
func (s *Set) WatchTypes(on bool) {
	if !on {
		s.ofType, s.trials = nil, nil
		return
	}
	s.ofType, s.trials = map[string][]*Lane{}, map[string]*Lane{}
	for _, l := range s.byName {
		s.index(l)
	}
}

// show puts a lane in order, so that its tasks may run unless its flow is held.
func (s *Set) show(l *Lane, now store.Time) {
	p, f := l.Priority-task.High, l.flow
	f.ready[p].add(l)
	if f.Held != 0 {
		return
	}
	if f.place[p] < 0 {
		s.enter(f, int(p), now)
	} else {
		s.order[p].moved(f)
	}
	s.typeOrder(l).add(l)
}

// enter puts a flow in order. If it had nothing to run in any priority, it starts level with the others.
func (s *Set) enter(f *Flow, p int, now store.Time) {
	s.open(now)
	if f.place == [3]int32{-1, -1, -1} {
		s.updateUsage(f, now)
		if !s.reading {
			f.used = max(f.used, s.start(now))
		}
		f.rank = turn(f.used)
	}
	s.order[p].add(f)
}

// open starts a new accounting period if no runnable task is waiting. While lanes are unread, one is assumed to be.
func (s *Set) open(now store.Time) {
	if s.waits(0) || s.waits(1) || s.waits(2) || s.Partial() && s.period > 0 {
		return
	}
	if s.period++; s.period > math.MaxInt32 { // cold lanes have no room for more
		s.period = 1
	}
	s.opened = now
}

// waits reports whether a priority has a runnable task.
func (s *Set) waits(p int) bool { return s.order[p].Len() > 0 || s.cold.order[p].Len() > 0 }

// start returns what the first of the waiting flows has used, rounded by turn, so that flows that enter at the same
// moment start level, whichever of them is first.
func (s *Set) start(now store.Time) float64 {
	least := math.Inf(1)
	for p := range s.order {
		if c := s.cold.first(p, nil); c != nil && c.before(&s.order[p]) {
			least = min(least, s.coldPrice(c))
		} else if s.order[p].Len() > 0 {
			least = min(least, s.price(s.order[p].top(), now))
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return turn(least)
}

// setHeld holds a flow back, or releases it.
func (s *Set) setHeld(f *Flow, h Hold, now store.Time) {
	was := f.Held
	f.Held = h
	if (was != 0) == (h != 0) {
		return
	}
	for p := range f.ready {
		if f.ready[p].Len() == 0 {
			continue
		}
		if h != 0 {
			s.order[p].drop(f)
		} else {
			s.enter(f, p, now)
		}
		for _, l := range f.ready[p].items {
			if h != 0 {
				s.leaveType(l.of)
			} else {
				s.typeOrder(l.of).add(l.of)
			}
			s.countHeld(l.of)
		}
	}
	s.offerAgain(f, now)
}

// holdType holds back all tasks of a type, or releases them.
func (s *Set) holdType(typ string, held bool, now store.Time) {
	if s.held[typ] == held {
		return
	}
	if held {
		s.held[typ] = true
	} else {
		delete(s.held, typ)
	}
	for _, l := range s.lanesOf(typ) {
		if held {
			s.hide(l)
		} else {
			s.show(l, now)
		}
		s.countHeld(l)
	}
	s.holdCold(typ, held, now)
}

// reprice reorders a flow by what it has used up to now.
func (s *Set) reprice(f *Flow, now store.Time) {
	f.rank = turn(s.price(f, now))
	for p := range f.ready {
		if f.place[p] < 0 {
			continue
		}
		s.order[p].moved(f)
		for _, l := range f.ready[p].items {
			s.byType[p][l.of.Type].moved(l.of)
		}
	}
}

// SetType holds a type back, releases it, or puts it on trial: it is then held except for a probe.
func (s *Set) SetType(r *Round, typ string, held, try bool) {
	if !try {
		trial{s, typ}.end()
	}
	s.holdType(typ, held, r.now)
	if try {
		trial{s, typ}.begin(r.now)
	}
	for p := range s.cold.released {
		r.takeReleased(s, p, Bounds.TickRead-r.Read)
	}
}
