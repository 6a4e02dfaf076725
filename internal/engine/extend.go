package engine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Extension asks for more time and reports the run's progress.
type Extension struct {
	Exact      bool          // the lease may also be shortened
	Lease      time.Duration // from now; 0: as long as the claim's
	Progress   *Progress
	Checkpoint *[]byte // passed to the next attempt; empty: forget the last one
}

// Progress is a handler's report of how far it is.
type Progress struct {
	Percent float64
	Text    string
}

// Extend prolongs a lease, but never beyond the bound of the run. It shortens the lease only if e.Exact is set.
func Extend(r *Round, h Hold, e Extension) (leaseUntil store.Time, err error) {
	from, _, err := r.Held("extend", h)
	if err != nil {
		return 0, err
	}
	c := h.change(r, from)
	to := c.To
	to.Claim.Until = max(from.Claim.Until, from.Claim.LeaseEnd(r.now, e.Lease))
	if e.Exact {
		to.Claim.Until = from.Claim.LeaseEnd(r.now, e.Lease)
	}
	to.Claim.Orphaned, to.Claim.GivesBack = false, 0
	lease := cmp.Or(e.Lease, from.Claim.Lease)
	if to.Claim.Until < from.Claim.Until || e.Exact && lease <= from.Claim.GivesBack {
		to.Claim.GivesBack = lease
	}
	if r.now >= from.Claim.RunUntil {
		return 0, &task.Error{Code: task.CodeWrongState, State: from.State,
			Message: fmt.Sprintf("extend %q: the run began at %s and can't be extended any further", h.ID,
				from.Claim.At.Time().Format(time.RFC3339))}
	}
	if e.Progress != nil {
		to.Progress, to.ProgressText = e.Progress.Percent, e.Progress.Text
	}
	if e.Checkpoint != nil {
		key := schema.IDKey(h.Namespace, schema.TableCheckpoint, h.ID)
		if to.Checkpointed = len(*e.Checkpoint) > 0; to.Checkpointed {
			r.tx.Set(key, *e.Checkpoint)
		} else {
			r.tx.Delete(key)
		}
	}
	c.Move()
	return to.Claim.Until, nil
}
