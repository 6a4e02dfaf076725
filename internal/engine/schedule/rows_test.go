package schedule

import (
	"bytes"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: the result is an error or a row, never a panic, and a row survives encoding and decoding.
func FuzzRows(f *testing.F) {
	f.Add((&plan{id: task.ID{1}, version: 2, Schedule: task.Schedule{Name: "s", Cron: "@daily"}}).encode())
	f.Add((&progress{id: task.ID{1}, planned: 5, fires: 6, seq: 7, reason: "r"}).encode())
	f.Add(encodeTick(&schema.Tick{Planned: 5, Outcome: schema.TickFired, Task: task.ID{1}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		said := func(b []byte) ([]byte, error) { p, err := decodePlan(b); return p.encode(), err }
		at := func(b []byte) ([]byte, error) { c, err := decodeProgress(b); return c.encode(), err }
		entry := func(b []byte) ([]byte, error) {
			e, err := decodeTick(1, b)
			_ = e.Outcome.String()
			return encodeTick(e), err
		}
		deleted := func(b []byte) ([]byte, error) { g, err := decodeDeletion(b); return g.encode(), err }
		for _, again := range []func([]byte) ([]byte, error){said, at, entry, deleted} {
			first, err := again(row)
			if err != nil {
				continue
			}
			if second, err := again(first); err != nil || !bytes.Equal(first, second) {
				t.Errorf("%x was decoded as %x: %v", first, second, err)
			}
		}
	})
}
