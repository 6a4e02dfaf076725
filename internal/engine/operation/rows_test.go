package operation

import (
	"bytes"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: an error or a row, never a panic, and a row that is written again is read as the same.
func FuzzRows(f *testing.F) {
	f.Add((&Operation{Spec: Spec{Action: task.Move, Rate: 2.5}, State: Paused, Why: "w", StoppedBy: task.Author{Name: "lena"},
		Tally:  Tally{Matched: 3, Done: 1, Failed: 1, Skipped: []Skipped{{task.SkipChanged, 1}}, Errors: []TaskError{{task.ID{1}, "m"}}},
		Course: Course{Step: 7, Shard: 2, Cursor: make([]byte, 16)}}).encode())
	f.Add((&stepRow{step: 5, answer: StepAnswer{Swept: true, Away: 3}, at: 6, until: 7, away: 3, arrived: Tally{Done: 2}}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		whole := func(b []byte) ([]byte, error) { o, err := decodeOperation(task.ID{1}, b); return o.encode(), err }
		step := func(b []byte) ([]byte, error) { s, err := decodeStep(b); return s.encode(), err }
		for _, again := range []func([]byte) ([]byte, error){whole, step} {
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
