package engine

import (
	"math"
	"slices"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The tasks of one key in a queue are a flow; those without a key are one, too. Within a priority the flows share what the
// workers give the queue, by their weights: the next task comes from the flow that has used the least of the workers' time,
// tasks that run at this moment included. So one key's million tasks delay another key's first by no more than the task that
// is next to end, and a key with long tasks gets no more than one with short ones.
//
// A flow that had nothing to run begins where the first of the others is, and saves no credit. When tasks begin to wait, all
// accounts begin at nothing: who used much while nobody else wanted it owes nothing.

// flow is the leader's memory of one key in a queue that has ready or claimed tasks.
type flow struct {
	key     string
	weight  float64
	lanes   int               // not empty ones
	ready   [3]ranking[*lane] // those of types that may run, the longest waiting task first
	place   [3]int32          // in the order of each priority; -1: nothing of it may run
	held    hold              // why none of its tasks may run
	use     limit.Claims
	running int // claimed tasks, also of tasks without a key

	used    float64    // workers' time in microseconds by weight, up to at
	at      store.Time // when used was reckoned
	account int        // in which account that was
	rank    float64    // what it was when the flow was last put in order: no more than it is
}

// leastRun is what a task costs its flow at least, in microseconds: so flows take turns when tasks are claimed at once.
const leastRun = 1000

// turn is a price as it counts in the order of flows. Those that are about even take turns by the age of their tasks: so what is
// claimed next lies together on disk, mostly.
func turn(price float64) float64 { return math.Floor(price/leastRun) * leastRun }

// price is the workers' time that a flow has used in this account up to now.
func (s *lanes) price(f *flow, now store.Time) float64 {
	used, at := f.used, f.at
	if f.account != s.account {
		used, at = 0, s.opened
	}
	return used + float64(f.running)*float64(max(now-at, 0))/f.weight
}

// reckon brings used up to now, before running changes.
func (s *lanes) reckon(f *flow, now store.Time) {
	f.used, f.at, f.account = s.price(f, now), now, s.account
}

// shared says whether there is anybody to share with. Else nothing is reckoned: who comes begins where the only one is.
func (s *lanes) shared() bool { return len(s.flows)+len(s.cold.byKey) > 1 || s.partial() }

func (f *flow) idle() bool { return f.lanes == 0 && f.running == 0 }

// first is a lower bound of the first sequence number in a priority.
func (f *flow) first(p int) uint64 { return f.ready[p].top().first() }

// lanes are the non-empty lanes of one queue, by their flows.
type lanes struct {
	of      *Queue
	cold    coldLanes // of the keys that only wait, if there are many; they are not in what follows
	unread  [3][]byte // by priority: the row from which on lanes are still to be read; nil: there is none
	reading bool      // lanes are being read

	byName map[schema.LaneName]*lane
	flows  map[string]*flow
	order  [3]ranking[*flow] // of the flows that may run, by priority
	byType [3]map[string]*ranking[*lane]
	held   map[string]bool // types that may not run
	// ofType are the lanes of each type, also of those that may not run: breakers hold many types, and one after the other. nil: it
	// is not kept, since there are none.
	ofType map[string][]*lane
	trials map[string]*lane // held types that are on trial, and the lane that is shown; nil: no task of the type may run

	plain *flow // that of tasks without a key

	account int        // grows when something waits after nothing did
	opened  store.Time // when that was
}

func newLanes() lanes {
	s := lanes{cold: newColdLanes(), byName: map[schema.LaneName]*lane{}, flows: map[string]*flow{}, held: map[string]bool{}}
	for i := range s.order {
		s.order[i] = ranking[*flow]{
			order: func(f *flow) order { return order{f.rank, f.first(i)} },
			place: func(f *flow) *int32 { return &f.place[i] },
		}
		s.byType[i] = map[string]*ranking[*lane]{}
	}
	return s
}

// byAge orders lanes by the age of their first tasks alone.
func byAge(l *lane) order { return order{first: l.first()} }

func newTypeOrder() *ranking[*lane] {
	return &ranking[*lane]{
		order: func(l *lane) order { return order{l.flow.rank, l.first()} },
		place: func(l *lane) *int32 { return &l.sameType },
	}
}

// flowOf is the flow of a key, which begins where the others are.
func (q *Queue) flowOf(key string, now store.Time) *flow {
	if key == "" && q.lanes.plain != nil {
		return q.lanes.plain
	}
	f := q.lanes.flows[key]
	if f == nil {
		f = &flow{key: key, place: [3]int32{-1, -1, -1}, account: -1}
		for i := range f.ready {
			f.ready[i] = ranking[*lane]{order: byAge, place: func(l *lane) *int32 { return &l.own }}
		}
		q.lanes.flows[key] = f
		if key == "" {
			q.lanes.plain = f
		}
		q.rule(f)
		f.held = q.whyHeld(f, now)
	}
	return f
}

// rule gives a flow the weight that the settings say.
func (q *Queue) rule(f *flow) {
	f.weight = float64(max(q.config.Settings.RulesOf(f.key).Weight, 1))
}

// forget drops a flow that has nothing left: idle keys cost nothing.
func (s *lanes) forget(f *flow) {
	if f.idle() {
		delete(s.flows, f.key)
		if f == s.plain {
			s.plain = nil
		}
	}
}

func (s *lanes) add(l *lane, f *flow, now store.Time) {
	s.link(l, f)
	if !s.held[l.Type] {
		s.show(l, now)
	} else if _, tried := s.trials[l.Type]; tried {
		s.offerIfBetter(l, now)
	}
}

// link makes a lane one of its flow, without showing it.
func (s *lanes) link(l *lane, f *flow) {
	s.byName[l.LaneName] = l
	l.flow, l.own, l.sameType = f, -1, -1
	f.lanes++
	if s.ofType != nil {
		s.index(l)
	}
}

func (s *lanes) drop(l *lane, now store.Time) {
	delete(s.byName, l.LaneName)
	if l.own >= 0 {
		s.hide(l)
	}
	l.flow.lanes--
	if s.ofType != nil {
		s.unindex(l)
		if s.trials[l.Type] == l {
			s.offer(l.Type, now)
		}
	}
}

// indexTypes begins to keep ofType and trials.
func (s *lanes) indexTypes() {
	s.ofType, s.trials = map[string][]*lane{}, map[string]*lane{}
	for _, l := range s.byName {
		s.index(l)
	}
}

func (s *lanes) index(l *lane) {
	l.among = len(s.ofType[l.Type])
	s.ofType[l.Type] = append(s.ofType[l.Type], l)
}

func (s *lanes) unindex(l *lane) {
	of := s.ofType[l.Type]
	last := len(of) - 1
	of[l.among], of[last].among = of[last], l.among
	of[last] = nil
	if s.ofType[l.Type] = of[:last]; last == 0 {
		delete(s.ofType, l.Type)
	}
}

// lanesOf are all lanes of a type.
func (s *lanes) lanesOf(typ string) (of []*lane) {
	if s.ofType != nil {
		return s.ofType[typ]
	}
	for _, l := range s.byName {
		if l.Type == typ {
			of = append(of, l)
		}
	}
	return of
}

// show lets the tasks of a lane run, if its flow may.
func (s *lanes) show(l *lane, now store.Time) {
	p, f := l.Priority-task.High, l.flow
	f.ready[p].add(l)
	if f.held != 0 {
		return
	}
	if f.place[p] < 0 {
		s.enter(f, int(p), now)
	} else {
		s.order[p].moved(f)
	}
	s.typeOrder(l).add(l)
}

// hide is the inverse of show.
func (s *lanes) hide(l *lane) {
	p, f := l.Priority-task.High, l.flow
	s.leaveType(l)
	if f.place[p] >= 0 && f.ready[p].Len() == 1 {
		s.order[p].drop(f) // while it can be compared
	}
	f.ready[p].drop(l)
	if f.place[p] >= 0 {
		s.order[p].moved(f)
	}
}

// enter puts a flow in order. If it had nothing to run in any priority, it begins where the others are.
func (s *lanes) enter(f *flow, p int, now store.Time) {
	s.open(now)
	if f.place == [3]int32{-1, -1, -1} {
		s.reckon(f, now)
		if !s.reading {
			f.used = max(f.used, s.start(now))
		}
		f.rank = turn(f.used)
	}
	s.order[p].add(f)
}

// open begins an account if nothing waits that may run. While lanes are unread, something does.
func (s *lanes) open(now store.Time) {
	if s.waits(0) || s.waits(1) || s.waits(2) || s.partial() && s.account > 0 {
		return
	}
	s.account++
	s.opened = now
}

// waits says whether a priority has a task that may run.
func (s *lanes) waits(p int) bool { return s.order[p].Len() > 0 || s.cold.order[p].Len() > 0 }

// start is what the first of the flows has used that wait for workers, as it counts in their order: so flows that begin at the same
// moment begin at the same place, whichever of them is first.
func (s *lanes) start(now store.Time) float64 {
	least := math.Inf(1)
	for p := range s.order {
		if c := s.coldFirst(p, nil); c != nil && s.comesFirst(c, p) {
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

func (s *lanes) typeOrder(l *lane) *ranking[*lane] {
	h := s.byType[l.Priority-task.High][l.Type]
	if h == nil {
		h = newTypeOrder()
		s.byType[l.Priority-task.High][l.Type] = h
	}
	return h
}

func (s *lanes) leaveType(l *lane) {
	if l.sameType < 0 {
		return
	}
	of := s.byType[l.Priority-task.High]
	if of[l.Type].drop(l); of[l.Type].Len() == 0 {
		delete(of, l.Type)
	}
}

// moved restores the order after the first task of a lane changed.
func (s *lanes) moved(l *lane) {
	p := l.Priority - task.High
	if l.own < 0 {
		return
	}
	l.flow.ready[p].moved(l)
	if l.sameType >= 0 {
		s.order[p].moved(l.flow)
		s.byType[p][l.Type].moved(l)
	}
}

// setHeld holds a flow back, or lets it run again.
func (s *lanes) setHeld(f *flow, h hold, now store.Time) {
	was := f.held
	f.held = h
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
		}
	}
	if len(s.trials) > 0 {
		s.offerAgain(f, now)
	}
}

// holdType holds all tasks of a type back, or lets them run again.
func (s *lanes) holdType(typ string, held bool, now store.Time) {
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
	}
	s.holdCold(typ, held, now)
}

// reprice puts a flow in order by what it has used up to now.
func (s *lanes) reprice(f *flow, now store.Time) {
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

// has says whether a priority has a task of one of the types that may run; no types mean any.
func (s *lanes) has(p task.Priority, types []string) bool {
	at := int(p - task.High)
	if len(types) == 0 {
		return s.waits(at)
	}
	return slices.ContainsFunc(types, func(t string) bool { return s.byType[at][t] != nil }) || s.coldFirst(at, types) != nil
}

// next is the lane from which a priority's next task of the types comes, with that task in its head; nil if there is none.
func (s *lanes) next(r *Round, q *Queue, p task.Priority, types []string) *lane {
	at := int(p - task.High)
	if len(types) == 0 {
		return s.nextOfAny(r, q, at)
	}
	for {
		best, c := s.nextOf(r, q, at, types), s.coldFirst(at, types)
		if c == nil || best != nil && !c.rank().before(s.byType[at][best.Type].order(best)) {
			return best
		}
		r.thaw(q, c)
	}
}

// nextOf is next without the cold lanes.
func (s *lanes) nextOf(r *Round, q *Queue, p int, types []string) (best *lane) {
	for _, t := range types {
		h := s.byType[p][t]
		if h == nil {
			continue
		}
		s.settle(func() *flow { return h.top().flow }, r.now)
		for len(h.top().head) == 0 {
			r.fill(q, h.top())
			s.moved(h.top())
		}
		if best == nil || h.order(h.top()).before(h.order(best)) {
			best = h.top()
		}
	}
	return best
}

func (s *lanes) nextOfAny(r *Round, q *Queue, p int) *lane {
	for {
		if s.order[p].Len() > 0 {
			s.settle(s.order[p].top, r.now)
		}
		c := s.coldFirst(p, nil)
		if c != nil && s.comesFirst(c, p) {
			r.thaw(q, c)
			continue
		}
		if s.order[p].Len() == 0 {
			return nil
		}
		l := s.order[p].top().ready[p].top()
		if len(l.head) > 0 {
			return l
		}
		r.fill(q, l)
		s.moved(l)
	}
}

// maxReprice bounds how many flows are put in order anew for one task: the price of each that runs something grows all the
// time, and with thousands of them the order is only about right.
const maxReprice = 8

// soonCount is how many tasks of different keys are read at once.
const soonCount = 128

// soon are the first tasks of the flows whose turn comes next, as far as is known without reading.
func (s *lanes) soon(p task.Priority) []schema.ReadyTask {
	tasks := make([]schema.ReadyTask, 0, soonCount)
	s.order[p-task.High].firsts(soonCount, func(f *flow) {
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
func (s *lanes) settle(top func() *flow, now store.Time) {
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

// oldest is since when the task of a priority that has waited longest is ready, held or not; false if the priority has none.
func (s *lanes) oldest(r *Round, q *Queue, p task.Priority) (since store.Time, some bool) {
	l, c := s.oldestLane(r, q, p), s.oldestCold(int(p-task.High))
	for c != nil && (l == nil || c.first.Seq < l.head[0].Seq) {
		if c.first.ID != (task.ID{}) {
			return c.first.ReadyAt, true
		}
		r.thaw(q, c)
		l, c = s.oldestLane(r, q, p), s.oldestCold(int(p-task.High))
	}
	if l == nil {
		return 0, false
	}
	return l.head[0].ReadyAt, true
}

// oldestLane is the lane with that task in its head, without the cold ones.
func (s *lanes) oldestLane(r *Round, q *Queue, p task.Priority) *lane {
	var nowhere int32
	age := ranking[*lane]{order: byAge, place: func(*lane) *int32 { return &nowhere }}
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
		r.fill(q, l)
		s.moved(l)
		age.movedAt(0)
	}
	return nil
}
