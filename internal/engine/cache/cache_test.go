package cache

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// However large tasks are, the cache is bounded, and the task that was added last is cached.
func TestTasksAreBounded(t *testing.T) {
	h := NewTasks()
	const size = 1 << 20
	for i := range uint64(100) {
		id := task.NewID(1, 1, i)
		h.Keep("ns", id, &schema.Exec{State: task.Ready}, 1)
		h.KeepEnvelope(id, &schema.Envelope{ID: id, Payload: make([]byte, size)})
		n, bytes := h.Size()
		if want := min(int(i)+1, maxBytes/(size+rowBytes)); n != want || bytes != n*(size+rowBytes) {
			t.Fatalf("after %d tasks of 1 MiB: %d tasks of %d bytes, want %d tasks", i+1, n, bytes, want)
		}
		if !h.Knows(id) {
			t.Fatalf("the last of %d tasks is not cached", i+1)
		}
	}
	h.DropNamespace("other")
	if n, _ := h.Size(); n == 0 {
		t.Error("the tasks of another namespace were dropped")
	}
	h.DropNamespace("ns")
	if n, bytes := h.Size(); n != 0 || bytes != 0 {
		t.Errorf("%d tasks of %d bytes are left of a dropped namespace", n, bytes)
	}
}

// A task is kept as long as it will be needed soon.
func TestKeep(t *testing.T) {
	id := task.NewID(1, 1, 1)
	for _, c := range []struct {
		state task.State
		ready int64
		kept  bool
	}{
		{task.Claimed, maxQueue + 1, true},
		{task.Ready, maxQueue - 1, true},
		{task.Ready, maxQueue, false},
		{task.Scheduled, 1, false},
		{task.Succeeded, 1, false},
	} {
		h := NewTasks()
		if h.Keep("ns", id, &schema.Exec{State: task.Claimed}, 1); h.Knows(id) {
			t.Error("a claimed task counts as known without its envelope")
		}
		h.Keep("ns", id, &schema.Exec{State: c.state}, c.ready)
		if kept := h.Exec("ns", id) != nil; kept != c.kept || h.Exec("other", id) != nil {
			t.Errorf("%s in a queue of %d: kept = %t, want %t", c.state, c.ready, kept, c.kept)
		}
	}
}

// Stored ids are never reported as new, even if there are more than are remembered.
func TestIDsAreBounded(t *testing.T) {
	n := &IDs{from: 10, last: 9, seen: map[task.ID]struct{}{}}
	for i := range uint64(seenIDs + 10) {
		id := task.NewID(1, 10+int64(i/50_000), i)
		if !n.IsNew(id) && i < seenIDs {
			t.Fatalf("id %d is later than all others, but not reported as new", i)
		}
		if n.Add(id); n.IsNew(id) {
			t.Fatalf("id %d was stored, but is reported as new", i)
		}
	}
	if len(n.seen) > seenIDs {
		t.Errorf("%d ids are remembered, want at most seenIDs", len(n.seen))
	}
	if n.IsNew(task.NewID(1, 12, 1)) || !n.IsNew(task.NewID(1, 13, 1)) {
		t.Errorf("ids are reported as new from %d on, but the last one was stored at 12", n.from)
	}
	if n.IsNew(task.NewID(1, 9, 1)) {
		t.Error("an id from before the known range is reported as new")
	}
}
