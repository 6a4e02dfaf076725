package lanes

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
)

// After each fill of a head, more is read ahead if too little of the last read is left, and only while there is more.
func TestReadAhead(t *testing.T) {
	was := Bounds
	defer func() { Bounds = was }()
	Bounds.LaneHead = 10
	for _, c := range []struct {
		count  int64 // of the lane, whose first ten tasks are in its head and have numbers below 110
		before ahead
		left   ahead
		from   uint64 // of the requested range; 0: none
		when   string
	}{
		{100, ahead{}, ahead{0, 110}, 110, "nothing was read"},
		{11, ahead{}, ahead{0, 110}, 110, "nothing was read of one task"},
		{10, ahead{}, ahead{0, 110}, 0, "there is no task behind the head"},
		{100, ahead{30, 200}, ahead{20, 200}, 0, "enough is left"},
		{100, ahead{29, 200}, ahead{19, 200}, 200, "too little is left"},
		{100, ahead{5, 200}, ahead{0, 200}, 200, "less was thought to be left than came into the head"},
		{26, ahead{25, 200}, ahead{15, 200}, 200, "one task is behind what was read"},
		{25, ahead{25, 200}, ahead{15, 200}, 0, "all was read"},
		{24, ahead{25, 200}, ahead{15, 200}, 0, "one of those that were read is gone"},
		{100, ahead{40, 111}, ahead{30, 111}, 0, "some of what was read is behind the head"},
		{100, ahead{40, 110}, ahead{0, 110}, 110, "the head ends where what was read does"},
	} {
		l := &Lane{count: c.count, head: make([]schema.ReadyTask, 10), scan: 110, ahead: c.before}
		var r Round
		r.readAhead(&Set{}, l)
		var from uint64
		if len(r.Behind) > 0 {
			from = r.Behind[0].from
		}
		if from != c.from || l.ahead != c.left {
			t.Errorf("%s: reads from %d with %+v left, want from %d with %+v", c.when, from, l.ahead, c.from, c.left)
		}
	}
}

// Tasks that were read count for the next fills; an empty read changes nothing.
func TestRangeDone(t *testing.T) {
	l := &Lane{ahead: ahead{3, 200}}
	s := Range{lane: l}
	s.Done(nil)
	if l.ahead != (ahead{3, 200}) {
		t.Errorf("after an empty read %+v is left", l.ahead)
	}
	s.Done([]schema.ReadyTask{{Seq: 250}, {Seq: 300}})
	if l.ahead != (ahead{5, 301}) {
		t.Errorf("after a read of two tasks %+v is left", l.ahead)
	}
	s.Done([]schema.ReadyTask{{Seq: 400}})
	if l.ahead != (ahead{6, 401}) {
		t.Errorf("after a read of one task %+v is left", l.ahead)
	}
}
