package engine

import (
	"encoding/binary"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// SetDeadline sets a deadline that has a row of its own.
func (r *Round) SetDeadline(at store.Time, kind schema.DeadlineKind, ns string, rest []byte) {
	r.tx.Set(schema.DeadlineKey(at, kind, ns, rest), nil)
	r.l.timelines.set(at, kind)
}

// Tasks of one round whose leases, or whose retention, end at the same time share a row: nearly all claims and acks are of this kind, and
// a row for each, with its deletion, was half of what they wrote (decision 77). So do its keys that end in the same second (decision 81).
//
// A row names its tasks when it is written, and is not written again. So a task that is named may have another deadline by now, or be
// gone; whoever reads the row asks the task (taskDue). Every claimed task is named by the row of its lease's end, and every ended one by
// that of its retention's.

// sharedMost bounds the tasks, or keys, of a row.
const sharedMost = 250

// sharedName is what the tasks, or keys, of a shared row have in common.
type sharedName struct {
	kind schema.DeadlineKind
	ns   string
	at   store.Time
}

// sharedRow is a row that tasks or keys share.
type sharedRow struct {
	sharedName
	ids  []task.ID // until it is written
	keys [][]byte
	key  []byte // once it is written
	// leases is how many of its tasks still have the lease that it ends.
	leases int
}

// sharedRows are those of a round.
type sharedRows struct {
	open map[sharedName]*sharedRow // those that have room
	all  []*sharedRow              // in the order in which they were begun
}

// add names a task in a row.
func (s *sharedRows) add(name sharedName, id task.ID) *sharedRow {
	row := s.with(name)
	row.ids = append(row.ids, id)
	return row
}

// addKey names the row of a key, in its table.
func (s *sharedRows) addKey(name sharedName, key []byte) {
	row := s.with(name)
	row.keys = append(row.keys, key)
}

// with is a row that has room.
func (s *sharedRows) with(name sharedName) *sharedRow {
	row := s.open[name]
	if row == nil || len(row.ids)+len(row.keys) == sharedMost {
		row = &sharedRow{sharedName: name}
		if s.open == nil {
			s.open = map[sharedName]*sharedRow{}
		}
		s.open[name] = row
		s.all = append(s.all, row)
	}
	return row
}

// seal writes the rows.
func (s *sharedRows) seal(r *Round) {
	for _, row := range s.all {
		if row.kind == schema.OnLease && row.leases == 0 {
			continue // all of them ended in the round
		}
		d := schema.Deadline{At: row.at, Kind: row.kind, Namespace: row.ns, Rest: binary.BigEndian.AppendUint64(nil, r.NextSeq()), Shared: row.ids, Keys: row.keys}
		row.key = d.Key()
		r.tx.Set(row.key, d.Value())
		r.l.timelines.set(row.at, row.kind)
		row.ids = nil
	}
	*s = sharedRows{}
}

// leases are the rows of the leases that a leader gave, by namespace and task, so that a row goes with its last lease. Rows of leaders
// before it stay until they are due.
type leases map[string]map[task.ID]*sharedRow

func (l leases) begin(id task.ID, row *sharedRow) {
	of := l[row.ns]
	if of == nil {
		of = map[task.ID]*sharedRow{}
		l[row.ns] = of
	}
	of[id] = row
	row.leases++
}

// end ends a lease, and returns its row if that has no other and is written.
func (l leases) end(ns string, id task.ID) (over *sharedRow) {
	row := l[ns][id]
	if row == nil {
		return nil
	}
	delete(l[ns], id)
	if row.leases--; row.leases == 0 && row.key != nil {
		return row
	}
	return nil
}

// setTaskDeadline sets a deadline of a task.
func (r *Round) setTaskDeadline(at store.Time, kind schema.DeadlineKind, ns string, id task.ID) {
	if !kind.Shared() {
		r.SetDeadline(at, kind, ns, id[:])
		return
	}
	row := r.shared.add(sharedName{kind, ns, at}, id)
	if kind == schema.OnLease {
		r.l.leases.begin(id, row)
	}
}

// endTaskDeadline takes back a deadline of a task. The row of its retention stays: others are named there.
func (r *Round) endTaskDeadline(at store.Time, kind schema.DeadlineKind, ns string, id task.ID) {
	switch kind {
	case schema.OnLease:
		if row := r.l.leases.end(ns, id); row != nil {
			r.tx.Delete(row.key)
		}
	case schema.OnForget:
	default:
		r.tx.Delete(schema.DeadlineKey(at, kind, ns, id[:]))
	}
}
