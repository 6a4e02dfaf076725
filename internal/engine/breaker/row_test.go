package breaker

import (
	"bytes"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// FuzzDecode: any row is refused, or decoded to a breaker that survives encoding and decoding.
func FuzzDecode(f *testing.F) {
	f.Add((&Breaker{Seen: Window{newest: 7, parts: [windowParts]Tally{{3, 1}}}, LastError: "down"}).Encode())
	f.Add((&Breaker{State: Probing, Since: 5, Opened: 2, Passed: 1, Probe: task.ID{1}, Cause: Tally{4, 3}, Over: time.Minute}).Encode())
	f.Fuzz(func(t *testing.T, row []byte) {
		b, err := Decode("t", row)
		if err != nil {
			return
		}
		once := b.Encode()
		again, err := Decode("t", once)
		if err != nil || !bytes.Equal(again.Encode(), once) {
			t.Errorf("%x was decoded as %+v, which was decoded as %+v, %v", row, b, again, err)
		}
	})
}
