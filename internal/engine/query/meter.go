package query

import (
	"fmt"
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
			m.Since = OldestReady(from, ns, m.Queue)
		}
	}
	return all, err
}
