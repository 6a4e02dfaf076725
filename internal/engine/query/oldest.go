package query

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// maxOldestRows bounds the rows of lanes that are read for the oldest task. In a queue with more, it may be a younger one.
	maxOldestRows = 100_000
	// maxOldestLanes bounds the lanes that are searched for it: the ones that may begin first.
	maxOldestLanes = 16
	// maxOldestKeys bounds the keys whose tasks wait for one before them, maxOldestSeeks the seeks by which they are
	// found, and maxOldestBehind the tasks of each, of up to maxOldestLanes, that are read.
	maxOldestKeys, maxOldestSeeks, maxOldestBehind = 1_000, 50, 16
)

// OldestReady returns since when the oldest ready task of a queue has been ready, held or not; 0: there is none. With
// many keys it takes long, so it reads only the state, and no round waits for it.
func OldestReady(from store.Reader, ns, queue string) store.Time {
	return EarlierOf(oldestInLanes(from, ns, queue), OldestBehind(from, ns, queue).Since)
}

// EarlierOf returns the earlier of two times, of which 0 is none.
func EarlierOf(a, b store.Time) store.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Behind describes the task that has been ready for longest while it waits for one before it with the same key, in a
// queue with a strict order of keys.
type Behind struct {
	Since store.Time // 0: there is none
	Key   string
}

// OldestBehind finds that task: of many keys, among those whose next task was enqueued first.
func OldestBehind(from store.Reader, ns, queue string) (oldest Behind) {
	row, ok := from.Get(schema.QueueKey(ns, schema.TableCounts, queue))
	if !ok || schema.Must(schema.DecodeCounts(row)).Behind == 0 {
		return oldest
	}
	type place struct {
		next uint64
		key  string
	}
	var keys []place
	read := 0
	schema.EachOrder(from, ns, queue, maxOldestSeeks, func(key string, next uint64) bool {
		at, _ := slices.BinarySearchFunc(keys, next, func(p place, next uint64) int { return cmp.Compare(p.next, next) })
		if at < maxOldestLanes {
			keys = slices.Insert(keys[:min(len(keys), maxOldestLanes-1)], at, place{next, key})
		}
		read++
		return read < maxOldestKeys
	})
	for _, p := range keys {
		tasks := 0
		schema.ScanOrder(from, ns, queue, p.key, 0, func(_ uint64, id task.ID) bool {
			if x, err := schema.ReadExec(from, ns, id); err == nil && x.State == task.Ready && x.Role != schema.RoleNext &&
				(oldest.Since == 0 || x.ReadyAt < oldest.Since) {
				oldest = Behind{x.ReadyAt, p.key}
			}
			tasks++
			return tasks < maxOldestBehind
		})
	}
	return oldest
}

func oldestInLanes(from store.Reader, ns, queue string) store.Time {
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
