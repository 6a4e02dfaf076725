package lanes

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// However many tasks wait behind the first of a key, the line in memory is bounded and marked as incomplete.
func TestLinesAreBounded(t *testing.T) {
	l := &line{first: schema.FirstRow{Order: 1}, whole: true}
	for order := uint64(2); order < 100; order++ {
		l.join(place{order, task.NewID(1, 1, order)})
		want := min(int(order)-1, OrderBounds.Line)
		if whole := int(order)-1 <= OrderBounds.Line; len(l.next) != want || l.whole != whole {
			t.Fatalf("of %d tasks %d are in memory, whole = %t", order-1, len(l.next), l.whole)
		}
	}
	l.leave(3)
	if len(l.next) != OrderBounds.Line-1 || l.next[1].order != 4 {
		t.Errorf("after a task left, the line has %v", l.next)
	}
	if l.join(place{100, task.NewID(1, 1, 100)}); len(l.next) != OrderBounds.Line-1 {
		t.Error("a task joined a line that is incomplete in memory, ahead of tasks that come before it")
	}
}

// A leader keeps the lines of a bounded number of keys: all lines of some queues are evicted to make room.
func TestMemoryIsBounded(t *testing.T) {
	was := OrderBounds
	defer func() { OrderBounds = was }()
	OrderBounds.Lines = 4
	var m Orders
	a, b := m.NewSet("ns", "a"), m.NewSet("ns", "b")
	for i := range 20 {
		s := []*OrderSet{&a, &b}[i%2]
		m.makeRoom()
		s.add(string(rune('a'+i)), &line{})
		if n := len(a.lines) + len(b.lines); m.lines != n || n > OrderBounds.Lines {
			t.Fatalf("%d lines are in memory, %d are counted, want at most %d", n, m.lines, OrderBounds.Lines)
		}
	}
	a.forget("none")
	a.Drop()
	b.Drop()
	if m.lines != 0 || len(m.sets) != 0 {
		t.Errorf("%d lines of %d queues are left", m.lines, len(m.sets))
	}
}
