package engine

import (
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/task"
)

// spaceOf returns the usage of a namespace in this shard.
func (r *Round) spaceOf(ns string) *limit.Space {
	s := r.l.spaces[ns]
	if s == nil {
		s = limit.OpenSpace(r.tx, ns)
		r.l.spaces[ns] = s
	}
	return s
}

// Begin notes since which version of the system shard a namespace exists that gets something in this shard. A share from before is that of
// an earlier namespace of this name, and a removal from before is over.
func Begin(r *Round, ns string, since uint64) {
	PutShare(r, task.SpaceName{Namespace: ns}, task.Share{Version: since, Amounts: task.Unlimited})
}

// PutShare replaces the shard's share of a namespace's quotas, or of a queue's limits, unless the present one is as
// new, and returns what it uses. A shard whose copy of the queue is not divided, or which has none, takes no share: it
// would keep it after it has dropped the queue.
func PutShare(r *Round, of task.SpaceName, to task.Share) task.Space {
	if of.Queue != "" {
		if q := r.Queue(of.Namespace, of.Queue); q != nil && q.own.SetShare(r.tx, to) {
			q.in(r).Wake()
		}
	} else if s := r.spaceOf(of.Namespace); s.SetShare(r.tx, to) {
		r.quotas.RoomIn(s)
	}
	return Space(r, of)
}

// Space returns what a namespace or a queue uses.
func Space(r *Round, of task.SpaceName) task.Space {
	if of.Queue == "" {
		return r.spaceOf(of.Namespace).Info()
	}
	if q := r.Queue(of.Namespace, of.Queue); q != nil {
		return q.own.Info(q.counts.Parked + q.lanes.HeldTasks())
	}
	return task.Space{Namespace: of.Namespace}
}

// WakeBlocked wakes the next queue that was blocked by its namespace's quota and may run more after this round. It
// reports whether there was one.
func (r *Round) WakeBlocked() bool {
	ns, queue, some := r.quotas.Next()
	if some {
		r.Woken = append(r.Woken, Woken{ns, queue})
	}
	return some
}
