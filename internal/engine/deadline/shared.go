package deadline

import (
	"encoding/binary"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Tasks of one round whose leases, or whose retentions, end at the same time share a row: nearly all claims and acks
// set such deadlines, and a row for each, with its deletion, was half of what they wrote (decision 77). Keys of one
// round that end in the same second share a row too (decision
// 81).
//
// A row lists its tasks when it is written and is never rewritten. So a listed task may have another deadline by now,
// or be gone; the reader of the row checks the task. Every claimed task is listed in the row for the end of its lease,
// and every ended one in the row for the end of its retention.

// MaxShared bounds the number of tasks, or keys, in a row.
const MaxShared = 250

// Name identifies a shared row: what its tasks, or keys, have in common.
type Name struct {
	Kind      schema.DeadlineKind
	Namespace string
	At        store.Time
}

// Row is a row that tasks or keys share.
type Row struct {
	Name
	ids  []task.ID // until it is written
	keys [][]byte
	Key  []byte // once it is written
	// leases is how many of its tasks still hold the lease whose end it marks.
	leases int
}

// Shared is the shared rows of a round.
type Shared struct {
	open map[Name]*Row // those with room
	all  []*Row        // in the order of their creation
}

// Add adds a task to a row.
func (s *Shared) Add(name Name, id task.ID) *Row {
	row := s.with(name)
	row.ids = append(row.ids, id)
	return row
}

// AddKey adds a key, by the rest of its row's key after the table.
func (s *Shared) AddKey(name Name, key []byte) {
	row := s.with(name)
	row.keys = append(row.keys, key)
}

// with returns a row with room, creating one if need be.
func (s *Shared) with(name Name) *Row {
	row := s.open[name]
	if row == nil || len(row.ids)+len(row.keys) == MaxShared {
		row = &Row{Name: name}
		if s.open == nil {
			s.open = map[Name]*Row{}
		}
		s.open[name] = row
		s.all = append(s.all, row)
	}
	return row
}

// Seal writes the rows.
func (s *Shared) Seal(tx *store.Tx, t *Timelines) {
	for _, row := range s.all {
		if row.Kind == schema.OnLease && row.leases == 0 {
			continue // all of them ended in the round
		}
		d := schema.Deadline{At: row.At, Kind: row.Kind, Namespace: row.Namespace, Shared: row.ids, Keys: row.keys,
			Rest: binary.BigEndian.AppendUint64(nil, tx.NextSeq())}
		row.Key = d.Key()
		tx.Set(row.Key, d.Value())
		t.Set(row.At, row.Kind)
		row.ids = nil
	}
	*s = Shared{}
}

// Leases maps the leases that a leader granted to their shared rows, by namespace and task, so that a row is deleted
// with its last lease. Rows written by earlier leaders stay until they are due.
type Leases map[string]map[task.ID]*Row

// Begin adds a lease.
func (l Leases) Begin(id task.ID, row *Row) {
	of := l[row.Namespace]
	if of == nil {
		of = map[task.ID]*Row{}
		l[row.Namespace] = of
	}
	of[id] = row
	row.leases++
}

// End removes a lease. It returns the row if that is written and has no other lease.
func (l Leases) End(ns string, id task.ID) (over *Row) {
	row := l[ns][id]
	if row == nil {
		return nil
	}
	delete(l[ns], id)
	if row.leases--; row.leases == 0 && row.Key != nil {
		return row
	}
	return nil
}
