package workflow

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A group keeps results until they are too large together. A member's newer result replaces its old one.
func TestResultsOfAGroup(t *testing.T) {
	const most = task.MaxGroupResults
	for _, c := range []struct {
		has, before, comes int
		omitted            bool  // by the member's shard
		kept               int64 // by the group, afterwards
		tooLarge           bool
	}{
		{0, 0, 10, false, 10, false},
		{most - 10, 0, 10, false, most, false},
		{most - 10, 0, 11, false, most - 10, true},
		{most, 10, 10, false, most, false},
		{most, 10, 11, false, most - 10, true},
		{10, 10, 0, true, 0, true},
	} {
		g, m := &taskGroup{results: int64(c.has)}, &member{result: schema.Result{Data: make([]byte, c.before)}}
		g.keepResult(m, &schema.Notice{Result: schema.Result{Data: make([]byte, c.comes)}, Omitted: c.omitted})
		if g.results != c.kept || m.omitted != c.tooLarge {
			t.Errorf("%+v: %d bytes are kept, too large: %t", c, g.results, m.omitted)
		}
	}
}

// A call that created a group is remembered as long as the group, and at least for the window.
func TestRemembered(t *testing.T) {
	g := &taskGroup{createdAt: 7}
	end := g.createdAt.Add(task.RequestWindow)
	for _, c := range []struct {
		leaving bool
		now     store.Time
		want    bool
	}{{false, end + 1, true}, {true, end - 1, true}, {true, end, false}, {true, end + 1, false}} {
		if g.expired = c.leaving; g.remembered(c.now) != c.want {
			t.Errorf("expired %t, at %d of %d: remembered = %t", c.leaving, c.now, end, !c.want)
		}
	}
}

// Values stored by a later release have a name.
func TestStateNames(t *testing.T) {
	for s, want := range map[State]string{Running: "running", Cancelled: "cancelled", Cancelled + 1: "state_3"} {
		if s.String() != want {
			t.Errorf("state %d is %q, want %q", s, s, want)
		}
	}
}
