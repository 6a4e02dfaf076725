package deadline

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// Timelines is the leader's position in the tables of deadlines.
type Timelines [len(schema.Timelines)]timeline

// timeline is its position in one of them.
type timeline struct {
	next  store.Time // there is no deadline before this
	after []byte     // nor before this key
}

// First returns a time before which there is no deadline.
func (t *Timelines) First() store.Time { return min(t[0].next, t[1].next) }

// Set records that a deadline was set.
func (t *Timelines) Set(at store.Time, kind schema.DeadlineKind) {
	if line := &t[schema.TimelineOf(kind)]; at <= line.next {
		*line = timeline{next: at}
	}
}

// Bounds is what one round may handle.
type Bounds struct {
	Acts   int // tasks and keys
	Births int // deadlines that create tasks
}

// Due is what is due.
type Due struct {
	Deadlines []schema.Deadline // in order of time
	Lines     []int             // the timelines that were read. Their positions were reset: the caller must set them
	Whole     bool              // these are all
	Unknown   []schema.Apart    // rows that are no deadlines
}

// ReadDue reads the deadlines that are due, up to a bound. known reports whether a kind has an action.
func (t *Timelines) ReadDue(tx *store.Tx, now store.Time, most Bounds, known func(schema.DeadlineKind) bool) (out Due) {
	var due []schema.Deadline
	var end *schema.Deadline // the last deadline up to which all timelines were read
	for line := range schema.Timelines {
		one := &t[line]
		if one.next > now {
			continue
		}
		some := one.readDue(tx, line, now, most, known)
		out.Unknown = append(out.Unknown, some.Unknown...)
		last := len(some.Deadlines) - 1
		if !some.Whole && last < 0 { // what is due first may be behind these rows
			return Due{Unknown: out.Unknown}
		}
		if !some.Whole && (end == nil || some.Deadlines[last].Compare(*end) < 0) {
			end = &some.Deadlines[last]
		}
		due, out.Lines = append(due, some.Deadlines...), append(out.Lines, line)
	}
	for _, line := range out.Lines {
		t[line] = timeline{next: math.MaxInt64}
	}
	if len(out.Lines) > 1 {
		slices.SortFunc(due, schema.Deadline.Compare)
		if end != nil {
			due = slices.DeleteFunc(due, func(d schema.Deadline) bool { return d.Compare(*end) > 0 })
		}
	}
	out.Deadlines = upTo(due, most.Acts)
	out.Whole = end == nil && len(out.Deadlines) == len(due)
	return out
}

// upTo returns the first deadlines, as many as one round may handle.
func upTo(due []schema.Deadline, most int) []schema.Deadline {
	acts := 0
	for i := range due {
		if acts += due[i].Acts(); acts > most {
			return due[:i]
		}
	}
	return due
}

// readDue reads the deadlines that are due in one timeline.
func (t *timeline) readDue(tx *store.Tx, line int, now store.Time, most Bounds, known func(schema.DeadlineKind) bool) (out Due) {
	lo := schema.TimelineKey(line, t.next)
	if bytes.Compare(t.after, lo) > 0 {
		lo = t.after
	}
	acts, births := 0, 0
	tx.Scan(lo, schema.TimelineKey(line, now+1), func(k, v []byte) bool {
		d, ok := schema.ParseDeadline(k, v)
		if !ok || !known(d.Kind) {
			out.Unknown = append(out.Unknown, schema.Apart{Namespace: d.Namespace, Key: bytes.Clone(k), Value: bytes.Clone(v),
				Reason: "it is no deadline of this release"})
			acts++
			return acts < most.Acts
		}
		out.Deadlines = append(out.Deadlines, d)
		acts += d.Acts()
		if d.Kind == schema.OnTick {
			births++
		}
		return acts < most.Acts && births < most.Births
	})
	out.Whole = acts < most.Acts && births < most.Births
	return out
}

// Advance makes the next round start after the last deadline of this one: before it there are only tombstones now,
// apart from what was set meanwhile.
func (t *Timelines) Advance(line int, last schema.Deadline) {
	if t[line].next > last.At {
		key := append(last.Key(), 0)
		key[0] = schema.Timelines[line]
		t[line] = timeline{last.At, key}
	}
}

// Rewind makes the next round start at a time, or earlier if a deadline was set meanwhile.
func (t *Timelines) Rewind(line int, to store.Time) { t[line] = timeline{next: min(t[line].next, to)} }

// Skip makes the next round start at the first deadline after now, or a little before it.
func (t *Timelines) Skip(tx *store.Tx, line int, now store.Time) {
	t[line].next = min(t[line].next, lookAhead(tx, line, now+1))
}

// lookAhead returns a time before which a timeline has no deadline.
//
// Taking the first row after now would walk over the tombstones of all leases that ended early, a second's worth for
// each second of the lease. So it looks at windows that grow while they cost little.
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
