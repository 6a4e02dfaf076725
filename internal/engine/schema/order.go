package schema

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

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
func (f FirstRow) Encode() []byte {
	r := NewRow(32)
	r.Num(1, f.Order)
	r.ID(2, f.ID)
	r.Num(3, Flag(f.Alone))
	return r
}

// DecodeFirst decodes the row of the first task of a key's order.
func DecodeFirst(row []byte) (f FirstRow, err error) {
	err = Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			f.Order = v
		case 3:
			f.Alone = v != 0
		}
	}, func(tag protowire.Number, b []byte) {
		if tag == 2 {
			copy(f.ID[:], b)
		}
	})
	return f, err
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
	row, ok := from.Get(FirstKey(ns, queue, key))
	if !ok {
		return FirstRow{}, false
	}
	f, err := DecodeFirst(row)
	Must(err)
	return f, true
}

// ScanOrder calls fn for the tasks of a key behind a place, in order, until it returns false. The first task of the key is not among them.
func ScanOrder(from store.Reader, ns, queue, key string, behind uint64, fn func(order uint64, id task.ID) bool) {
	prefix := orderPrefix(ns, queue, key)
	from.Scan(OrderKey(ns, queue, key, behind+1), After(prefix), func(k, v []byte) bool {
		if len(v) != len(task.ID{}) || len(k) != len(prefix)+8 {
			Must(fmt.Errorf("order row %q: %d bytes", k, len(v)))
		}
		return fn(binary.BigEndian.Uint64(k[len(prefix):]), task.ID(v))
	})
}
