package cache

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// IDs tells, without a read, that an id derived from a request can't have been used: such ids begin with the
// producer's time, so most are greater than all before.
type IDs struct {
	from int64 // every id of this or a later millisecond that was stored is in seen
	last int64 // the latest millisecond of a stored id
	seen map[task.ID]struct{}
}

// seenIDs bounds the memory: 100,000 ids are a second or more of a busy shard.
const seenIDs = 100_000

// Load finds where the ids end of tasks that are stored, or forgotten while their requests may be repeated.
func (n *IDs) Load(from store.Reader, ns string) {
	forgotten := schema.IDKey(ns, schema.TableRequest, task.ID{})
	for _, prefix := range [][]byte{schema.Table(ns, schema.TableExec), forgotten} {
		from.ScanBack(prefix, schema.After(prefix), func(k, _ []byte) bool {
			n.last = max(n.last, schema.IDAt(k).UnixMilli())
			return false
		})
	}
	n.from = n.last + 1
	n.seen = map[task.ID]struct{}{}
}

// IsNew is false if the id may have been stored.
func (n *IDs) IsNew(id task.ID) bool {
	if id.UnixMilli() < n.from {
		return false
	}
	_, seen := n.seen[id]
	return !seen
}

// Add notes the id of a task that is stored.
func (n *IDs) Add(id task.ID) {
	ms := id.UnixMilli()
	n.last = max(n.last, ms)
	if ms < n.from {
		return
	}
	if len(n.seen) >= seenIDs {
		n.from = n.last + 1
		clear(n.seen)
		return
	}
	n.seen[id] = struct{}{}
}
