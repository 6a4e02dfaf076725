package lanes

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// When a task leaves the head of a long lane, its row stays. Such stale rows precede the lane's first task and are
// deleted a thousand at a time: deleting them one by one was a third of what a claim and its ack wrote, and most of
// what the store compacted (decision 79).

// leavesRow reports whether the row of a task that has just left the lane stays as a stale row.
func (l *Lane) leavesRow(seq uint64) bool {
	switch {
	case seq >= l.first(): // the task was not at the head
		return false
	case l.stale != 0:
	case l.count < int64(Bounds.Stale):
		return false
	default:
		l.stale = seq
	}
	l.stales++
	return true
}

// deleteStale deletes the stale rows of a lane.
func (r *Round) deleteStale(s *Set, l *Lane) {
	if l.stale == 0 {
		return
	}
	lo, hi := schema.ReadyKey(s.ns, s.queue, l.LaneName, l.stale), schema.ReadyKey(s.ns, s.queue, l.LaneName, l.first())
	if l.stales >= store.RangeFrom {
		r.tx.DeleteRange(lo, hi)
	} else {
		var keys [][]byte
		r.tx.Scan(lo, hi, func(k, _ []byte) bool {
			keys = append(keys, bytes.Clone(k))
			return true
		})
		for _, k := range keys {
			r.tx.Delete(k)
		}
	}
	l.stale, l.stales = 0, 0
}
