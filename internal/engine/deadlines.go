package engine

import (
	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// SetDeadline sets a deadline with its own row.
func (r *Round) SetDeadline(at store.Time, kind schema.DeadlineKind, ns string, rest []byte) {
	r.tx.Set(schema.DeadlineKey(at, kind, ns, rest), nil)
	r.l.timelines.Set(at, kind)
}

// setTaskDeadline sets a deadline of a task.
func (r *Round) setTaskDeadline(at store.Time, kind schema.DeadlineKind, ns string, id task.ID) {
	if !kind.Shared() {
		r.SetDeadline(at, kind, ns, id[:])
		return
	}
	row := r.shared.Add(deadline.Name{Kind: kind, Namespace: ns, At: at}, id)
	if kind == schema.OnLease {
		r.l.leases.Begin(id, row)
	}
}

// endTaskDeadline removes a deadline of a task. A retention's row stays, because it lists other tasks too.
func (r *Round) endTaskDeadline(at store.Time, kind schema.DeadlineKind, ns string, id task.ID) {
	switch kind {
	case schema.OnLease:
		if row := r.l.leases.End(ns, id); row != nil {
			r.tx.Delete(row.Key)
		}
	case schema.OnForget:
	default:
		r.tx.Delete(schema.DeadlineKey(at, kind, ns, id[:]))
	}
}
