package schema

import (
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

// EachOrder calls fn for the keys of a queue that have tasks behind their first, with the place of the next, until it returns false.
func EachOrder(from store.Reader, ns, queue string, fn func(key string, next uint64) bool) {
	prefix := QueueKey(ns, TableOrder, queue)
	lo, end := prefix, After(prefix)
	for more := true; more; {
		more = false
		from.Scan(lo, end, func(k, _ []byte) bool {
			if len(k) < len(prefix)+9 {
				Damaged(fmt.Errorf("order row %q", k))
			}
			key := string(k[len(prefix) : len(k)-9])
			lo, more = After(orderPrefix(ns, queue, key)), fn(key, binary.BigEndian.Uint64(k[len(k)-8:]))
			return false
		})
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
