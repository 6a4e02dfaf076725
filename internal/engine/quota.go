package engine

import (
	"github.com/pawlq/pawl/internal/engine/quota"
	"github.com/pawlq/pawl/internal/task"
)

// spaceOf is the memory of a namespace.
func (r *Round) spaceOf(ns string) *quota.Space {
	s := r.l.spaces[ns]
	if s == nil {
		s = quota.Open(r.tx, ns)
		r.l.spaces[ns] = s
	}
	return s
}

// PutShare replaces a namespace's share of the shard, unless the one that is there is as new, and tells what it uses.
func PutShare(r *Round, ns string, to task.Share) task.Space {
	s := r.spaceOf(ns)
	if s.SetShare(r.tx, to) {
		r.quotas.RoomIn(s)
	}
	return s.Info()
}

// Space tells what a namespace uses.
func Space(r *Round, ns string) task.Space { return r.spaceOf(ns).Info() }

// WakeBlocked wakes the next queue of a namespace that may run more by what the round has done, and says whether there was one.
func (r *Round) WakeBlocked() bool {
	ns, queue, some := r.quotas.Next()
	if some {
		r.Woken = append(r.Woken, Woken{ns, queue})
	}
	return some
}
