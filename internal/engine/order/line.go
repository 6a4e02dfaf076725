package order

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Memory is what a leader remembers of the orders of all queues.
type Memory struct {
	lines int
	sets  map[*Set]struct{} // that have some of them
}

// Set is what a leader remembers of the orders of a queue's keys.
type Set struct {
	memory    *Memory
	ns, queue string
	lines     map[string]*line // by key, as far as they are in memory
}

// line is what is remembered of the order of a key: the first task, and some of those behind it. Finding the next one of a key
// by itself would cost a seek for each task.
type line struct {
	first schema.FirstRow // without an order: the key has no task
	next  []place         // those behind the first, in order
	whole bool            // next is all of them
}

type place struct {
	order uint64
	id    task.ID
}

// Bounds of what is in memory. Tests change them.
var Bounds = struct {
	Lines int // keys of a leader: 20 MB with the longest lines. Any may be forgotten
	Line  int // how many tasks behind the first are read at once
}{30_000, 16}

// NewSet remembers nothing yet.
func (m *Memory) NewSet(ns, queue string) Set { return Set{memory: m, ns: ns, queue: queue} }

// lineOf is the line of a key, read if need be.
func (s *Set) lineOf(from store.Reader, key string) *line {
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

func (s *Set) add(key string, l *line) {
	if s.lines == nil {
		s.lines = map[string]*line{}
		if s.memory.sets == nil {
			s.memory.sets = map[*Set]struct{}{}
		}
		s.memory.sets[s] = struct{}{}
	}
	s.lines[key] = l
	s.memory.lines++
}

// makeRoom forgets lines, all of some queues, when there are too many.
func (m *Memory) makeRoom() {
	for s := range m.sets {
		if m.lines < Bounds.Lines {
			return
		}
		s.Drop()
	}
}

// Drop forgets all lines of a queue.
func (s *Set) Drop() {
	s.memory.lines -= len(s.lines)
	s.lines = nil
	delete(s.memory.sets, s)
}

// forget drops the line of a key that has no task.
func (s *Set) forget(key string) {
	if _, there := s.lines[key]; there {
		delete(s.lines, key)
		s.memory.lines--
	}
}

// join adds a task at the end.
func (l *line) join(p place) {
	if l.whole = l.whole && len(l.next) < Bounds.Line; l.whole {
		l.next = append(l.next, p)
	}
}

// leave takes one out that is behind the first.
func (l *line) leave(order uint64) {
	l.next = slices.DeleteFunc(l.next, func(p place) bool { return p.order == order })
}

// second is the task behind the first; without an order: there is none.
func (s *Set) second(from store.Reader, key string, l *line) (p place) {
	if len(l.next) == 0 && !l.whole {
		schema.ScanOrder(from, s.ns, s.queue, key, l.first.Order, func(order uint64, id task.ID) bool {
			l.next = append(l.next, place{order, id})
			return len(l.next) < Bounds.Line
		})
		l.whole = len(l.next) < Bounds.Line
	}
	if len(l.next) > 0 {
		p = l.next[0]
	}
	return p
}
