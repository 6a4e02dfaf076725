package schema

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// FirstRow names the first task of a key's order that has not ended.
type FirstRow struct {
	Order uint64 // its place
	ID    task.ID
	Alone bool // no other was added since the row was created, so there is no need to look behind it
}

// Encode returns the row.
func (r FirstRow) Encode() []byte { return Encode(32, &r, (*FirstRow).fields) }

// DecodeFirst decodes the row of the first task of a key's order.
func DecodeFirst(row []byte) (r FirstRow, err error) {
	f := Decoding(row)
	for f.Next() {
		r.fields(&f)
	}
	return r, f.Err()
}

func (r *FirstRow) fields(f *Fields) {
	Num(f, 1, &r.Order)
	f.ID(2, &r.ID)
	f.Flag(3, &r.Alone)
}

// FirstKey returns the row key of the first task of a key's order.
func FirstKey(ns, queue, key string) []byte {
	return append(append(QueueKey(ns, TableFirst, queue), key...), 0)
}

// OrderKey returns the row key of a task that is not the first of its key.
func OrderKey(ns, queue, key string, order uint64) []byte {
	return binary.BigEndian.AppendUint64(orderPrefix(ns, queue, key), order)
}

func orderPrefix(ns, queue, key string) []byte {
	return append(append(QueueKey(ns, TableOrder, queue), key...), 0)
}

// ReadFirst reads the first task of a key's order; false: the key has none.
func ReadFirst(from store.Reader, ns, queue, key string) (FirstRow, bool) {
	return Read(from, FirstKey(ns, queue, key), DecodeFirst)
}

// orderSkipped is how many tasks of a key EachOrder reads past before it seeks the next key, which costs about as much.
const orderSkipped = 16

// EachOrder calls fn for the keys of a queue that have tasks behind their first, with the place of the next, until it
// returns false. It ends at the latest after so many seeks: one to begin with, and one for each key with many tasks.
func EachOrder(from store.Reader, ns, queue string, seeks int, fn func(key string, next uint64) bool) {
	prefix := QueueKey(ns, TableOrder, queue)
	end := After(prefix)
	for lo := prefix; lo != nil && seeks > 0; seeks-- {
		var of []byte // what the rows of the last key begin with
		var next []byte
		skipped := 0
		from.Scan(lo, end, func(k, _ []byte) bool {
			if len(k) < len(prefix)+9 {
				Damaged(fmt.Errorf("order row %q", k))
			}
			if rest := k[:len(k)-8]; !bytes.Equal(rest, of) {
				of, skipped = append(of[:0], rest...), 0
				return fn(string(rest[len(prefix):len(rest)-1]), binary.BigEndian.Uint64(k[len(k)-8:]))
			}
			if skipped++; skipped == orderSkipped {
				next = After(of)
			}
			return next == nil
		})
		lo = next
	}
}

// ScanOrder calls fn for the tasks of a key behind a place, in order, until it returns false. The first task of the key is not among them.
func ScanOrder(from store.Reader, ns, queue, key string, behind uint64, fn func(order uint64, id task.ID) bool) {
	prefix := orderPrefix(ns, queue, key)
	from.Scan(OrderKey(ns, queue, key, behind+1), After(prefix), func(k, v []byte) bool {
		if len(v) != len(task.ID{}) || len(k) != len(prefix)+8 {
			Damaged(fmt.Errorf("order row %q: %d bytes", k, len(v)))
		}
		return fn(binary.BigEndian.Uint64(k[len(prefix):]), task.ID(v))
	})
}
