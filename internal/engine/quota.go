package engine

import (
	"github.com/pawlq/pawl/internal/engine/quota"
	"github.com/pawlq/pawl/internal/task"
)

// spaceOf returns the usage of a namespace in this shard.
func (r *Round) spaceOf(ns string) *quota.Space {
	s := r.l.spaces[ns]
	if s == nil {
		s = quota.Open(r.tx, ns)
		r.l.spaces[ns] = s
	}
	return s
}

// PutShare replaces a namespace's share in this shard, unless the present one is as new, and returns what the namespace uses.
func PutShare(r *Round, ns string, to task.Share) task.Space {
	s := r.spaceOf(ns)
	if s.SetShare(r.tx, to) {
		r.quotas.RoomIn(s)
	}
	return s.Info()
}

// Space returns what a namespace uses.
func Space(r *Round, ns string) task.Space { return r.spaceOf(ns).Info() }

// WakeBlocked wakes the next queue that was blocked by its namespace's quota and may run more after this round. It reports whether there was one.
func (r *Round) WakeBlocked() bool {
	ns, queue, some := r.quotas.Next()
	if some {
		r.Woken = append(r.Woken, Woken{ns, queue})
	}
	return some
}
