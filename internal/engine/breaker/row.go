package breaker

import (
	"fmt"
	"math"

	"github.com/pawlq/pawl/internal/engine/schema"
)

// Encode returns the row.
func (b *Breaker) Encode() []byte {
	var newest int64
	var window []byte // only while it is closed
	if b.State == Closed {
		newest, window = b.Seen.newest, b.Seen.encode()
	}
	f := schema.Encoding(make([]byte, 0, 64+len(b.LastError)))
	b.fields(&f, &newest, &window)
	return f.Row()
}

// Decode decodes the row of the breaker of a type.
func Decode(typ string, row []byte) (*Breaker, error) {
	b := &Breaker{Type: typ}
	var window []byte
	f := schema.Decoding(row)
	for f.Next() {
		b.fields(&f, &b.Seen.newest, &window)
	}
	err := f.Err()
	switch {
	case err != nil:
	case b.State > Probing || b.Seen.newest < 0 || b.Seen.newest > math.MaxInt64/2:
		err = fmt.Errorf("the breaker of type %q is in state %d, at %d", typ, b.State, b.Seen.newest)
	case b.State == Closed:
		err = b.Seen.decode(window)
	}
	return b, err
}

func (b *Breaker) fields(f *schema.Fields, newest *int64, window *[]byte) {
	schema.Num(f, 1, &b.State)
	schema.Num(f, 2, newest)
	f.Bytes(3, window)
	f.Text(4, &b.LastError)
	schema.Num(f, 5, &b.Since)
	schema.Num(f, 6, &b.Until)
	schema.Num(f, 7, &b.Opened)
	schema.Num(f, 8, &b.Passed)
	f.ID(9, &b.Probe)
	schema.Num(f, 10, &b.Cause.Attempts)
	schema.Num(f, 11, &b.Cause.Failed)
	schema.Num(f, 12, &b.Over)
}
