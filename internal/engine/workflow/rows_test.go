package workflow

import (
	"bytes"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: an error or a row, never a panic, and a row that is written again is read as the same.
func FuzzRows(f *testing.F) {
	f.Add((&taskGroup{id: task.ID{1}, name: "g", state: Running, open: true, counts: Counts{Members: 2, Pending: 2}, added: 2, within: []string{"q"}}).encode())
	f.Add((&member{turn: 1, state: task.Succeeded, id: task.ID{2}, typ: "t", queue: "q"}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		group := func(b []byte) ([]byte, error) { g, err := decodeGroup(task.ID{1}, b); return g.encode(), err }
		member := func(b []byte) ([]byte, error) { m, err := decodeMember(b); return m.encode(), err }
		for _, again := range []func([]byte) ([]byte, error){group, member} {
			first, err := again(row)
			if err != nil {
				continue
			}
			if second, err := again(first); err != nil || !bytes.Equal(first, second) {
				t.Errorf("%x is read as %x: %v", first, second, err)
			}
		}
	})
}
