package schema

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// KeyRow records the task to which an idempotency key or a request id belongs.
type KeyRow struct {
	ID          task.ID
	Fingerprint uint64
	Until       store.Time

	// How the task ended and when it was created, once its own rows are gone.
	Ended   task.State
	Created store.Time
	// Order is the task's place in the order of its key when it was enqueued; 0: none.
	Order uint64
}

// Encode returns the row.
func (k KeyRow) Encode() []byte {
	r := NewRow(48)
	r.Bytes(1, k.ID[:])
	r.Num(2, k.Fingerprint)
	r.Num(3, uint64(k.Until))
	r.Num(4, uint64(k.Ended))
	r.Num(5, uint64(k.Created))
	r.Num(6, k.Order)
	return r
}

// DecodeKey decodes the row of an idempotency key or a request id.
func DecodeKey(row []byte) (k KeyRow, err error) {
	err = Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 2:
			k.Fingerprint = v
		case 3:
			k.Until = store.Time(v)
		case 4:
			k.Ended = task.State(v)
		case 5:
			k.Created = store.Time(v)
		case 6:
			k.Order = v
		}
	}, func(tag protowire.Number, b []byte) {
		if tag == 1 {
			copy(k.ID[:], b)
		}
	})
	return k, err
}

// ClaimKeyRow records the claims made with a claim key.
type ClaimKeyRow struct {
	Until  store.Time
	Claims []ClaimRef
}

// ClaimRef names one claim of a task.
type ClaimRef struct {
	ID    task.ID
	Fence uint64
}

// Encode returns the row.
func (c ClaimKeyRow) Encode() []byte {
	r := NewRow(16 + 24*len(c.Claims))
	r.Num(1, uint64(c.Until))
	for _, ref := range c.Claims {
		r.Bytes(2, binary.AppendUvarint(ref.ID[:], ref.Fence))
	}
	return r
}

// DecodeClaimKey decodes the row of a claim key.
func DecodeClaimKey(row []byte) (c ClaimKeyRow, err error) {
	err = Decode(row, func(tag protowire.Number, v uint64) {
		if tag == 1 {
			c.Until = store.Time(v)
		}
	}, func(tag protowire.Number, b []byte) {
		if tag == 2 && len(b) > 16 {
			fence, _ := binary.Uvarint(b[16:])
			c.Claims = append(c.Claims, ClaimRef{task.ID(b[:16]), fence})
		}
	})
	return c, err
}

// ReadKey reads the row of an idempotency key or a request id; false: there is none.
func ReadKey(from store.Reader, key []byte) (KeyRow, bool) {
	row, ok := from.Get(key)
	if !ok {
		return KeyRow{}, false
	}
	k, err := DecodeKey(row)
	Must(err)
	return k, true
}

// EachForgotten calls fn for the rows that remain of forgotten tasks.
func EachForgotten(from store.Reader, ns string, fn func(id task.ID, row []byte)) {
	prefix := IDKey(ns, TableRequest, task.ID{})
	from.Scan(prefix, After(prefix), func(k, row []byte) bool {
		fn(IDAt(k), row)
		return true
	})
}
