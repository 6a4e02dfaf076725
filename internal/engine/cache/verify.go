package cache

import (
	"bytes"
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// Verify checks that the cache agrees with the store. Tests call it after every round.
func (h *Tasks) Verify(from store.Reader) error {
	size := 0
	for id, t := range h.tasks {
		size += t.size()
		x, err := schema.ReadExec(from, t.ns, id)
		if err != nil || !bytes.Equal(x.Encode(), t.exec.Encode()) {
			return fmt.Errorf("task %s: memory has %+v, the row %+v (%v)", id, t.exec, x, err)
		}
		if t.env != nil && !bytes.Equal(t.env.Encode(), schema.ReadEnvelope(from, t.ns, id).Encode()) {
			return fmt.Errorf("task %s: memory and row have different envelopes", id)
		}
	}
	if size != h.bytes {
		return fmt.Errorf("memory of %d bytes counts %d", size, h.bytes)
	}
	return nil
}

// Size returns how many tasks are cached, and roughly how many bytes they take.
func (h *Tasks) Size() (tasks, bytes int) { return len(h.tasks), h.bytes }
