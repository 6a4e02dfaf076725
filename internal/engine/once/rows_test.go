package once

import (
	"bytes"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: the result is an error or a row, never a panic, and a row survives encoding and decoding.
func FuzzRows(f *testing.F) {
	f.Add(row{done: true, holder: Holder{ID: task.ID{1}, Fence: 2, Nonce: 3, Worker: "w"}, result: []byte("7"), until: 5}.encode())
	f.Add(row{done: true, holder: Holder{ID: task.ID{1}}, result: make([]byte, 100)}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		key := func(b []byte) ([]byte, error) { o, err := decodeRow(b); return o.encode(), err }
		for _, again := range []func([]byte) ([]byte, error){key} {
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
