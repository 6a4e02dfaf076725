package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Dump returns all that a leader has in memory.
func (l *Leader) Dump() string {
	var b strings.Builder
	tasks, bytes := l.hot.Size()
	fmt.Fprintf(&b, "next %+v, shares %v, hot %d of %d bytes\n", l.timelines, l.shares, tasks, bytes)
	for _, qn := range slices.SortedFunc(maps.Keys(l.queues), func(a, b queueName) int { return strings.Compare(a.name, b.name) }) {
		q := l.queues[qn]
		fmt.Fprintf(&b, "%v %d %+v stale %d credit %v dirty %t breakers %v\n", qn, q.config.Version, q.counts, len(q.limits.Stale()),
			q.credit, q.dirty, dumpBreakers(q.breakers))
		for _, key := range slices.Sorted(maps.Keys(q.limits.Buckets())) {
			fmt.Fprintf(&b, "  bucket %q %+v\n", key, *q.limits.Buckets()[key])
		}
		b.WriteString(q.lanes.Dump())
	}
	return b.String()
}
