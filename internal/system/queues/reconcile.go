package queues

import (
	"cmp"
	"slices"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// After a recovery, and in a backup, each shard is as of a moment of its own. So a row of the system shard may be older than the shards'
// copies of it, or newer: slots may have moved in between, or the queue may have been deleted. Even so, no shard's tasks may become
// unreachable, and no two shards may take tasks of one slot.

// Reconcile reconciles the rows of queues with the copies in the data shards, each with the shard that has it.
func Reconcile(tx *store.Tx, copies []Queue) error {
	rows := map[system.Name]*Queue{} // nil: there is only a copy
	err := Scan(tx, []byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(q Queue, dropping bool) bool {
		stays := func(c Queue) bool {
			return c.FullName() == q.FullName() && (c.Config.Version > q.Config.Version || !q.In(c.Shard))
		}
		if !dropping || slices.ContainsFunc(copies, stays) { // otherwise the next leader finishes the deletion
			rows[q.FullName()] = &q
		}
		return true
	})
	if err != nil {
		return err
	}
	byName := map[system.Name][]Queue{}
	for _, c := range copies {
		byName[c.FullName()] = append(byName[c.FullName()], c)
		if _, known := tx.Get(queueKey(c.Namespace, c.Name)); !known {
			rows[c.FullName()] = nil
		}
	}
	for name, row := range rows {
		held := byName[name]
		slices.SortFunc(held, func(a, b Queue) int { return cmp.Compare(a.Shard, b.Shard) })
		q, changed := reconciledQueue(row, held)
		if changed {
			tx.Set(queueKey(q.Namespace, q.Name), encodeQueue(q, false))
		}
	}
	return nil
}

// reconciledQueue returns the row of a queue that fits what the shards hold. row is nil if there is none.
func reconciledQueue(row *Queue, held []Queue) (q Queue, changed bool) {
	if row == nil {
		q = held[0]
		if open := task.SlotCount - q.Config.Closed.Len(); open < task.SlotCount {
			q.Config.Settings.Rate = q.Config.Settings.Rate.Whole(open)
		}
		q.Config.Closed, q.Config.Moved, q.Config.Elsewhere, q.Config.Divided = 0, 0, 0, false
	} else {
		q = *row
	}
	newest := q.Config.Version
	apart := q.Spread()
	for _, c := range held {
		newest = max(newest, c.Config.Version)
		apart = apart || c.Shard != q.Shard || c.Config.Closed != 0 || c.Config.Divided
	}
	if !apart {
		changed = row == nil || newest > q.Config.Version
		if row != nil && changed { // the copies' versions are used up
			q.Config.Version = newest + 1
		}
		return q, changed
	}
	if row == nil {
		q.Parts = partsOf(held)
	} else if q.Parts = slices.Clone(q.Parts); len(q.Parts) == 0 {
		q.Parts = []Part{{Shard: q.Shard, Next: task.AllSlots}}
	}
	for _, c := range held {
		switch p := q.part(c.Shard); {
		case p == nil:
			q.Parts = append(q.Parts, Part{Shard: c.Shard, Left: task.AllSlots, Recent: true})
		// the shard may have had any slot, or may still know keys that the row has forgotten
		case row == nil || c.Config.Version != row.Config.Version:
			p.Left = ^p.Next
			p.Recent = p.Left != 0
		}
	}
	for i := range q.Parts { // closed everywhere first, then opened: see openSlots
		q.Parts[i].Slots, q.Parts[i].Retiring = 0, 0
		q.Parts[i].LeftAt = 0 // the windows of messages begin when the shards serve again
	}
	q.Config.Version = newest + 1
	q.Moved = q.Config.Version
	return q, true
}

// partsOf builds parts from what the shards take according to their copies.
func partsOf(held []Queue) (parts []Part) {
	free := task.AllSlots
	for _, c := range held {
		next := free &^ c.Config.Closed
		free &^= next
		parts = append(parts, Part{Shard: c.Shard, Next: next})
	}
	parts[0].Next |= free
	return parts
}
