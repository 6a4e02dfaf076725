package unique

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A slot holds a unique key of a queue if the task that holds it lies there, whichever of the queue's keys that is.
func TestHeldBy(t *testing.T) {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tx := s.Begin(1, 1)
	defer tx.Close()
	hold := func(queue, key string, slot int) {
		tx.Set(schema.UniqueKey("ns", queue, key), schema.UniqueRow{Holder: task.ID{1}, Slot: slot}.Encode())
	}
	hold("q", "a", 3)
	hold("q", "b", 5)
	hold("r", "a", 7)
	for slots, want := range map[task.SlotSet]bool{1 << 3: true, 1 << 5: true, 1 << 7: false, task.AllSlots: true, 0: false} {
		if held, err := HeldBy(tx, "ns", "q", slots); held != want || err != nil {
			t.Errorf("in slots %b a key is held: %t, %v; want %t", slots, held, err, want)
		}
	}
	tx.Set(schema.UniqueKey("ns", "q", "0"), []byte("x"))
	if held, err := HeldBy(tx, "ns", "q", task.AllSlots); held || err == nil {
		t.Errorf("a damaged row comes first, and a key is held: %t, %v", held, err)
	}
}
