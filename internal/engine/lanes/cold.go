package lanes

import (
	"math"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A key with waiting tasks only needs little memory: its place in the order, and its next task. With a million such
// keys, flows and lanes would take 2 GB. So beyond Bounds.Warm flows of a queue, a key is kept as a cold lane: one
// small struct, which becomes a flow and a lane again when something happens to the key or its turn comes.
//
// Cold lanes preserve the order of flows exactly: they remember what the key has used. There is one heap for each
// priority and type, so that a type is held or released as a whole.

// coldLane is the only lane of a key that has no running tasks and is not held.
type coldLane struct {
	key    string
	of     *coldType
	first  schema.ReadyTask // without an id, it has not been read yet and Seq is a lower bound
	used   float64          // as in Flow
	period int32            // as in Flow
	count  int32
	place  int32 // among the lanes of its type
	inRow  bool  // first has no row but the lane's
}

func (c *coldLane) name() schema.LaneName {
	return schema.LaneName{Priority: c.of.priority, Key: c.key, Type: c.of.typ}
}

// lane returns the lane in its warm form.
func (c *coldLane) lane() *Lane {
	l := &Lane{LaneName: c.name(), count: int64(c.count), scan: c.first.Seq, own: -1, sameType: -1}
	if c.first.ID != (task.ID{}) {
		l.head, l.scan = []schema.ReadyTask{c.first}, c.first.Seq+1
	}
	if c.inRow {
		l.inRow = c.first
	}
	return l
}

// toCold returns the cold form of a lane, if that can represent it.
func (l *Lane) toCold() (c *coldLane, ok bool) {
	if l.count > math.MaxInt32 {
		return nil, false
	}
	c = &coldLane{key: l.Key, count: int32(l.count), first: schema.ReadyTask{Seq: l.scan}, inRow: l.inRow.Seq != 0}
	if len(l.head) > 0 {
		c.first = l.head[0]
	}
	return c, l.stale == 0 && (!c.inRow || c.first == l.inRow)
}

// coldType holds the cold lanes of one priority and type.
type coldType struct {
	priority task.Priority
	typ      string
	lanes    ranking[*coldLane]
	tasks    int64
	held     bool
	place    int32   // in the heap of its priority; -1: it is held, or released
	start    float64 // released: the least that its lanes count as having used
}

// coldLanes holds the cold lanes of a queue.
type coldLanes struct {
	byKey  map[string]*coldLane
	byType [3]map[string]*coldType
	order  [3]ranking[*coldType] // of those not held, by their first lanes
	// released are types that are no longer held, with the lanes that are still to be put in order. Doing that in one go
	// would take a second with a million lanes.
	released [3][]*coldType

	heads map[*coldLane][]schema.ReadyTask // the first tasks of lanes with more than one in memory
	ahead int                              // number of tasks in heads
}

func newColdLanes() coldLanes {
	c := coldLanes{byKey: map[string]*coldLane{}, heads: map[*coldLane][]schema.ReadyTask{}}
	for i := range c.order {
		c.byType[i] = map[string]*coldType{}
		c.order[i] = ranking[*coldType]{
			order: func(t *coldType) order { return t.lanes.items[0].order },
			place: func(t *coldType) *int32 { return &t.place },
		}
	}
	return c
}

// add adds a cold lane of a type, which may be held.
func (all *coldLanes) add(c *coldLane, n schema.LaneName, held bool) {
	p := n.Priority - task.High
	t := all.byType[p][n.Type]
	if t == nil {
		t = &coldType{priority: n.Priority, typ: n.Type, held: held, place: -1, lanes: ranking[*coldLane]{
			order: func(c *coldLane) order { return order{turn(c.used), c.first.Seq} },
			place: func(c *coldLane) *int32 { return &c.place },
		}}
		all.byType[p][n.Type] = t
	}
	c.of = t
	t.lanes.add(c)
	t.tasks += int64(c.count)
	all.byKey[c.key] = c
	if !t.held {
		all.put(t)
	}
}

func (all *coldLanes) drop(c *coldLane) {
	t := c.of
	p := t.priority - task.High
	t.lanes.drop(c)
	t.tasks -= int64(c.count)
	delete(all.byKey, c.key)
	switch {
	case t.lanes.Len() == 0:
		if t.place >= 0 {
			all.order[p].drop(t)
		}
		if all.byType[p][t.typ] == t {
			delete(all.byType[p], t.typ)
		} else {
			all.released[p] = slices.DeleteFunc(all.released[p], func(o *coldType) bool { return o == t })
		}
	case t.place >= 0:
		all.order[p].moved(t)
	}
}

// first returns the first cold lane of a priority that a claim of the types may take, or nil if there is none.
func (all *coldLanes) first(p int, types []string) (first *coldLane) {
	if len(types) == 0 {
		if all.order[p].Len() == 0 {
			return nil
		}
		return all.order[p].top().lanes.top()
	}
	for _, typ := range types {
		if c := all.topOf(p, typ); c != nil && !c.of.held && (first == nil || c.rank().before(first.rank())) {
			first = c
		}
	}
	return first
}

// topOf returns the first cold lane of a type, held or not, or nil if there is none.
func (all *coldLanes) topOf(p int, typ string) *coldLane {
	if t := all.byType[p][typ]; t != nil {
		return t.lanes.top()
	}
	return nil
}

// put moves a type to its place in the heap.
func (all *coldLanes) put(t *coldType) {
	o := &all.order[t.priority-task.High]
	if t.place < 0 {
		o.add(t)
	} else {
		o.moved(t)
	}
}

// keepHead keeps the first tasks of a lane that has become cold, if there is room.
func (all *coldLanes) keepHead(of *coldLane, head []schema.ReadyTask) {
	if n := min(len(head), Bounds.Head); n > 1 && all.ahead+n <= Bounds.Heads {
		all.heads[of] = slices.Clone(head[:n])
		all.ahead += n
	}
}

// takeHead moves the tasks kept for a cold lane back to its warm form.
func (all *coldLanes) takeHead(of *coldLane, l *Lane) {
	if head := all.heads[of]; head != nil {
		l.head, l.scan = head, head[len(head)-1].Seq+1
		delete(all.heads, of)
		all.ahead -= len(head)
	}
}

// cool turns a flow without running tasks into a cold lane, if there are many flows.
func (s *Set) cool(f *Flow, l *Lane, now store.Time) {
	switch {
	case len(s.flows) <= Bounds.Warm:
		return
	case s.byName[l.LaneName] != l:
		return
	case f.Key == "" || f.lanes != 1 || f.Running > 0 || f.Held != 0 || s.trials[l.Type] == l:
		return
	}
	c, ok := l.toCold()
	if !ok {
		return
	}
	c.used, c.period = s.price(f, now), int32(s.period) // #nosec G115 -- it is incremented when a queue was empty
	if l.own >= 0 {
		s.hide(l)
	}
	if s.ofType != nil {
		s.unindex(l)
	}
	delete(s.byName, l.LaneName)
	s.heldTasks -= l.held
	delete(s.flows, f.Key)
	s.cold.add(c, l.LaneName, s.held[l.Type])
	s.cold.keepHead(c, l.head)
}

// thaw turns a cold lane into a flow and a lane again, at the same place in the order.
func (s *Set) thaw(c *coldLane, now store.Time) *Flow {
	l := c.lane()
	used := s.coldPrice(c)
	s.cold.takeHead(c, l)
	s.cold.drop(c)
	f := s.Flow(c.key, now)
	held := f.Held // by a rule that has just changed
	f.Held, f.used, f.at, f.period, f.rank = 0, used, now, s.period, turn(used)
	s.link(l, f)
	_, tried := s.trials[l.Type]
	switch {
	case tried:
		trial{s, l.Type}.offerIfBetter(l, now)
	case !s.held[l.Type]:
		p := l.Priority - task.High
		f.ready[p].add(l)
		s.order[p].add(f)
		s.typeOrder(l).add(l)
	}
	s.setHeld(f, held, now)
	return f
}

// holdCold holds back the cold lanes of a type, or releases them. Released lanes start level with the first of the others.
func (s *Set) holdCold(typ string, held bool, now store.Time) {
	for p := range s.cold.byType {
		t := s.cold.byType[p][typ]
		switch {
		case t == nil:
		case held:
			t.held = true
			s.cold.order[p].drop(t)
		default:
			s.open(now)
			t.start = s.start(now)
			delete(s.cold.byType[p], typ)
			s.cold.released[p] = append(s.cold.released[p], t)
		}
	}
}

// takeReleased puts up to n lanes of released types of a priority in order, beginning with the first.
func (r *Round) takeReleased(s *Set, p, n int) {
	for ; n > 0 && len(s.cold.released[p]) > 0; n-- {
		r.Read++
		t := s.cold.released[p][0]
		c := t.lanes.top()
		if shown, tried := s.trials[t.typ]; tried && (shown == nil || t.before(shown)) {
			r.thaw(s, c) // and offers it
			continue
		}
		c.used, c.period = s.coldPrice(c), int32(s.period) // #nosec G115 -- as in cool
		t.lanes.drop(c)
		t.tasks -= int64(c.count)
		if t.lanes.Len() == 0 {
			s.cold.released[p] = s.cold.released[p][1:]
		}
		s.cold.add(c, c.name(), s.held[c.of.typ])
	}
}

// before reports whether the first lane of a type is claimed from before another lane of the type.
func (t *coldType) before(l *Lane) bool {
	if t.priority != l.Priority {
		return t.priority < l.Priority
	}
	return t.lanes.items[0].before(order{l.flow.rank, l.first()})
}

// MayHave reports whether there may be a lane of a type, held or not. Types must be watched (WatchTypes).
func (s *Set) MayHave(typ string) bool {
	for p := range s.cold.byType {
		if s.cold.byType[p][typ] != nil {
			return true
		}
	}
	return len(s.ofType[typ]) > 0 || s.Partial()
}

// before reports whether a cold lane comes before all runnable flows of its priority.
func (c *coldLane) before(flows *ranking[*Flow]) bool {
	return flows.Len() == 0 || c.rank().before(flows.items[0].order)
}

func (c *coldLane) rank() order { return c.of.lanes.items[c.place].order }
