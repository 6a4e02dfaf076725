package schema

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// RowVersion is the first byte of a row. Tagged fields in protobuf's wire format follow: a field may be added, and an older reader skips it. Zero
// values are not written.
const RowVersion = 1

// Encoder is a row being encoded.
type Encoder []byte

// NewRow returns a new row with space for that many bytes.
func NewRow(room int) Encoder { return append(make(Encoder, 0, room), RowVersion) }

// Num appends a number, unless it is 0.
func (e *Encoder) Num(tag protowire.Number, v uint64) {
	if v != 0 {
		*e = protowire.AppendVarint(protowire.AppendTag(*e, tag, protowire.VarintType), v)
	}
}

// Text appends a string, unless it is empty.
func (e *Encoder) Text(tag protowire.Number, s string) {
	if s != "" {
		*e = protowire.AppendString(protowire.AppendTag(*e, tag, protowire.BytesType), s)
	}
}

// Bytes appends bytes, unless there are none.
func (e *Encoder) Bytes(tag protowire.Number, b []byte) {
	if len(b) != 0 {
		*e = protowire.AppendBytes(protowire.AppendTag(*e, tag, protowire.BytesType), b)
	}
}

// ID appends an id, unless it is zero.
func (e *Encoder) ID(tag protowire.Number, id task.ID) {
	if id != (task.ID{}) {
		e.Bytes(tag, id[:])
	}
}

// Author appends the author of a change, unless it is zero.
func (e *Encoder) Author(tag protowire.Number, by task.Author) {
	if by.IsZero() {
		return
	}
	b, err := json.Marshal(by)
	if err != nil {
		panic(err) // it consists of strings
	}
	e.Bytes(tag, b)
}

// Flag returns 1 for true and 0 for false.
func Flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Decode calls num or bytes for each field of a row.
func Decode(row []byte, num func(tag protowire.Number, v uint64), bytes func(tag protowire.Number, b []byte)) error {
	if len(row) == 0 || row[0] != RowVersion {
		return fmt.Errorf("row of %d bytes: unknown format", len(row))
	}
	return DecodeFields(row[1:], num, bytes)
}

// DecodeFields is Decode for a part of a row, which has no version.
func DecodeFields(b []byte, num func(tag protowire.Number, v uint64), bytes func(tag protowire.Number, b []byte)) error {
	for len(b) > 0 {
		tag, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			num(tag, v)
			b = b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			bytes(tag, v)
			b = b[n:]
		default:
			if n = protowire.ConsumeFieldValue(tag, kind, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
		}
	}
	return nil
}

// NoNumbers is passed to Decode for rows without numbers.
func NoNumbers(protowire.Number, uint64) {}

// NoBytes is passed to Decode for rows without strings and bytes.
func NoBytes(protowire.Number, []byte) {}

// Must stops the replica if err is not nil: the state is damaged.
func Must(err error) {
	if err != nil {
		panic(&store.Failure{Err: fmt.Errorf("damaged state: %w", err)})
	}
}

// SortedKeys returns the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
