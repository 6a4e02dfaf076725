package query

import (
	"fmt"
	"math"
	"strings"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Meter counts the ready tasks of a queue in a shard, including those that must not run now.
type Meter struct {
	Queue string
	Ready int64
	Since store.Time // since when the oldest has been ready; 0: there is none, or it was not requested
}

// maxMeterLanes bounds the lanes of a queue that are searched for its oldest task. In a queue with more, it may be a younger one.
const maxMeterLanes = 2000

// Meters counts the ready tasks of the queues of a namespace that match patterns. If since is set, it also finds the oldest.
func Meters(from store.Reader, ns string, patterns []string, since bool) (all []Meter, err error) {
	lo, hi := schema.TableBounds(ns, schema.TableCounts)
	within := task.Scope{Queues: patterns}
	from.Scan(lo, hi, func(k, v []byte) bool {
		queue := strings.TrimSuffix(string(k[len(lo):]), "\x00")
		if !within.Sees(queue) {
			return true
		}
		c, bad := schema.DecodeCounts(v)
		if bad != nil {
			err = fmt.Errorf("counts row %q: %w", k, bad)
			return false
		}
		all = append(all, Meter{Queue: queue, Ready: c.Ready[0] + c.Ready[1] + c.Ready[2]})
		return true
	})
	for i := range all {
		if m := &all[i]; since && err == nil && m.Ready > 0 {
			m.Since = oldestReady(from, ns, m.Queue)
		}
	}
	return all, err
}

// oldestReady returns since when the oldest ready task of a queue has been ready.
func oldestReady(from store.Reader, ns, queue string) (oldest store.Time) {
	note := func(at store.Time) {
		if oldest == 0 || at < oldest {
			oldest = at
		}
	}
	lanes := 0
	prefix := schema.QueueKey(ns, schema.TableLane, queue)
	from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		row, err := schema.DecodeLane(v)
		name, ok := schema.ParseLane(k[len(prefix):])
		if err != nil || !ok {
			return true // the leader will report it
		}
		if row.InRow.Seq != 0 {
			note(row.InRow.ReadyAt)
		}
		schema.ScanLane(from, ns, queue, name, schema.ReadyTask{}, row.First, math.MaxUint64, func(t schema.ReadyTask) bool {
			note(t.ReadyAt)
			return false
		})
		lanes++
		return lanes < maxMeterLanes
	})
	return oldest
}
