package limit

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func running(most int64) *Space {
	s := &Space{ns: "ns", share: task.Share{Amounts: task.Unlimited}}
	s.share.Running = most
	return s
}

// Queues that wait for room in their namespace are returned one by one, in the order in which they were blocked, as long as there is room.
func TestQueuesWaitInTurn(t *testing.T) {
	s, claimed := running(2), &schema.Exec{State: task.Claimed}
	a, b, c := &Waiter{Queue: "a"}, &Waiter{Queue: "b"}, &Waiter{Queue: "c"}
	s.Count(claimed, 1)
	s.Count(claimed, 1)
	var r QuotaRound
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
		t.Errorf("Refused = %v, want 3 for running tasks", s.Info().Refused)
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
		t.Errorf("%d queues are blocked, want one", len(s.blocked))
	}
}

// A task for which the namespace has no room is refused. One that replaces another adds no task.
func TestAdmit(t *testing.T) {
	s := &Space{ns: "ns", share: task.Share{Amounts: task.Amounts{Backlog: 2, Bytes: 100, Running: 1}}}
	s.Count(&schema.Exec{State: task.Ready, Size: 40}, 1)
	for _, c := range []struct {
		tasks, size int64
		want        task.Quota
	}{
		{1, 60, ""},
		{1, 61, task.QuotaBacklogBytes},
		{2, 1, task.QuotaBacklog},
		{2, -40, task.QuotaBacklog},
		{0, 60, ""},
		{0, -60, ""},
	} {
		err := s.Admit(c.tasks, c.size)
		var e *task.Error
		if errors.As(err, &e) != (c.want != "") || e != nil && (e.Reason != string(c.want) ||
			!strings.Contains(e.Message, `namespace "ns" is full`)) {
			t.Errorf("Admit(%d, %d) = %v, want %q", c.tasks, c.size, err, c.want)
		}
	}
	if got := s.Info(); got.Refused != [3]uint64{2, 1, 0} || got.Ready != 1 {
		t.Errorf("Info = %+v", got)
	}
}

// A namespace whose share has shrunk below its usage gets nothing more, but calls that need nothing more are admitted.
func TestBeyondTheShare(t *testing.T) {
	s := &Space{ns: "ns", share: task.Share{Amounts: task.Amounts{Backlog: 1, Bytes: 10, Running: 1}}}
	for range 3 {
		s.Count(&schema.Exec{State: task.Claimed, Size: 40}, 1)
	}
	for _, c := range []struct {
		tasks, size int64
		full        bool
	}{{0, 0, false}, {1, 0, true}, {0, 1, true}, {0, -1, false}} {
		if err := s.Admit(c.tasks, c.size); (err != nil) != c.full {
			t.Errorf("Admit of %d more tasks with %d bytes = %v", c.tasks, c.size, err)
		}
	}
	if !s.Full() {
		t.Error("the namespace runs 3 of 1 tasks, but is not full")
	}
}

// A round that has freed a namespace lists it once, and the next round lists it again even if Next was not called.
func TestRoomInEachRound(t *testing.T) {
	s, claimed := running(1), &schema.Exec{State: task.Claimed}
	s.Count(claimed, 1)
	s.Block(&Waiter{Queue: "a"})
	s.Count(claimed, -1)
	var r QuotaRound
	r.RoomIn(s)
	r.Seal()
	if _, _, some := r.Next(); some {
		t.Error("Next returned a queue that was freed in the previous round")
	}
	r.RoomIn(s)
	if _, queue, _ := r.Next(); queue != "a" {
		t.Errorf("Next returned queue %q, want a", queue)
	}
}

func newTx(t *testing.T) *store.Tx {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	tx := s.Begin(1, 1)
	t.Cleanup(func() { tx.Close(); _ = s.Close() })
	return tx
}

// Only a newer share replaces the present one.
func TestOnlyNewerShareReplaces(t *testing.T) {
	tx := newTx(t)
	s := OpenSpace(tx, "ns")
	for _, c := range []struct {
		version uint64
		backlog int64
		changed bool
		want    int64
	}{{5, 50, true, 50}, {5, 51, false, 50}, {4, 40, false, 50}, {6, 60, true, 60}} {
		changed := s.SetShare(tx, task.Share{Version: c.version, Amounts: task.Amounts{Backlog: c.backlog}})
		if stored := OpenSpace(tx, "ns").share; changed != c.changed || s.share.Backlog != c.want || stored != s.share {
			t.Errorf("version %d was accepted: %t, the share is %+v, stored %+v", c.version, changed, s.share, stored)
		}
	}
}

// Verify finds sums that differ from the rows, and a blocked queue that is not marked as blocked. A damaged row stops the reader.
func TestVerify(t *testing.T) {
	tx := newTx(t)
	s, w := OpenSpace(tx, "ns"), &Waiter{Queue: "a"}
	s.Block(w)
	verify := func(known *Waiter) error { return s.Verify(tx, func(string) *Waiter { return known }) }
	if err := verify(w); err != nil {
		t.Error(err)
	}
	if verify(&Waiter{Queue: "a", blocked: true}) == nil {
		t.Error("Verify missed that the queue has another waiter")
	}
	if w.blocked = false; verify(w) == nil {
		t.Error("Verify missed a blocked queue that is not marked as blocked")
	}
	w.blocked = true
	if s.AddQueue(); verify(w) == nil {
		t.Error("Verify missed a counted queue without a row")
	}
	for what, key := range map[string][]byte{"share": schema.Table("ns", schema.TableShare), "counts": schema.QueueKey("ns",
		schema.TableCounts, "a")} {
		tx := newTx(t)
		if tx.Set(key, []byte("x")); !refusals(func() { OpenSpace(tx, "ns") }) {
			t.Errorf("a damaged %s row was read", what)
		}
	}
}

func refusals(read func()) (stopped bool) {
	defer func() { stopped = recover() != nil }()
	read()
	return
}
