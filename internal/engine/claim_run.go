package engine

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// claimRun claims, in order, the tasks behind one that the same call has just claimed, until one must not run or does not fit.
func (p *claiming) claimRun(q *Queue, behind *schema.Exec) {
	r, c := p.r, p.c
	n := c.Max - len(p.got)
	var ids []task.ID
	schema.ScanOrder(r.tx, q.ns, q.name, behind.Key, behind.Order, func(_ uint64, id task.ID) bool {
		ids = append(ids, id)
		return len(ids) < n
	})
	for _, id := range ids {
		x, e, checkpoint, damage := r.rowsOf(q, id)
		if damage != nil || !c.mayFollow(r, q, x) || !p.fits(e, checkpoint) {
			return
		}
		p.add(r.claimed(q, e, c.take(r, q, e, x), checkpoint))
	}
}

// mayFollow reports whether a task may be claimed in one run with its predecessors: nothing else must hold it back.
func (c *ClaimRequest) mayFollow(r *Round, q *Queue, x *schema.Exec) bool {
	if !x.Behind || x.Expired(r.now) || x.Role == schema.RoleNext || len(c.Types) > 0 && !slices.Contains(c.Types, x.Type) {
		return false
	}
	f := q.lanes.Flow(x.Key, r.now)
	held := q.Held(x.Key, &f.Use, r.now)
	return q.mayRun(r.now) && !q.lanes.Holds(x.Type) && (held == 0 || held == lanes.HeldByOrder)
}

// warmBehind reads the states of the tasks behind the claimed ones in one batch: they are needed when the claimed ones end.
func (p *claiming) warmBehind() {
	r, ns, got := p.r, p.c.Namespace, p.got
	ids := make([]task.ID, 0, len(got))
	for _, t := range got {
		if t.Exec.Order == 0 {
			continue
		}
		if id, some := r.Queue(ns, t.Queue).order.Behind(r.tx, t.Key, t.ID); some {
			ids = append(ids, id)
		}
	}
	r.Warm(ns, ids)
}
