package schema

import (
	"encoding/binary"

	"github.com/pawlq/pawl/internal/store"
)

// Apart is a row that was set apart: a loop of the shard could not handle it.
type Apart struct {
	Namespace  string // in the row's key
	Key, Value []byte
	Reason     string
	At         store.Time
	Kept       bool // not in the row
}

// ApartKey returns the row key of a row that was set apart.
func ApartKey(ns string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(Table(ns, TableApart), seq)
}

// Encode returns the row.
func (a *Apart) Encode() []byte {
	return Encode(len(a.Key)+len(a.Value)+len(a.Reason)+32, a, (*Apart).fields)
}

// DecodeApart decodes a row of Apart.Encode.
func DecodeApart(row []byte) (a Apart, err error) {
	err = Decode(row, &a, (*Apart).fields)
	return a, err
}

func (a *Apart) fields(f *Fields) {
	f.Bytes(1, &a.Key)
	f.Bytes(2, &a.Value)
	f.Text(3, &a.Reason)
	Num(f, 4, &a.At)
}

// CountApart returns how many rows of each namespace were set apart since a time.
func CountApart(from store.Reader, since store.Time) map[string]int64 {
	n := map[string]int64{}
	from.Scan([]byte{TableApart}, []byte{TableApart + 1}, func(k, row []byte) bool {
		if a, err := DecodeApart(row); err != nil || a.At >= since {
			n[string(k[1:len(k)-9])]++
		}
		return true
	})
	return n
}
