package lanes

import (
	"fmt"
	"math"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Round is the part of an engine round that deals with lanes. Seal must be called once after the last call.
type Round struct {
	tx      *store.Tx
	now     store.Time
	warm    func(ns string, tasks []schema.ReadyTask)
	Read    int // lanes that were read or put in order
	dirty   []dirtyLane
	waiting []waitingFlow
	Behind  []Range // to be read ahead
}

type dirtyLane struct {
	s *Set
	l *Lane
}

// Begin starts a round on tx. It calls warm with the tasks that will be needed next.
func Begin(tx *store.Tx, warm func(ns string, tasks []schema.ReadyTask)) Round {
	return Round{tx: tx, now: tx.Now(), warm: warm}
}

// Seal writes the lanes that the round changed, and turns flows that have waiting tasks only into cold lanes.
func (r *Round) Seal() {
	for _, d := range r.dirty {
		if d.l.dirty {
			r.writeLane(d.s, d.l)
		}
	}
	r.dirty = nil
	r.sealFlows()
}

// Enter puts a task that has become ready into its lane.
func (r *Round) Enter(s *Set, id task.ID, x *schema.Exec) {
	name := x.Lane()
	l := r.laneOf(s, name)
	if l == nil {
		l = &Lane{LaneName: name, scan: x.Seq}
		l.insert(schema.ReadyTask{Seq: x.Seq, ID: id, ReadyAt: x.ReadyAt})
		// The first task of a key's new lane is stored in the row of the lane instead of a row of its own. With many
		// keys that have a task or two each, that halves the cost of waiting.
		inRow := name.Key != ""
		if inRow {
			l.inRow = l.head[0]
		}
		cold := s.addAsCold(l, r.now)
		if !cold {
			s.add(l, s.Flow(name.Key, r.now), r.now)
		}
		if inRow || cold {
			r.writeLane(s, l) // now, because it is the task's row too, or because nothing else will write it
		}
		if inRow {
			return
		}
		if cold {
			r.tx.Set(schema.ReadyKey(s.ns, s.queue, name, x.Seq), schema.EncodeReady(id, x.ReadyAt))
			return
		}
	} else {
		first := l.first()
		if x.Seq < first { // its place is among the stale rows
			r.deleteStale(s, l)
		}
		l.insert(schema.ReadyTask{Seq: x.Seq, ID: id, ReadyAt: x.ReadyAt})
		s.countHeld(l)
		if l.first() != first {
			s.moved(l)
		}
	}
	r.touchLane(s, l)
	r.tx.Set(schema.ReadyKey(s.ns, s.queue, name, x.Seq), schema.EncodeReady(id, x.ReadyAt))
}

// Leave removes a task that was ready from its lane.
func (r *Round) Leave(s *Set, x *schema.Exec) {
	name := x.Lane()
	l := r.laneOf(s, name)
	if !r.holds(s, l, x.Seq) {
		schema.Damaged(fmt.Errorf("ready task at %d is in no lane of queue %q", x.Seq, s.queue))
	}
	first := l.first()
	l.remove(x.Seq)
	s.countHeld(l)
	inRow := l.inRow.Seq == x.Seq
	if inRow {
		l.inRow = schema.ReadyTask{}
	} else if !l.leavesRow(x.Seq) {
		r.tx.Delete(schema.ReadyKey(s.ns, s.queue, name, x.Seq))
	}
	if l.count == 0 || l.stales >= Bounds.Stale {
		r.deleteStale(s, l)
	}
	switch {
	case l.count == 0:
		s.drop(l, r.now)
	case l.first() != first:
		s.moved(l)
	}
	if inRow || l.count == 0 { // a new lane of the same name may begin before the round ends
		r.writeLane(s, l)
	} else {
		r.touchLane(s, l)
	}
}

// Holds reports whether a lane has a task at a sequence number, and returns the task if it is in the lane's own row.
func (r *Round) Holds(s *Set, name schema.LaneName, seq uint64) (inRow schema.ReadyTask, some bool) {
	l := r.laneOf(s, name)
	if some = r.holds(s, l, seq); some && l.inRow.Seq == seq {
		inRow = l.inRow
	}
	return inRow, some
}

func (r *Round) holds(s *Set, l *Lane, seq uint64) (some bool) {
	switch {
	case l == nil || seq == 0: // which is where a lane without a task in its row has one
	case l.inRow.Seq == seq || slices.ContainsFunc(l.head, func(t schema.ReadyTask) bool { return t.Seq == seq }):
		some = true
	case seq >= l.scan: // it is not read yet
		_, some = r.tx.Get(schema.ReadyKey(s.ns, s.queue, l.LaneName, seq))
	}
	return some
}

func (r *Round) touchLane(s *Set, l *Lane) {
	if !l.dirty {
		l.dirty = true
		r.dirty = append(r.dirty, dirtyLane{s, l})
	}
	r.settleFlow(s, l.flow, l)
}

func (r *Round) writeLane(s *Set, l *Lane) {
	l.dirty = false
	key := schema.LaneKey(s.ns, schema.TableLane, s.queue, l.LaneName)
	if l.count == 0 {
		r.tx.Delete(key)
	} else {
		r.tx.Set(key, l.encode())
	}
}

// fill reads the next tasks of a lane into its head.
func (r *Round) fill(s *Set, l *Lane) {
	l.head = make([]schema.ReadyTask, 0, min(l.count, int64(Bounds.LaneHead)))
	schema.ScanLane(r.tx, s.ns, s.queue, l.LaneName, l.inRow, l.scan, math.MaxUint64, func(t schema.ReadyTask) bool {
		l.head = append(l.head, t)
		l.scan = t.Seq + 1
		return len(l.head) < Bounds.LaneHead
	})
	if len(l.head) == 0 {
		schema.Damaged(fmt.Errorf("lane %v of queue %q counts %d tasks and has none from %d on", l.LaneName, s.queue, l.count, l.scan))
	}
	r.warm(s.ns, l.head)
	r.readAhead(s, l)
}
