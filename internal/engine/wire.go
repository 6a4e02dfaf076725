package engine

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/task"
)

// Rows are a format version and then tagged fields in protobuf's wire form: a field may be added, and an older reader
// skips it. Zero values are not written.
const rowVersion = 1

type encoder []byte

func newRow(room int) encoder { return append(make(encoder, 0, room), rowVersion) }

func (e *encoder) num(tag protowire.Number, v uint64) {
	if v != 0 {
		*e = protowire.AppendVarint(protowire.AppendTag(*e, tag, protowire.VarintType), v)
	}
}

func (e *encoder) text(tag protowire.Number, s string) {
	if s != "" {
		*e = protowire.AppendString(protowire.AppendTag(*e, tag, protowire.BytesType), s)
	}
}

func (e *encoder) bytes(tag protowire.Number, b []byte) {
	if len(b) != 0 {
		*e = protowire.AppendBytes(protowire.AppendTag(*e, tag, protowire.BytesType), b)
	}
}

func (e *encoder) id(tag protowire.Number, id task.ID) {
	if id != (task.ID{}) {
		e.bytes(tag, id[:])
	}
}

// author writes who did something, unless it is nobody.
func (e *encoder) author(tag protowire.Number, by task.Author) {
	if by.IsZero() {
		return
	}
	b, err := json.Marshal(by)
	if err != nil {
		panic(err) // it holds texts only
	}
	e.bytes(tag, b)
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// decode calls num or bytes for each field of a row.
func decode(row []byte, num func(tag protowire.Number, v uint64), bytes func(tag protowire.Number, b []byte)) error {
	if len(row) == 0 || row[0] != rowVersion {
		return fmt.Errorf("row of %d bytes: unknown form", len(row))
	}
	return decodeFields(row[1:], num, bytes)
}

// decodeFields is decode for fields without a version before them: a part of a row.
func decodeFields(b []byte, num func(tag protowire.Number, v uint64), bytes func(tag protowire.Number, b []byte)) error {
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

func noNum(protowire.Number, uint64)   {}
func noBytes(protowire.Number, []byte) {}
