package query

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

const (
	// maxOldestRows bounds the rows of lanes that are read for the oldest task. In a queue with more, it may be a younger one.
	maxOldestRows = 100_000
	// maxOldestLanes bounds the lanes that are searched for it: the ones that may begin first.
	maxOldestLanes = 16
)

// OldestReady returns since when the oldest ready task of a queue has been ready, held or not; 0: there is none. With many keys it takes long, so it
// reads only the state, and no round waits for it.
func OldestReady(from store.Reader, ns, queue string) store.Time {
	var o Oldest
	rows := 0
	prefix := schema.QueueKey(ns, schema.TableLane, queue)
	from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		o.Add(k[len(prefix):], schema.Must(schema.DecodeLane(v)))
		rows++
		return rows < maxOldestRows
	})
	return o.Since(from, ns, queue)
}

// Oldest collects the lanes of a queue that may begin with its oldest task.
type Oldest struct {
	lanes []oldestLane // by row.First
}

type oldestLane struct {
	name []byte
	row  schema.LaneRow
}

// Add adds a lane; name is the part of its key after the queue.
func (o *Oldest) Add(name []byte, row schema.LaneRow) {
	at, _ := slices.BinarySearchFunc(o.lanes, row.First, func(l oldestLane, first uint64) int { return cmp.Compare(l.row.First, first) })
	if at < maxOldestLanes {
		o.lanes = slices.Insert(o.lanes[:min(len(o.lanes), maxOldestLanes-1)], at, oldestLane{slices.Clone(name), row})
	}
}

// Since returns since when the oldest task of the lanes has been ready; 0: there is none.
func (o *Oldest) Since(from store.Reader, ns, queue string) (since store.Time) {
	best := uint64(math.MaxUint64)
	for _, l := range o.lanes {
		if l.row.First > best {
			break // First is a lower bound
		}
		name, ok := schema.ParseLane(l.name)
		if !ok {
			schema.Damaged(fmt.Errorf("lane %q of queue %q", l.name, queue))
		}
		schema.ScanLane(from, ns, queue, name, l.row.InRow, l.row.First, best, func(t schema.ReadyTask) bool {
			best, since = t.Seq, t.ReadyAt
			return false
		})
	}
	return since
}
