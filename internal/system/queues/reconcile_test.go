package queues

import (
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Rows and copies from different moments are reconciled: the tasks in every shard can be reached, the version is a new
// one, and no slot is taken by two shards.
func TestReunited(t *testing.T) {
	const low, high = task.SlotSet(1<<32 - 1), ^task.SlotSet(1<<32 - 1)
	copyIn := func(shard uint32, version uint64, closed task.SlotSet) Queue {
		return Queue{Namespace: "default", Name: "a", Shard: shard, Config: task.QueueConfig{Version: version, Closed: closed,
			Settings: task.Settings{MaxLength: 5}}}
	}
	row := func(version uint64, parts ...Part) *Queue {
		return &Queue{Namespace: "default", Name: "a", Shard: 1, Parts: parts, Config: task.QueueConfig{Version: version,
			Settings: task.Settings{MaxLength: 9}}}
	}
	part := func(shard uint32, slots task.SlotSet) Part { return Part{Shard: shard, Slots: slots, Next: slots} }
	left := func(p Part, slots task.SlotSet) Part {
		p.Left, p.LeftAt, p.Recent = slots, 77, true
		return p
	}
	inParts := func(q Queue) Queue {
		q.Config.Moved, q.Config.Divided = 2, true
		return q
	}
	for name, c := range map[string]struct {
		row     *Queue
		held    []Queue
		shards  []uint32 // nil: nothing has to change
		version uint64
		length  int64
	}{
		"as it was":                         {row(3), []Queue{copyIn(1, 3, 0)}, nil, 3, 9},
		"the copy has not come yet":         {row(3), nil, nil, 3, 9},
		"the row is older":                  {row(3), []Queue{copyIn(1, 4, 0)}, []uint32{1}, 5, 9},
		"deleted meanwhile":                 {nil, []Queue{copyIn(2, 4, 0)}, []uint32{2}, 4, 5},
		"made again elsewhere":              {row(9), []Queue{copyIn(1, 9, 0), copyIn(2, 4, 0)}, []uint32{1, 2}, 10, 9},
		"slots moved after the row":         {row(3), []Queue{copyIn(1, 4, high), copyIn(2, 5, low)}, []uint32{1, 2}, 6, 9},
		"slots moved, and one copy is lost": {row(3), []Queue{copyIn(1, 4, high)}, []uint32{1}, 5, 9},
		"slots moved before the row": {row(5, left(part(1, low), high), part(2, high)), []Queue{copyIn(1, 3, 0)},
			[]uint32{1, 2}, 6, 9},
		"slots moved between parts": {row(3, part(1, low), part(2, high)), []Queue{copyIn(1, 5, 0), copyIn(2, 5, task.AllSlots)},
			[]uint32{1, 2}, 6, 9},
		"a move was forgotten after a copy": {row(7, part(1, low), part(2, high)), []Queue{copyIn(1, 3, 0), copyIn(2, 7, low)},
			[]uint32{1, 2}, 8, 9},
		"the part had tasks, and has gone": {row(7, part(2, task.AllSlots)), []Queue{copyIn(1, 4, task.AllSlots), copyIn(2, 7, 0)},
			[]uint32{1, 2}, 8, 9},
		"deleted meanwhile, in three parts": {nil, []Queue{copyIn(1, 4, high), copyIn(2, 5, low), copyIn(3, 2, task.AllSlots)},
			[]uint32{1, 2, 3}, 6, 5},
		"deleted meanwhile, two take a slot": {nil, []Queue{copyIn(1, 4, 0), copyIn(2, 5, low)}, []uint32{1, 2}, 6, 5},
		"deleted meanwhile, none takes any": {nil, []Queue{copyIn(1, 4, task.AllSlots), copyIn(2, 5, task.AllSlots)},
			[]uint32{1, 2}, 6, 5},
		"deleted meanwhile, was in parts": {nil, []Queue{inParts(copyIn(1, 4, 0))}, []uint32{1}, 5, 5},
		"a part was retiring": {row(3, Part{Shard: 1, Retiring: 5}, part(2, task.AllSlots)), []Queue{copyIn(2, 3, 0)},
			[]uint32{1, 2}, 4, 9},
	} {
		q, changed := reconciledQueue(c.row, c.held)
		if changed != (c.shards != nil) || q.Config.Version != c.version || q.Config.Settings.MaxLength != c.length ||
			q.Config.Closed != 0 || q.Config.Moved != 0 || q.Config.Divided {
			t.Errorf("%s: changed %v, queue %+v", name, changed, q)
		}
		shards := q.Shards()
		if slices.Sort(shards); changed && !slices.Equal(shards, c.shards) {
			t.Errorf("%s: the queue is in shards %v, want %v", name, shards, c.shards)
		}
		for _, held := range c.held {
			if p := q.part(held.Shard); changed && q.Spread() && (c.row == nil || held.Config.Version != c.row.Config.Version) &&
				p.Left != ^p.Next {
				t.Errorf("%s: shard %d is asked for keys of the slots %064b, want all that it does not take: %+v", name, p.Shard, p.Left, p)
			}
		}
		var all task.SlotSet
		for _, p := range q.Parts {
			if all&p.Next != 0 || changed && p.Slots != 0 {
				t.Errorf("%s: parts overlap or have slots already: %+v", name, q.Parts)
			}
			if p.Retiring != 0 || p.Recent != (p.Left != 0) || p.LeftAt != 0 {
				t.Errorf("%s: a part retires, or is not asked about requests from before, or not for a whole window: %+v", name, p)
			}
			all |= p.Next
		}
		if q.Spread() && (all != task.AllSlots || !q.moving()) {
			t.Errorf("%s: the parts have the slots %064b, moving %v, want all slots, moving", name, all, q.moving())
		}
	}
}

// A queue of which only a part is left gets its whole rate again, and its other limits are those of the copies.
func TestReunitedLimits(t *testing.T) {
	whole := task.Rules{MaxRunning: 64, Rate: task.Rate{Limit: 10, Period: time.Second, Burst: 128}}
	config := task.QueueConfig{Version: 3, Moved: 2, Closed: 1<<48 - 1, Elsewhere: 1, Divided: true,
		Settings: task.Settings{Rules: task.Rules{MaxRunning: whole.MaxRunning, Rate: whole.Rate.BySlots(16)}}}
	q, _ := reconciledQueue(nil, []Queue{{Namespace: "default", Name: "a", Shard: 2, Config: config}})
	if at := q.copyFor(2); at.Elsewhere != 0 {
		t.Errorf("no other shard has a part, and the copy says that others may know keys of the slots %b", at.Elsewhere)
	}
	if q.Config.Settings.Rules != whole || q.Config.Moved != 0 || q.Moved != q.Config.Version {
		t.Errorf("a queue with a quarter of its slots left is %+v, want the limits %+v", q, whole)
	}
}
