package deadline

import (
	"math"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// A deadline that is set for a time before others while they are handled is not missed.
func TestDeadlineSetWhileHandling(t *testing.T) {
	for line := range schema.Timelines {
		var all Timelines
		all[line] = timeline{next: 5}
		all.Advance(line, schema.Deadline{At: 9, Kind: schema.OnDue, Namespace: "default"})
		if all[line].next != 5 || all[line].after != nil {
			t.Errorf("the next round begins at %d after %x, but a deadline was set for 5", all[line].next, all[line].after)
		}
		all[line] = timeline{next: math.MaxInt64}
		all.Advance(line, schema.Deadline{At: 9, Kind: schema.OnDue, Namespace: "default"})
		if all[line].next != 9 || all[line].after[0] != schema.Timelines[line] {
			t.Errorf("the next round begins at %d after %x, want 9 in its own table", all[line].next, all[line].after)
		}
	}
}

// A deadline that is set for the time at which the next round begins may sort before those already handled there, and
// is handled all the same.
func TestDeadlineSetForTheNextRound(t *testing.T) {
	for _, c := range []struct {
		at, next store.Time
		anew     bool
	}{{8, 8, true}, {9, 9, true}, {10, 9, false}} {
		var all Timelines
		line := &all[schema.TimelineOf(schema.OnDue)]
		*line = timeline{next: 9, after: []byte("behind others")}
		all.Set(c.at, schema.OnDue)
		if line.next != c.next || (line.after == nil) != c.anew {
			t.Errorf("with a deadline at %d, the next round begins at %d after %q", c.at, line.next, line.after)
		}
	}
}
