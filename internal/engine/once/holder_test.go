package once

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A hold belongs to one claim of one task: neither to a later claim of the task, nor to a claim with the same fence in
// another epoch, nor to another task's.
func TestHolderIsOneClaim(t *testing.T) {
	h := Holder{ID: task.ID{1}, Fence: 2, Nonce: 3, Worker: "w"}
	for what, c := range map[string]struct {
		other Holder
		same  bool
	}{
		"itself":             {h, true},
		"by another name":    {Holder{ID: h.ID, Fence: 2, Nonce: 3, Worker: "v"}, true},
		"another task":       {Holder{ID: task.ID{2}, Fence: 2, Nonce: 3}, false},
		"a later claim":      {Holder{ID: h.ID, Fence: 3, Nonce: 3}, false},
		"another's number 2": {Holder{ID: h.ID, Fence: 2, Nonce: 4}, false},
	} {
		if h.same(&c.other) != c.same {
			t.Errorf("%s: same = %v", what, !c.same)
		}
		x := &schema.Exec{State: task.Claimed}
		x.Fence, x.Claim.Nonce = c.other.Fence, c.other.Nonce
		if got := x.ClaimedWith(h.Fence, h.Nonce); c.other.ID == h.ID && got != c.same {
			t.Errorf("%s: ClaimedWith = %v", what, got)
		}
		if x.State = task.Ready; x.ClaimedWith(h.Fence, h.Nonce) {
			t.Errorf("%s: ClaimedWith holds for a task that is not claimed", what)
		}
	}
	if h.same(nil) {
		t.Error("a holder is the same as nil")
	}
}

func TestValidRows(t *testing.T) {
	h := Holder{ID: task.ID{1}}
	for what, c := range map[string]struct {
		row   row
		sound bool
	}{
		"a hold":                   {row{holder: h}, true},
		"a hold of another shard":  {row{holder: h, far: true}, true},
		"done without a result":    {row{holder: h, done: true}, true},
		"done":                     {row{holder: h, done: true, result: []byte{1}}, true},
		"nobody's":                 {row{}, false},
		"nobody's, with a result":  {row{done: true, result: []byte{1}}, false},
		"a result before the end":  {row{holder: h, result: []byte{1}}, false},
		"a result that is not far": {row{holder: h, done: true, far: true, result: []byte{1}}, false},
	} {
		if c.row.valid() != c.sound {
			t.Errorf("%s: sound = %v", what, !c.sound)
		}
	}
}

// LastEnd covers the keys of a queue in the given slots.
func TestLastEnd(t *testing.T) {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tx := s.Begin(1, 1)
	defer tx.Close()
	a, b := task.OnceSlot("a"), task.OnceSlot("b")
	if a == b {
		t.Fatal("both keys have the same slot")
	}
	for key, until := range map[string]store.Time{"a": 5, "b": 7} {
		tx.Set(schema.OnceRowKey("default", "q", key), row{holder: Holder{ID: task.ID{1}}, until: until}.encode())
	}
	tx.Set(schema.OnceRowKey("default", "r", "a"), row{holder: Holder{ID: task.ID{1}}, until: 9}.encode())
	for slots, want := range map[task.SlotSet]store.Time{task.AllSlots: 7, 1 << a: 5, 1 << b: 7, 0: 0} {
		if last, err := LastEnd(tx, "default", "q", slots); last != want || err != nil {
			t.Errorf("LastEnd in slots %b = %d, %v, want %d", slots, last, err, want)
		}
	}
	tx.Set(schema.OnceRowKey("default", "q", "0"), []byte("x"))
	if last, err := LastEnd(tx, "default", "q", task.AllSlots); err == nil {
		t.Errorf("LastEnd of a damaged row = %d without an error", last)
	}
}

// A claim holds as long as its task exists and is claimed with it.
func TestClaimHolds(t *testing.T) {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tx := s.Begin(1, 1)
	defer tx.Close()
	x := &schema.Exec{State: task.Claimed, Queue: "q", Fence: 2}
	x.Claim.Nonce = 3
	tx.Set(schema.IDKey("ns", schema.TableExec, task.ID{1}), x.Encode())
	for _, c := range []struct {
		h    Holder
		want bool
	}{
		{Holder{ID: task.ID{1}, Fence: 2, Nonce: 3}, true},
		{Holder{ID: task.ID{1}, Fence: 1, Nonce: 3}, false},
		{Holder{ID: task.ID{2}, Fence: 2, Nonce: 3}, false},
	} {
		if ClaimHolds(tx, "ns", c.h) != c.want {
			t.Errorf("ClaimHolds of %+v = %t", c.h, !c.want)
		}
	}
}
