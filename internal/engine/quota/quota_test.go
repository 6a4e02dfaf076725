package quota

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

func running(most int64) *Space {
	s := &Space{ns: "ns", share: task.Share{Amounts: task.Unlimited}}
	s.share.Running = most
	return s
}

// Queues that wait for room in their namespace are named one by one, in the order in which they were asked, as long as there is room.
func TestQueuesWaitInTurn(t *testing.T) {
	s, claimed := running(2), &schema.Exec{State: task.Claimed}
	a, b, c := &Waiter{Queue: "a"}, &Waiter{Queue: "b"}, &Waiter{Queue: "c"}
	s.Count(claimed, 1)
	s.Count(claimed, 1)
	var r Round
	for _, w := range []*Waiter{a, b, a, c} {
		s.Block(w)
	}
	next := func(want string) {
		t.Helper()
		if ns, queue, some := r.Next(); some != (want != "") || queue != want || some && ns != "ns" {
			t.Errorf("next is queue %q of namespace %q, want %q", queue, ns, want)
		}
	}
	if r.RoomIn(s); s.Info().Refused[2] != 3 {
		t.Errorf("refused %v, want 3 for what runs", s.Info().Refused)
	}
	next("") // it is full
	s.Count(claimed, -1)
	r.RoomIn(s)
	r.RoomIn(s)
	s.DropQueue(b)
	next("a")
	s.Count(claimed, 1)
	next("")
	r.Seal()
	s.Count(claimed, -1)
	r.RoomIn(s)
	next("c")
	next("")
	if s.Block(a); len(s.blocked) != 1 {
		t.Errorf("%d queues wait, want one", len(s.blocked))
	}
}

// A task is refused for which the namespace has no room, unless another makes room for it.
func TestAdmit(t *testing.T) {
	s := &Space{ns: "ns", share: task.Share{Amounts: task.Amounts{Backlog: 2, Bytes: 100, Running: 1}}}
	s.Count(&schema.Exec{State: task.Ready, Size: 40}, 1)
	for _, c := range []struct {
		tasks, replaced, size int64
		want                  task.Quota
	}{
		{1, 0, 60, ""},
		{1, 0, 61, task.QuotaBacklogBytes},
		{2, 0, 1, task.QuotaBacklog},
		{2, 1, 1, ""},
		{0, 0, 60, ""},
		{0, 0, -60, ""},
	} {
		err := s.Admit(c.tasks, c.replaced, c.size)
		var e *task.Error
		if errors.As(err, &e) != (c.want != "") || e != nil && (e.Reason != string(c.want) || !strings.Contains(e.Message, `namespace "ns" is full`)) {
			t.Errorf("%d tasks for %d of %d bytes: %v, want %q", c.tasks, c.replaced, c.size, err, c.want)
		}
	}
	if got := s.Info(); got.Refused != [3]uint64{1, 1, 0} || got.Ready != 1 {
		t.Errorf("it tells %+v", got)
	}
}
