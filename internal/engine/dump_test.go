package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine/schema"
)

// Dump is all that a leader has in memory.
func (l *Leader) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "next %+v, shares %v, hot %d of %d bytes\n", l.timelines, l.shares, len(l.hot.tasks), l.hot.bytes)
	for _, qn := range slices.SortedFunc(maps.Keys(l.queues), func(a, b queueName) int { return strings.Compare(a.name, b.name) }) {
		q := l.queues[qn]
		fmt.Fprintf(&b, "%v %d %+v stale %d credit %v dirty %t account %d opened %d held %v breakers %v\n", qn, q.config.Version, q.counts, len(q.stale), q.credit, q.dirty, q.lanes.account, q.lanes.opened, q.lanes.held, dumpBreakers(q.breakers))
		for _, key := range slices.Sorted(maps.Keys(q.buckets)) {
			fmt.Fprintf(&b, "  bucket %q %+v\n", key, *q.buckets[key])
		}
		for _, key := range slices.Sorted(maps.Keys(q.lanes.flows)) {
			f := q.lanes.flows[key]
			fmt.Fprintf(&b, "  flow %q %v %d %v %d %d %d %v %v %d %v\n", key, f.weight, f.lanes, f.place, f.held, f.use.Count(), f.running, f.used, f.at, f.account, f.rank)
		}
		for _, ln := range slices.SortedFunc(maps.Keys(q.lanes.byName), func(a, b schema.LaneName) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
			n := q.lanes.byName[ln]
			fmt.Fprintf(&b, "  lane %v %d %v %d %t %d %d\n", ln, n.count, n.head, n.scan, n.dirty, n.own, n.sameType)
		}
	}
	return b.String()
}
