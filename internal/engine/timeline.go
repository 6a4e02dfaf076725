package engine

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// timelines is the leader's position in the tables of deadlines.
type timelines [len(schema.Timelines)]timeline

// timeline is its position in one of them.
type timeline struct {
	next  store.Time // there is no deadline before this
	after []byte     // nor before this key
}

// first returns a time before which there is no deadline.
func (t *timelines) first() store.Time { return min(t[0].next, t[1].next) }

// set records that a deadline was set.
func (t *timelines) set(at store.Time, kind schema.DeadlineKind) {
	if line := &t[schema.TimelineOf(kind)]; at <= line.next {
		*line = timeline{next: at}
	}
}

// readDue reads the deadlines that are due, up to a bound, in order of time. It returns the timelines they are from, and whether these are all. The
// positions of those timelines are reset: the caller must set them.
func (t *timelines) readDue(r *Round) (due []schema.Deadline, lines []int, whole bool) {
	now := r.now
	var end *schema.Deadline // the last deadline up to which all timelines were read
	for line := range schema.Timelines {
		one := &t[line]
		if one.next > now {
			continue
		}
		some, all := one.readDue(r, line, now)
		if last := len(some) - 1; !all && (end == nil || some[last].Compare(*end) < 0) {
			end = &some[last]
		}
		due, lines = append(due, some...), append(lines, line)
		*one = timeline{next: math.MaxInt64}
	}
	if len(lines) > 1 {
		slices.SortFunc(due, schema.Deadline.Compare)
		if end != nil {
			due = slices.DeleteFunc(due, func(d schema.Deadline) bool { return d.Compare(*end) > 0 })
		}
	}
	some := upToLimit(due)
	return some, lines, end == nil && len(some) == len(due)
}

// upToLimit returns the first deadlines, as many as one round may handle.
func upToLimit(due []schema.Deadline) []schema.Deadline {
	acts := 0
	for i := range due {
		if acts += due[i].Acts(); acts > tickLimit {
			return due[:i]
		}
	}
	return due
}

// readDue reads the deadlines that are due in one timeline. It sets rows apart that are no deadlines.
func (t *timeline) readDue(r *Round, line int, now store.Time) (due []schema.Deadline, all bool) {
	lo := schema.TimelineKey(line, t.next)
	if bytes.Compare(t.after, lo) > 0 {
		lo = t.after
	}
	acts, births := 0, 0
	var bad []Apart
	defer func() {
		for i := range bad {
			r.setApart(bad[i])
		}
	}()
	r.tx.Scan(lo, schema.TimelineKey(line, now+1), func(k, v []byte) bool {
		d, ok := schema.ParseDeadline(k, v)
		if !ok || r.l.points.due[d.Kind] == nil {
			bad = append(bad, Apart{Namespace: d.Namespace, Apart: schema.Apart{Key: bytes.Clone(k), Value: bytes.Clone(v), Reason: "it is no deadline of this release"}})
			acts++
			return acts < tickLimit
		}
		due = append(due, d)
		acts += d.Acts()
		if d.Kind == schema.OnTick {
			births++
		}
		return acts < tickLimit && births < CreateLimit
	})
	return due, acts < tickLimit && births < CreateLimit
}

// advance makes the next round start after the last deadline of this one: before it there are only tombstones now, apart from what was set meanwhile.
func (t *timeline) advance(line int, last schema.Deadline) {
	if t.next > last.At {
		key := append(last.Key(), 0)
		key[0] = schema.Timelines[line]
		t.next, t.after = last.At, key
	}
}

// lookAhead returns a time before which a timeline has no deadline.
//
// Taking the first row after now would walk over the tombstones of all leases that ended early, a second's worth for each second of the lease. So it
// looks at windows that grow while they cost little.
func lookAhead(tx *store.Tx, line int, from store.Time) store.Time {
	const (
		firstWindow = 100 * time.Millisecond
		costly      = 2000 // rows and tombstones passed
	)
	for window := firstWindow; ; window *= 4 {
		to := from.Add(window)
		if window > 10*365*24*time.Hour {
			to = math.MaxInt64
		}
		key, cost, ok := tx.First(schema.TimelineKey(line, from), schema.TimelineKey(line, to))
		switch {
		case ok:
			return schema.DeadlineTime(key)
		case cost > costly || to == math.MaxInt64:
			return to
		}
		from = to
	}
}
