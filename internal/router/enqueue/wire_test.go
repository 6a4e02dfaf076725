package enqueue

import (
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/verb"
)

// Responses of other nodes may have more or fewer errors than items.
func FuzzDecode(f *testing.F) {
	for _, v := range []any{enqueueAnswer{Out: make([]broker.Enqueued, 2)}, groupAnswer{Joined: make([]broker.Joined, 2)}} {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x9f, 0x9f, 0x9f})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var e enqueueAnswer
		_ = verb.Decode(b, &e)
		var g groupAnswer
		_ = verb.Decode(b, &g)
	})
}
