package system

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const rowVersion = 1

// EncodeRow returns a row's stored form.
func EncodeRow[T any](row T) []byte {
	b, err := json.Marshal(row)
	if err != nil {
		panic(err) // numbers, strings and bytes can always be encoded
	}
	return append([]byte{rowVersion}, b...)
}

// DecodeRow is the inverse of EncodeRow. Unknown fields are ignored.
func DecodeRow[T any](key, value []byte) (row T, err error) {
	if len(value) == 0 || value[0] != rowVersion {
		return row, fmt.Errorf("row %q of the system shard: unknown form", key)
	}
	if err := json.Unmarshal(value[1:], &row); err != nil {
		return row, fmt.Errorf("row %q of the system shard: %w", key, err)
	}
	return row, nil
}

// GetRow reads a row that may be absent.
func GetRow[T any](r store.Reader, key []byte) (row T, ok bool, err error) {
	value, ok := r.Get(key)
	if !ok {
		return row, false, nil
	}
	row, err = DecodeRow[T](key, value)
	return row, err == nil, err
}

// ScanRows reads a table.
func ScanRows[T any](r store.Reader, table byte) (rows []T, err error) {
	r.Scan([]byte{table}, []byte{table + 1}, func(k, v []byte) bool {
		var row T
		if row, err = DecodeRow[T](k, v); err != nil {
			return false
		}
		rows = append(rows, row)
		return true
	})
	return rows, err
}

// GetNumber reads a counter; absent is 0.
func GetNumber(r store.Reader, key []byte) uint64 {
	value, _ := r.Get(key)
	if len(value) != 9 || value[0] != rowVersion {
		return 0
	}
	return binary.BigEndian.Uint64(value[1:])
}

// EncodeNumber returns a counter's stored form.
func EncodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{rowVersion}, n) }

// Key is the key of a row that belongs to a namespace, by name.
func Key(table byte, ns, name string) []byte {
	return append(append(append([]byte{table}, ns...), 0), name...)
}

// PrefixEnd returns the first key after all that have a prefix, which must not end with 0xff.
func PrefixEnd(prefix []byte) []byte {
	hi := slices.Clone(prefix)
	hi[len(hi)-1]++
	return hi
}

// RemoveRows removes all rows whose keys have a prefix.
func RemoveRows(tx *store.Tx, prefix []byte) {
	var keys [][]byte
	tx.Scan(prefix, PrefixEnd(prefix), func(k, _ []byte) bool {
		keys = append(keys, slices.Clone(k))
		return true
	})
	for _, k := range keys {
		tx.Delete(k)
	}
}

// Conflict returns a conflict error.
func Conflict(format string, args ...any) error {
	return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf(format, args...)}
}

// WrongState returns a wrong_state error.
func WrongState(format string, args ...any) error {
	return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(format, args...)}
}
