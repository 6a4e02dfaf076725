package lanes

import (
	"cmp"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
)

// Ready tasks are kept in lanes: one for each priority, key and type of a queue that has any. Within a lane they are
// ordered by the sequence number they got when they became ready; a claim merges the heads of the lanes that it may
// take, fairly among keys (flow.go). So a rare type or a held key never makes a claim scan past other tasks.
//
// The simple idea, one ordered list per queue, fails twice: a claim for one type would read past all others, and a list
// read from its start walks over the tombstones of everything already claimed. A lane is read from a moving head.

// Lane is the leader's memory of one lane that is not empty. Head holds, in order, all its tasks before scan; those
// from scan on have not been read.
type Lane struct {
	schema.LaneName
	count int64
	held  int64            // of these, the ones in Set.heldTasks: all or none
	inRow schema.ReadyTask // the task that is stored only in the lane's row: see Round.Enter
	head  []schema.ReadyTask
	scan  uint64
	dirty bool
	ahead ahead

	stale  uint64 // as in schema.LaneRow
	stales int    // how many rows are stale

	flow          *Flow
	own, sameType int32 // places in the heaps of its flow and of its type; -1: it is held
	among         int   // its index in laneTable.ofType
}

// first returns a lower bound of the first task's sequence number, which is exact when the head is not empty.
func (l *Lane) first() uint64 {
	if len(l.head) > 0 {
		return l.head[0].Seq
	}
	return l.scan
}

// insert adds a task. An insert before scan goes into the head, so that it is found without reading again.
func (l *Lane) insert(t schema.ReadyTask) {
	unread := l.count > int64(len(l.head))
	l.count++
	switch {
	case t.Seq >= l.scan && unread:
		return // behind the tasks still to be read
	case t.Seq >= l.scan:
		if len(l.head) >= Bounds.LaneHead { // it may be longer if tasks returned to their old places
			l.scan = t.Seq
			return
		}
		l.head = append(l.head, t)
		l.scan = t.Seq + 1
		return
	}
	at, _ := slices.BinarySearchFunc(l.head, t.Seq, func(have schema.ReadyTask, seq uint64) int {
		return cmp.Compare(have.Seq, seq)
	})
	l.head = slices.Insert(l.head, at, t)
	if len(l.head) > 2*Bounds.LaneHead {
		l.scan = l.head[Bounds.LaneHead].Seq
		l.head = l.head[:Bounds.LaneHead]
	}
}

// remove removes the task at seq.
func (l *Lane) remove(seq uint64) {
	l.count--
	for i := range l.head {
		if l.head[i].Seq == seq {
			if i == 0 {
				l.head = l.head[1:]
			} else {
				l.head = slices.Delete(l.head, i, i+1)
			}
			return
		}
	}
}

func (l *Lane) encode() []byte {
	row := schema.LaneRow{Count: l.count, First: l.first(), InRow: l.inRow, Stale: l.stale}
	return row.Encode()
}

// laneTable holds the lanes that are in memory and not cold.
type laneTable struct {
	byName map[schema.LaneName]*Lane
	// ofType holds the lanes of each type, held ones included, for breakers, which hold many types one after the other.
	// nil: there are no breakers.
	ofType map[string][]*Lane
}

func (t *laneTable) index(l *Lane) {
	l.among = len(t.ofType[l.Type])
	t.ofType[l.Type] = append(t.ofType[l.Type], l)
}

func (t *laneTable) unindex(l *Lane) {
	of := t.ofType[l.Type]
	last := len(of) - 1
	of[l.among], of[last].among = of[last], l.among
	of[last] = nil
	if t.ofType[l.Type] = of[:last]; last == 0 {
		delete(t.ofType, l.Type)
	}
}

// lanesOf returns all lanes of a type.
func (t *laneTable) lanesOf(typ string) (of []*Lane) {
	if t.ofType != nil {
		return t.ofType[typ]
	}
	for _, l := range t.byName {
		if l.Type == typ {
			of = append(of, l)
		}
	}
	return of
}
