package notify

import (
	"bytes"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: the result is an error or a row, never a panic, and a row survives encoding and decoding.
func FuzzRows(f *testing.F) {
	f.Add((&tally{closes: 5, sent: task.ID{1}, count: 2, first: 3, last: 4, fingerprint: 7, samples: []task.NotificationSample{
		{Type: "t"}}}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		gathered := func(b []byte) ([]byte, error) { n, err := decodeTally(subject{}, b); return n.encode(), err }
		for _, again := range []func([]byte) ([]byte, error){gathered} {
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
