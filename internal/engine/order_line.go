package engine

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// line is what a leader remembers of the order of a key: the first task, and some of those behind it. To find the next one of a key
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

// Bounds of lines. Tests change them.
var (
	// maxLines bounds the keys of a leader that have a line in memory: 20 MB with the longest ones. Any may be forgotten.
	maxLines = 30_000
	// maxLine is how many tasks behind the first are read at once.
	maxLine = 16
)

// lineOf is the line of a key, read if need be.
func (r *Round) lineOf(q *Queue, key string) *line {
	l := q.lines[key]
	if l == nil {
		l = &line{}
		var some bool
		if l.first, some = schema.ReadFirst(r.tx, q.ns, q.name, key); !some || l.first.Alone {
			l.whole = true
		}
		r.l.makeRoom()
		if q.lines == nil {
			q.lines = map[string]*line{}
		}
		q.lines[key] = l
		r.l.lines++
	}
	return l
}

// makeRoom forgets lines, all of some queues, when there are too many.
func (l *Leader) makeRoom() {
	for _, q := range l.queues {
		if l.lines < maxLines {
			return
		}
		l.lines -= len(q.lines)
		q.lines = nil
	}
}

// forgetLine drops the line of a key that has no task.
func (r *Round) forgetLine(q *Queue, key string) {
	if _, there := q.lines[key]; there {
		delete(q.lines, key)
		r.l.lines--
	}
}

// join adds a task at the end.
func (l *line) join(p place) {
	if l.whole = l.whole && len(l.next) < maxLine; l.whole {
		l.next = append(l.next, p)
	}
}

// leave takes one out that is behind the first.
func (l *line) leave(order uint64) {
	l.next = slices.DeleteFunc(l.next, func(p place) bool { return p.order == order })
}

// second is the task behind the first; without an order: there is none.
func (r *Round) second(q *Queue, key string, l *line) (p place) {
	if len(l.next) == 0 && !l.whole {
		schema.ScanOrder(r.tx, q.ns, q.name, key, l.first.Order, func(order uint64, id task.ID) bool {
			l.next = append(l.next, place{order, id})
			return len(l.next) < maxLine
		})
		l.whole = len(l.next) < maxLine
	}
	if len(l.next) > 0 {
		p = l.next[0]
	}
	return p
}

// warmSeconds reads the states of the tasks behind those that were claimed, all at once: the ends of these will want them.
func (r *Round) warmSeconds(ns string, got []Claimed) {
	ids := make([]task.ID, 0, len(got))
	for _, t := range got {
		if t.Exec.Order == 0 {
			continue
		}
		q := r.Queue(ns, t.Queue)
		l := r.lineOf(q, t.Key)
		if p := r.second(q, t.Key, l); p.order != 0 && l.first.ID == t.ID {
			ids = append(ids, p.id)
		}
	}
	r.l.hot.WarmExecs(r.tx, ns, ids)
}
