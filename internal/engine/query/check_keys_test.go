package query

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// endless is a reader of a queue that has keys without end, of tasks that are gone.
type endless struct {
	store.Reader
	scanned []int // rows, by scan
}

func (e *endless) Get([]byte) ([]byte, bool) { return nil, false }

func (e *endless) Scan(lo, _ []byte, fn func(key, value []byte) bool) {
	row := schema.KeyRow{ID: task.ID{1}}.Encode()
	if string(lo) == string(schema.UniqueKey("default", "q", "")) {
		row = schema.UniqueRow{Holder: task.ID{1}, Next: task.ID{2}}.Encode()
	}
	n := 1
	for fn(lo, row) && n < 10*maxKeysChecked {
		n++
	}
	e.scanned = append(e.scanned, n)
}

// However many keys a queue has, a check of them ends soon.
func TestCheckKeysIsBounded(t *testing.T) {
	var e endless
	if err := CheckKeys(&e, "default", "q"); err != nil || len(e.scanned) != 2 || e.scanned[0] != maxKeysChecked ||
		e.scanned[1] != maxKeysChecked {
		t.Errorf("CheckKeys = %v, having read %v rows, want %d of each kind", err, e.scanned, maxKeysChecked)
	}
}
