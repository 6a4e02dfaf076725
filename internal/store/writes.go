package store

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
)

// writes are the writes of one round, kept by table: a memtable inserts neighboring rows fastest one after the other,
// and a read of other tables can ignore them.
type writes struct {
	tables []tableWrites
	at     [256]uint16 // by table: its index in tables, plus one
	size   int         // of all rows, in bytes
}

// tableWrites are the writes to one table.
type tableWrites struct {
	rows   uint32
	ops    []byte   // the rows, in order, as in a pebble.Batch
	lo, hi keyRange // where ops has the lowest and the highest key
	// indexed is true if Tx.index has these writes.
	indexed bool
}

// keyRange is where a key begins and ends.
type keyRange struct{ from, to int }

// of returns the writes to the table of a key.
func (w *writes) of(key []byte) *tableWrites {
	at := &w.at[key[0]]
	if *at == 0 {
		w.tables = append(w.tables, tableWrites{})
		*at = uint16(len(w.tables))
	}
	return &w.tables[*at-1]
}

// in returns the writes to a table, or nil if there are none.
func (w *writes) in(table byte) *tableWrites {
	if w.at[table] == 0 {
		return nil
	}
	return &w.tables[w.at[table]-1]
}

// set adds a row that has a value, or a range deletion, whose value is its end.
func (w *writes) set(kind pebble.InternalKeyKind, key, value []byte) *tableWrites {
	t := w.of(key)
	before := len(t.ops)
	t.add(kind, key)
	end := t.field(value)
	if kind == pebble.InternalKeyKindRangeDelete && bytes.Compare(value, t.key(t.hi)) > 0 {
		t.hi = end
	}
	w.size += len(t.ops) - before
	return t
}

// delete adds the deletion of a row.
func (w *writes) delete(key []byte) *tableWrites {
	t := w.of(key)
	before := len(t.ops)
	t.add(pebble.InternalKeyKindDelete, key)
	w.size += len(t.ops) - before
	return t
}

func (t *tableWrites) add(kind pebble.InternalKeyKind, key []byte) {
	t.ops = append(t.ops, byte(kind))
	at := t.field(key)
	if t.rows == 0 || bytes.Compare(key, t.key(t.lo)) < 0 {
		t.lo = at
	}
	if bytes.Compare(key, t.key(t.hi)) > 0 {
		t.hi = at
	}
	t.rows++
}

func (t *tableWrites) field(b []byte) keyRange {
	t.ops = binary.AppendUvarint(t.ops, uint64(len(b)))
	t.ops = append(t.ops, b...)
	return keyRange{len(t.ops) - len(b), len(t.ops)}
}

func (t *tableWrites) key(r keyRange) []byte { return t.ops[r.from:r.to] }

// touch reports whether any of the writes can be to a row in [lo, hi). Without writes, both keys are empty, which is below all rows.
func (t *tableWrites) touch(lo, hi []byte) bool {
	return bytes.Compare(t.key(t.lo), hi) < 0 && bytes.Compare(t.key(t.hi), lo) >= 0
}

// appendTo appends the writes to b as the contents of a pebble.Batch.
func (w *writes) appendTo(b []byte) []byte {
	rows := uint32(0)
	for i := range w.tables {
		rows += w.tables[i].rows
	}
	b = appendHeader(b, rows)
	for i := range w.tables {
		b = append(b, w.tables[i].ops...)
	}
	return b
}

// appendHeader appends the beginning of a pebble.Batch: a sequence number, which Pebble sets, and the number of rows.
func appendHeader(b []byte, rows uint32) []byte {
	b = append(b, make([]byte, batchrepr.HeaderLen-4)...)
	return binary.LittleEndian.AppendUint32(b, rows)
}

// index adds the writes to an indexed batch.
func (t *tableWrites) index(to *pebble.Batch) {
	t.indexed = true
	var b pebble.Batch
	must(b.SetRepr(append(appendHeader(make([]byte, 0, batchrepr.HeaderLen+len(t.ops)), t.rows), t.ops...)))
	must(to.Apply(&b, nil))
}

// must panics if a batch refuses a row, which it does only for one of over 4 GiB.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// reset empties the writes, whose buffers stay.
func (w *writes) reset() {
	for i := range w.tables {
		w.tables[i] = tableWrites{ops: w.tables[i].ops[:0]}
	}
	w.size = 0
}

// room returns the size of the buffers, in bytes.
func (w *writes) room() int {
	n := 0
	for i := range w.tables {
		n += cap(w.tables[i].ops)
	}
	return n
}
