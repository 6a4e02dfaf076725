package engine

import (
	"encoding/binary"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// SetDeadline sets a deadline with its own row.
func (r *Round) SetDeadline(at store.Time, kind schema.DeadlineKind, ns string, rest []byte) {
	r.tx.Set(schema.DeadlineKey(at, kind, ns, rest), nil)
	r.l.timelines.set(at, kind)
}

// Tasks of one round whose leases, or whose retentions, end at the same time share a row: nearly all claims and acks set such deadlines, and a row
// for each, with its deletion, was half of what they wrote (decision 77). Keys of one round that end in the same second share a row too (decision
// 81).
//
// A row lists its tasks when it is written and is never rewritten. So a listed task may have another deadline by now, or be gone; the reader of the
// row checks the task (taskDue). Every claimed task is listed in the row for the end of its lease, and every ended one in the row for the end of its
// retention.

// maxShared bounds the number of tasks, or keys, in a row.
const maxShared = 250

// sharedName identifies a shared row: what its tasks, or keys, have in common.
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
	// leases is how many of its tasks still hold the lease whose end it marks.
	leases int
}

// sharedRows are the shared rows of a round.
type sharedRows struct {
	open map[sharedName]*sharedRow // those with room
	all  []*sharedRow              // in the order of their creation
}

// add adds a task to a row.
func (s *sharedRows) add(name sharedName, id task.ID) *sharedRow {
	row := s.with(name)
	row.ids = append(row.ids, id)
	return row
}

// addKey adds a key, by the rest of its row's key after the table.
func (s *sharedRows) addKey(name sharedName, key []byte) {
	row := s.with(name)
	row.keys = append(row.keys, key)
}

// with returns a row with room, creating one if need be.
func (s *sharedRows) with(name sharedName) *sharedRow {
	row := s.open[name]
	if row == nil || len(row.ids)+len(row.keys) == maxShared {
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

// leases maps the leases that a leader granted to their shared rows, by namespace and task, so that a row is deleted with its last lease. Rows
// written by earlier leaders stay until they are due.
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

// end removes a lease. It returns the row if that is written and has no other lease.
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

// endTaskDeadline removes a deadline of a task. A retention's row stays, because it lists other tasks too.
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
