package engine

import (
	"container/heap"
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Ready tasks lie in lanes: one for each priority, key and type of a queue that has any. Within a lane they are ordered
// by the sequence number they got when they became ready; a claim merges the heads of the lanes that it may take. So a
// rare type or a paused key never makes a claim scan past other tasks.
//
// The simple idea, one ordered list a queue, fails twice: a claim for one type would read past all others, and a list
// read from its start walks over the tombstones of everything already claimed. A lane is read from a moving head.

// laneName is a lane within its queue.
type laneName struct {
	priority task.Priority
	key, typ string
}

// headCap is how many tasks of a lane are kept in memory in front of its head.
const headCap = 256

// readyTask is a task in its lane.
type readyTask struct {
	seq     uint64
	id      task.ID
	readyAt store.Time
}

// lane is the leader's memory of one lane that is not empty. In it lie, in order, all its tasks before scan; those from
// scan on are still to be read.
type lane struct {
	laneName
	count int64
	head  []readyTask
	scan  uint64
	dirty bool
	place [2]int // in the heaps of its priority: all lanes, those of its type
}

// first is a lower bound of the first task's sequence number, exact when the head is not empty.
func (l *lane) first() uint64 {
	if len(l.head) > 0 {
		return l.head[0].seq
	}
	return l.scan
}

// insert adds a task. An insert before scan goes into the head, so that it is found without reading again.
func (l *lane) insert(t readyTask) {
	unread := l.count > int64(len(l.head))
	l.count++
	switch {
	case t.seq >= l.scan && unread:
		return // behind what is still to be read
	case t.seq >= l.scan:
		if len(l.head) == headCap {
			l.scan = t.seq
			return
		}
		l.head = append(l.head, t)
		l.scan = t.seq + 1
		return
	}
	at, _ := slices.BinarySearchFunc(l.head, t.seq, func(have readyTask, seq uint64) int {
		return compare(have.seq, seq)
	})
	l.head = slices.Insert(l.head, at, t)
	if len(l.head) > 2*headCap {
		l.scan = l.head[headCap].seq
		l.head = l.head[:headCap]
	}
}

// remove takes the task at seq out.
func (l *lane) remove(seq uint64) {
	l.count--
	for i := range l.head {
		if l.head[i].seq == seq {
			if i == 0 {
				l.head = l.head[1:]
			} else {
				l.head = slices.Delete(l.head, i, i+1)
			}
			return
		}
	}
}

func (l *lane) encode() []byte {
	r := newRow(24)
	r.num(1, uint64(l.count))
	r.num(2, l.first())
	return r
}

func decodeLane(row []byte) (count int64, first uint64, err error) {
	err = decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			count = int64(v)
		case 2:
			first = v
		}
	}, noBytes)
	return count, first, err
}

func encodeReady(id task.ID, readyAt store.Time) []byte {
	b := append(make([]byte, 0, 26), rowVersion)
	return binary.AppendUvarint(append(b, id[:]...), uint64(readyAt))
}

func decodeReady(row []byte) (id task.ID, readyAt store.Time, ok bool) {
	if len(row) < 18 || row[0] != rowVersion {
		return id, 0, false
	}
	copy(id[:], row[1:])
	at, n := binary.Uvarint(row[17:])
	return id, store.Time(at), n > 0
}

// Places of a lane in the heaps that it is in.
const (
	amongAll = iota
	amongType
)

// laneHeap orders lanes by the first task that each may hold.
type laneHeap struct {
	lanes []*lane
	which int
}

func (h *laneHeap) Len() int           { return len(h.lanes) }
func (h *laneHeap) Less(i, j int) bool { return h.lanes[i].first() < h.lanes[j].first() }
func (h *laneHeap) Swap(i, j int) {
	h.lanes[i], h.lanes[j] = h.lanes[j], h.lanes[i]
	h.lanes[i].place[h.which], h.lanes[j].place[h.which] = i, j
}
func (h *laneHeap) Push(x any) {
	l := x.(*lane)
	l.place[h.which] = len(h.lanes)
	h.lanes = append(h.lanes, l)
}
func (h *laneHeap) Pop() any {
	last := len(h.lanes) - 1
	l := h.lanes[last]
	h.lanes[last] = nil
	h.lanes = h.lanes[:last]
	return l
}

// lanes are the non-empty lanes of one queue, by priority.
type lanes struct {
	byName map[laneName]*lane
	all    [3]laneHeap
	byType [3]map[string]*laneHeap
}

func newLanes() lanes {
	s := lanes{byName: map[laneName]*lane{}}
	for i := range s.byType {
		s.byType[i] = map[string]*laneHeap{}
	}
	return s
}

func (s *lanes) add(l *lane) {
	p := l.priority - task.High
	s.byName[l.laneName] = l
	heap.Push(&s.all[p], l)
	h := s.byType[p][l.typ]
	if h == nil {
		h = &laneHeap{which: amongType}
		s.byType[p][l.typ] = h
	}
	heap.Push(h, l)
}

func (s *lanes) drop(l *lane) {
	p := l.priority - task.High
	delete(s.byName, l.laneName)
	heap.Remove(&s.all[p], l.place[amongAll])
	h := s.byType[p][l.typ]
	if heap.Remove(h, l.place[amongType]); h.Len() == 0 {
		delete(s.byType[p], l.typ)
	}
}

// moved restores the order after the first task of a lane changed.
func (s *lanes) moved(l *lane) {
	p := l.priority - task.High
	heap.Fix(&s.all[p], l.place[amongAll])
	heap.Fix(s.byType[p][l.typ], l.place[amongType])
}

// has says whether a priority has a task of one of the types; no types mean any.
func (s *lanes) has(p task.Priority, types []string) bool {
	if len(types) == 0 {
		return s.all[p-task.High].Len() > 0
	}
	for _, t := range types {
		if s.byType[p-task.High][t] != nil {
			return true
		}
	}
	return false
}

// next is the lane whose first task has waited longest in a priority, with that task in its head; nil if there is none.
func (s *lanes) next(r *Round, q *queue, p task.Priority, types []string) *lane {
	if len(types) == 0 {
		return s.top(r, q, &s.all[p-task.High])
	}
	var best *lane
	for _, t := range types {
		if h := s.byType[p-task.High][t]; h != nil {
			if l := s.top(r, q, h); best == nil || l != nil && l.first() < best.first() {
				best = l
			}
		}
	}
	return best
}

// top reads heads until the lane on top of the heap is known to be first.
func (s *lanes) top(r *Round, q *queue, h *laneHeap) *lane {
	for h.Len() > 0 {
		l := h.lanes[0]
		if len(l.head) > 0 {
			return l
		}
		r.fill(q, l)
		s.moved(l)
	}
	return nil
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
