package cache

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// IDs detects, without a read, ids derived from a request that can't have been used: such ids begin with the producer's
// time, so most are greater than all before.
type IDs struct {
	from int64 // every stored id of this or a later millisecond is in seen
	last int64 // the latest millisecond of a stored id
	seen map[task.ID]struct{}
}

// seenIDs bounds the memory: 100,000 ids are a second or more of a busy shard.
const seenIDs = 100_000

// Load finds the greatest id of the stored tasks and groups, and of tasks forgotten while their requests may be repeated.
func (n *IDs) Load(from store.Reader, ns string) {
	forgotten := schema.IDKey(ns, schema.TableRequest, task.ID{})
	for _, prefix := range [][]byte{schema.Table(ns, schema.TableExec), forgotten, schema.Table(ns, schema.TableGroup)} {
		from.ScanBack(prefix, schema.After(prefix), func(k, _ []byte) bool {
			n.last = max(n.last, schema.IDAt(k).UnixMilli())
			return false
		})
	}
	n.from = n.last + 1
	n.seen = map[task.ID]struct{}{}
}

// IsNew returns false if the id may have been stored.
func (n *IDs) IsNew(id task.ID) bool {
	if id.UnixMilli() < n.from {
		return false
	}
	_, seen := n.seen[id]
	return !seen
}

// Add records the id of a stored task.
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
