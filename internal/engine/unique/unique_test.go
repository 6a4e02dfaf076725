package unique

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// HeldIn finds the slots of the queue's unique keys, whichever tasks hold them or wait for them.
func TestHeldIn(t *testing.T) {
	tx := newWorld(t).tx
	hold := func(queue, key string) task.SlotSet {
		tx.Set(schema.UniqueKey("ns", queue, key), schema.UniqueRow{Holder: task.ID{1}}.Encode())
		return 1 << task.KeySlot(key)
	}
	a, b, other := hold("q", "a"), hold("q", "b{c}"), hold("r", "d")
	if b != 1<<task.KeySlot("c") {
		t.Errorf("the slot of b{c} is not that of c")
	}
	for slots, want := range map[task.SlotSet]bool{a: true, b: true, other: false, task.AllSlots: true, ^(a | b): false, 0: false} {
		if held := HeldIn(tx, "ns", "q", slots); held != want {
			t.Errorf("HeldIn in slots %b = %t, want %t", slots, held, want)
		}
	}
}

// world is a Round over rows in memory.
type world struct{ tx *store.Tx }

func (w world) Tx() *store.Tx { return w.tx }
func (w world) Exec(ns string, id task.ID) (*schema.Exec, error) {
	return schema.ReadExec(w.tx, ns, id)
}

func newWorld(t *testing.T) world {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	tx := s.Begin(1, 1)
	t.Cleanup(func() { tx.Close(); _ = s.Close() })
	return world{tx}
}

// A key outlives its task's end if the task names the end state, but not if the task was replaced or moved to another queue.
func TestEndsThatKeepTheKey(t *testing.T) {
	for _, c := range []struct {
		reason string
		states task.StateSet
		keeps  bool
	}{
		{task.ReasonPurged, task.Unfinished, false},
		{task.ReasonPurged, task.Unfinished | task.StatesOf(task.Discarded), true},
		{task.ReasonReplaced, task.Unfinished | task.StatesOf(task.Discarded), false},
		{task.ReasonMoved, task.Unfinished | task.StatesOf(task.Discarded), false},
	} {
		w, id := newWorld(t), task.ID{1}
		ready := &schema.Exec{State: task.Ready, Queue: "q", Unique: &task.Unique{Key: "k", States: c.states}}
		Keep(w, "ns", id, nil, ready)
		if ready.Role != schema.RoleHolder {
			t.Fatalf("a new task has the role %d, want holder", ready.Role)
		}
		end := *ready
		end.State, end.Reason = task.Discarded, c.reason
		Keep(w, "ns", id, ready, &end)
		if _, taken := schema.ReadUnique(w.tx, "ns", "q", "k"); taken != c.keeps || (end.Role == schema.RoleHolder) != c.keeps {
			t.Errorf("a task discarded for %s that keeps its key in %v has it: %t, in role %d", c.reason, c.states, taken, end.Role)
		}
	}
}

// A new task takes the place in the lane of the one it replaces if both are ready.
func TestReplacementKeepsPlace(t *testing.T) {
	for _, c := range []struct {
		replaced, state task.State // 0: none is replaced
		seq             uint64
	}{
		{task.Ready, task.Ready, 7},
		{task.Ready, task.Scheduled, 0},
		{task.Retrying, task.Ready, 0},
		{0, task.Ready, 0},
	} {
		m := Resolution{role: schema.RoleNext}
		if c.replaced != 0 {
			m.Replaced = &schema.Exec{State: c.replaced, Seq: 7}
		}
		x := &schema.Exec{State: c.state}
		if m.ApplyTo(x); x.Seq != c.seq || x.Role != schema.RoleNext {
			t.Errorf("a task that is %v replaces one that is %v: seq %d, role %d", c.state, c.replaced, x.Seq, x.Role)
		}
	}
}

// A holder without a row, or a row without its holder, stops the reader.
func TestDamageStops(t *testing.T) {
	w := newWorld(t)
	u := task.Unique{Key: "k", States: task.Unfinished}
	if !stops(func() { HasNext(w, "ns", &schema.Exec{Queue: "q", Role: schema.RoleHolder, Unique: &u}) }) {
		t.Error("HasNext accepted a holder without a row")
	}
	w.tx.Set(schema.UniqueKey("ns", "q", "k"), schema.UniqueRow{Holder: task.ID{1}}.Encode())
	if !stops(func() { _, _ = Resolve(w, "ns", &task.Spec{Queue: "q", Unique: &u}) }) {
		t.Error("Resolve accepted a row whose holder does not exist")
	}
}

// stops reports whether fn finds damaged state, which stops the call.
func stops(read func()) (stopped bool) {
	defer func() {
		err, _ := recover().(error)
		var damage *schema.DamageError
		stopped = errors.As(err, &damage)
	}()
	read()
	return
}
