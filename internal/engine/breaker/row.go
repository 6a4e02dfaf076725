package breaker

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// Encode returns the row.
func (b *Breaker) Encode() []byte {
	r := schema.NewRow(64 + len(b.LastError))
	r.Num(1, uint64(b.State))
	if b.State == Closed {
		r.Num(2, uint64(b.Seen.newest)) // #nosec G115 -- not before 1970
		r.Bytes(3, b.Seen.encode())
	}
	r.Text(4, b.LastError)
	r.Num(5, uint64(b.Since))
	r.Num(6, uint64(b.Until))
	r.Num(7, uint64(b.Opened))
	r.Num(8, uint64(b.Passed))
	r.ID(9, b.Probe)
	r.Num(10, uint64(b.Cause.Attempts))
	r.Num(11, uint64(b.Cause.Failed))
	r.Num(12, uint64(b.Over))
	return r
}

// Decode decodes the row of the breaker of a type.
func Decode(typ string, row []byte) (*Breaker, error) {
	b := &Breaker{Type: typ}
	var parts []byte
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			b.State = State(v)
		case 2:
			b.Seen.newest = int64(v) // #nosec G115 -- as encoded
		case 5:
			b.Since = store.Time(v)
		case 6:
			b.Until = store.Time(v)
		case 7:
			b.Opened = int(v)
		case 8:
			b.Passed = int(v)
		case 10:
			b.Cause.Attempts = int(v)
		case 11:
			b.Cause.Failed = int(v)
		case 12:
			b.Over = time.Duration(v)
		}
	}, func(tag protowire.Number, v []byte) {
		switch tag {
		case 3:
			parts = v
		case 4:
			b.LastError = string(v)
		case 9:
			copy(b.Probe[:], v)
		}
	})
	switch {
	case err != nil:
	case b.State > Probing || b.Seen.newest < 0 || b.Seen.newest > math.MaxInt64/2:
		err = fmt.Errorf("the breaker of type %q is in state %d, at %d", typ, b.State, b.Seen.newest)
	case b.State == Closed:
		err = b.Seen.decode(parts)
	}
	return b, err
}
