package schema

import (
	"encoding/binary"

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
func (k KeyRow) Encode() []byte { return Encode(48, &k, (*KeyRow).fields) }

// DecodeKey decodes the row of an idempotency key or a request id.
func DecodeKey(row []byte) (k KeyRow, err error) {
	f := Decoding(row)
	for f.Next() {
		k.fields(&f)
	}
	return k, f.Err()
}

func (k *KeyRow) fields(f *Fields) {
	f.ID(1, &k.ID)
	Num(f, 2, &k.Fingerprint)
	Num(f, 3, &k.Until)
	Num(f, 4, &k.Ended)
	Num(f, 5, &k.Created)
	Num(f, 6, &k.Order)
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
func (c ClaimKeyRow) Encode() []byte { return Encode(16+24*len(c.Claims), &c, (*ClaimKeyRow).fields) }

// DecodeClaimKey decodes the row of a claim key.
func DecodeClaimKey(row []byte) (c ClaimKeyRow, err error) {
	err = Decode(row, &c, (*ClaimKeyRow).fields)
	return c, err
}

func (c *ClaimKeyRow) fields(f *Fields) {
	Num(f, 1, &c.Until)
	if f.Encoding() {
		for _, ref := range c.Claims {
			f.Put(2, binary.AppendUvarint(ref.ID[:], ref.Fence))
		}
	}
	for b := range f.Each(2) {
		if len(b) > 16 {
			fence, _ := binary.Uvarint(b[16:])
			c.Claims = append(c.Claims, ClaimRef{task.ID(b[:16]), fence})
		}
	}
}

// ReadKey reads the row of an idempotency key or a request id; false: there is none.
func ReadKey(from store.Reader, key []byte) (KeyRow, bool) { return Read(from, key, DecodeKey) }

// EachForgotten calls fn for the rows that remain of forgotten tasks.
func EachForgotten(from store.Reader, ns string, fn func(id task.ID, row []byte)) {
	prefix := IDKey(ns, TableRequest, task.ID{})
	from.Scan(prefix, After(prefix), func(k, row []byte) bool {
		fn(IDAt(k), row)
		return true
	})
}
