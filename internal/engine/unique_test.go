package engine

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Check finds a unique key without a holder, one with two, and tasks that wait for no holder.
func TestCheckFindsUniqueKeys(t *testing.T) {
	key := schema.UniqueKey("default", "default", "k")
	set := func(tx *store.Tx, id task.ID, change func(x *schema.Exec)) {
		x, _ := schema.ReadExec(tx, "default", id)
		change(x)
		tx.Set(schema.IDKey("default", schema.TableExec, id), x.Encode())
	}
	for name, c := range map[string]struct {
		spoil func(tx *store.Tx, holder, next, other task.ID)
		want  string
	}{
		"no row": {func(tx *store.Tx, _, _, _ task.ID) { tx.Delete(key) }, "is missing"},
		"another row": {func(tx *store.Tx, _, _, _ task.ID) { tx.Set(schema.UniqueKey("default", "default", "l"), nil) },
			"refers to nothing"},
		"another holder": {func(tx *store.Tx, _, next, other task.ID) {
			tx.Set(key, schema.UniqueRow{Holder: other, Next: next}.Encode())
		},
			"expected"},
		"no next": {func(tx *store.Tx, holder, _, _ task.ID) { tx.Set(key, schema.UniqueRow{Holder: holder}.Encode()) }, "expected"},
		"two holders": {func(tx *store.Tx, _, _, other task.ID) {
			set(tx, other, func(x *schema.Exec) {
				x.Unique, x.Role = &task.Unique{Key: "k", States: task.Unfinished}, schema.RoleHolder
			})
		}, "shares a role"},
		"lost role": {func(tx *store.Tx, _, _, other task.ID) {
			set(tx, other, func(x *schema.Exec) { x.Unique = &task.Unique{Key: "k", States: task.Unfinished} })
		}, "has no part"},
		"role in nothing": {func(tx *store.Tx, _, _, other task.ID) {
			set(tx, other, func(x *schema.Exec) { x.Role = schema.RoleHolder })
		}, "no unique key"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t)
			unique := task.Spec{Type: "job", Unique: &task.Unique{Key: "k", OnConflict: task.KeepLast}}
			holder, _ := w.Enqueue(unique)
			w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
			next, _ := w.Enqueue(unique)
			other := w.enqueueOne()
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			w.Round(func(r *Round) { c.spoil(r.Tx(), holder.ID, next.ID, other) })
			if found := CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// While a shard's slots of a queue leave it, tasks whose unique key is held here still belong here: all of them if
// every slot leaves, and else those that have no key in another slot.
func TestHeldUniqueKeyStaysWhileSlotsLeave(t *testing.T) {
	one := task.Spec{Type: "job", Unique: &task.Unique{Key: "k", OnConflict: task.KeepLast}}
	two := one
	two.Key = "other"
	slot := one.Slots()
	if two.Slots().Len() != 2 {
		t.Fatalf("the keys %v are in one slot", two.Slots())
	}
	for _, c := range []struct {
		what   string
		spec   task.Spec
		closed task.SlotSet
		held   bool
		moved  bool
	}{
		{"all leave", one, task.AllSlots, true, false},
		{"all leave, with another key", two, task.AllSlots, true, false},
		{"its slot leaves", one, slot, true, false},
		{"its slot leaves, with another key", two, slot, true, true},
		{"all leave, and nobody holds the key", one, task.AllSlots, false, true},
	} {
		w := NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		if c.held {
			if _, err := w.Enqueue(c.spec); err != nil {
				t.Fatal(err)
			}
			w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
		}
		w.CloseSlots("default", c.closed)
		w.Round(func(r *Round) { c.spec.Routed = r.Queue("default", "default").config.Moved })
		if _, err := w.Enqueue(c.spec); (err == ErrSlotMoved) != c.moved || err != nil && !c.moved {
			t.Errorf("%s: the enqueue returned %v, want that it is moved: %v", c.what, err, c.moved)
		}
	}
}
