package lanes

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Orders is what a leader keeps in memory of the orders of all queues.
type Orders struct {
	lines int
	sets  map[*OrderSet]struct{} // sets with lines in memory
}

// OrderSet is what a leader keeps in memory of the orders of a queue's keys.
type OrderSet struct {
	memory    *Orders
	ns, queue string
	lines     map[string]*line // by key; not all keys are in memory
}

// line is the order of a key in memory: the first task, and some of those behind it. Looking up the next one each time
// would cost a seek for each task.
type line struct {
	first schema.FirstRow // without an order: the key has no task
	next  []place         // the tasks behind the first, in order
	whole bool            // next is complete
}

type place struct {
	order uint64
	id    task.ID
}

// OrderBounds limits what is in memory. Tests change them.
var OrderBounds = struct {
	Lines int // keys of a leader: 20 MB with the longest lines. Any may be evicted
	Line  int // how many tasks behind the first are read together
}{30_000, 16}

// NewSet returns an empty set for a queue.
func (m *Orders) NewSet(ns, queue string) OrderSet { return OrderSet{memory: m, ns: ns, queue: queue} }

// lineOf returns the line of a key, reading it if need be.
func (s *OrderSet) lineOf(from store.Reader, key string) *line {
	l := s.lines[key]
	if l == nil {
		l = &line{}
		var some bool
		if l.first, some = schema.ReadFirst(from, s.ns, s.queue, key); !some || l.first.Alone {
			l.whole = true
		}
		s.memory.makeRoom()
		s.add(key, l)
	}
	return l
}

func (s *OrderSet) add(key string, l *line) {
	if s.lines == nil {
		s.lines = map[string]*line{}
		if s.memory.sets == nil {
			s.memory.sets = map[*OrderSet]struct{}{}
		}
		s.memory.sets[s] = struct{}{}
	}
	s.lines[key] = l
	s.memory.lines++
}

// makeRoom evicts all lines of some queues when there are too many.
func (m *Orders) makeRoom() {
	for s := range m.sets {
		if m.lines < OrderBounds.Lines {
			return
		}
		s.Drop()
	}
}

// Drop forgets all lines of a queue.
func (s *OrderSet) Drop() {
	s.memory.lines -= len(s.lines)
	s.lines = nil
	delete(s.memory.sets, s)
}

// forget drops the line of a key that has no task.
func (s *OrderSet) forget(key string) {
	if _, there := s.lines[key]; there {
		delete(s.lines, key)
		s.memory.lines--
	}
}

// join appends a task.
func (l *line) join(p place) {
	if l.whole = l.whole && len(l.next) < OrderBounds.Line; l.whole {
		l.next = append(l.next, p)
	}
}

// leave removes a task behind the first.
func (l *line) leave(order uint64) {
	l.next = slices.DeleteFunc(l.next, func(p place) bool { return p.order == order })
}

// second returns the task behind the first; without an order: there is none.
func (s *OrderSet) second(from store.Reader, key string, l *line) (p place) {
	if len(l.next) == 0 && !l.whole {
		schema.ScanOrder(from, s.ns, s.queue, key, l.first.Order, func(order uint64, id task.ID) bool {
			l.next = append(l.next, place{order, id})
			return len(l.next) < OrderBounds.Line
		})
		l.whole = len(l.next) < OrderBounds.Line
	}
	if len(l.next) > 0 {
		p = l.next[0]
	}
	return p
}
