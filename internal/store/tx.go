package store

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Reader reads a shard's state at one point. Slices passed to callbacks are valid only within them; those returned may be
// kept, but not modified.
type Reader interface {
	// Get returns the value of key, and whether there is one.
	Get(key []byte) ([]byte, bool)
	// Scan calls fn for the rows in [lo, hi), in order, until fn returns false.
	Scan(lo, hi []byte, fn func(key, value []byte) bool)
	// ScanBack is like Scan, from the last row to the first.
	ScanBack(lo, hi []byte, fn func(key, value []byte) bool)
	// GetEach calls fn for the keys that have a value, in order. The keys must be ascending. It is much cheaper than separate
	// calls of Get when the keys are close together.
	GetEach(keys [][]byte, fn func(i int, value []byte))
}

// Tx is the transaction of one round: it sees the state and its own writes. It is not safe for concurrent use.
//
// Reads panic with *Failure when the state can't be read.
type Tx struct {
	s      *Store
	writes *writes
	// index has all writes to the tables that a read has found changed. Few rounds read what they wrote, so it is usually nil.
	index *pebble.Batch
	now   Time
	entry uint64
	seqs  uint64 // how many NextSeq returned
	// Local belongs to the layer that runs the round.
	Local any
}

// Begin starts a round at the shard's time now. It will become the log's entry index.
func (s *Store) Begin(now Time, index uint64) *Tx {
	return &Tx{s: s, writes: s.buffers.takeWrites(), now: now, entry: index}
}

// Now returns the shard's time of the round. It never runs backwards from round to round.
func (t *Tx) Now() Time { return t.now }

// Index returns the index that the round will have in the log.
func (t *Tx) Index() uint64 { return t.entry }

// seqBits leaves room for a million sequence numbers in one round.
const seqBits = 20

// NextSeq returns a number greater than all that it has returned in the shard: rounds are ordered by their index in the
// log, and the calls of a round share that index. So it identifies a call, a version or a place in an order, and Index
// does not.
func (t *Tx) NextSeq() uint64 {
	t.seqs++
	if t.seqs >= 1<<seqBits {
		panic(fmt.Sprintf("one round took over %d sequence numbers", 1<<seqBits))
	}
	return t.entry<<seqBits | t.seqs
}

// Set writes a row.
func (t *Tx) Set(key, value []byte) {
	if t.writes.set(pebble.InternalKeyKindSet, key, value).indexed {
		must(t.index.Set(key, value, nil))
	}
}

// Delete removes a row if it exists.
func (t *Tx) Delete(key []byte) {
	if t.writes.delete(key).indexed {
		must(t.index.Delete(key, nil))
	}
}

// RangeFrom is the number of rows from which DeleteRange costs less than deleting them one by one. Tests lower it.
var RangeFrom = 64

// DeleteRange removes the rows in [lo, hi), which must be of one table. For a few rows it costs more than deleting
// them: until it is compacted, every read near it has to pass over it.
func (t *Tx) DeleteRange(lo, hi []byte) {
	if lo[0] != hi[0] {
		panic(fmt.Sprintf("range from %q to %q: it spans tables", lo, hi))
	}
	if t.writes.set(pebble.InternalKeyKindRangeDelete, lo, hi).indexed {
		must(t.index.DeleteRange(lo, hi, nil))
	}
}

// over returns a reader of [lo, hi) that sees the round's writes.
func (t *Tx) over(lo, hi []byte) reads {
	r := reads{t.s, t.s.db}
	for table := int(lo[0]); table <= int(hi[0]); table++ {
		w := t.writes.in(byte(table))
		if w == nil || !w.touch(lo, hi) {
			continue
		}
		if t.index == nil {
			t.index = t.s.db.NewIndexedBatch()
		}
		if !w.indexed {
			w.index(t.index)
		}
		r.from = t.index
	}
	return r
}

// Get implements Reader.
func (t *Tx) Get(key []byte) ([]byte, bool) { return t.over(key, after(key)).Get(key) }

// Scan implements Reader.
func (t *Tx) Scan(lo, hi []byte, fn func(key, value []byte) bool) { t.over(lo, hi).Scan(lo, hi, fn) }

// ScanBack implements Reader.
func (t *Tx) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	t.over(lo, hi).ScanBack(lo, hi, fn)
}

// GetEach implements Reader.
func (t *Tx) GetEach(keys [][]byte, fn func(i int, value []byte)) {
	if len(keys) > 0 {
		t.over(keys[0], after(keys[len(keys)-1])).GetEach(keys, fn)
	}
}

// First returns the first key in [lo, hi), and how many rows and tombstones it passed.
func (t *Tx) First(lo, hi []byte) (key []byte, cost int, ok bool) {
	t.over(lo, hi).iterate(lo, hi, func(it *pebble.Iterator) {
		if ok = it.First(); ok {
			key = append(key, it.Key()...)
		}
		stats := it.Stats()
		cost = stats.ForwardStepCount[pebble.InternalIterCall]
	})
	return key, cost, ok
}

// GetRuns is like GetEach, for keys most of which have no other rows between them. apart is true if there are other
// rows between a row and the previous one, or the first key. GetRuns is cheaper than GetEach if there are none, and
// more expensive if there are some.
func (t *Tx) GetRuns(keys [][]byte, fn func(i int, value []byte, apart bool)) {
	if len(keys) == 0 {
		return
	}
	lo, hi := keys[0], after(keys[len(keys)-1])
	r := t.over(lo, hi)
	r.iterate(lo, hi, func(it *pebble.Iterator) {
		ok, apart := it.First(), false
		for i := 0; ok && i < len(keys); i++ {
			if bytes.Compare(it.Key(), keys[i]) < 0 {
				ok, apart = it.SeekGE(keys[i]), true
			}
			if ok && bytes.Equal(it.Key(), keys[i]) {
				fn(i, r.value(it), apart)
				ok, apart = it.Next(), false
			}
		}
	})
}

// Size returns the number of bytes written so far.
func (t *Tx) Size() int { return t.writes.size }

// Empty reports whether nothing was written.
func (t *Tx) Empty() bool { return t.writes.size == 0 }

// Seal appends the writes to b, for Apply. The Tx stays readable until Close.
func (t *Tx) Seal(b []byte) []byte { return t.writes.appendTo(b) }

// Close frees the Tx. It must be called exactly once.
func (t *Tx) Close() {
	t.s.buffers.keepWrites(t.writes)
	if t.index != nil {
		_ = t.index.Close() // it fails only when closed twice
	}
}

// Snapshot is the state at one moment.
type Snapshot struct {
	reads
	snap *pebble.Snapshot
}

// Snapshot returns the current state. Close it soon: it keeps old rows alive.
func (s *Store) Snapshot() *Snapshot {
	snap := s.db.NewSnapshot()
	return &Snapshot{reads{s, snap}, snap}
}

// Close frees the snapshot.
func (s *Snapshot) Close() { _ = s.snap.Close() } // it fails only when closed twice

// reads implements Reader over any of Pebble's readers.
type reads struct {
	store *Store
	from  pebble.Reader
}

func (r reads) Get(key []byte) ([]byte, bool) { return get(r.store, r.from, key) }

func (r reads) Scan(lo, hi []byte, fn func(key, value []byte) bool) {
	r.iterate(lo, hi, func(it *pebble.Iterator) {
		for ok := it.First(); ok && fn(it.Key(), r.value(it)); {
			ok = it.Next()
		}
	})
}

func (r reads) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	r.iterate(lo, hi, func(it *pebble.Iterator) {
		for ok := it.Last(); ok && fn(it.Key(), r.value(it)); {
			ok = it.Prev()
		}
	})
}

func (r reads) GetEach(keys [][]byte, fn func(i int, value []byte)) {
	if len(keys) == 0 {
		return
	}
	r.iterate(keys[0], after(keys[len(keys)-1]), func(it *pebble.Iterator) {
		for i, key := range keys {
			if it.SeekGE(key) && bytes.Equal(it.Key(), key) {
				fn(i, r.value(it))
			}
		}
	})
}

// value returns the value at an iterator's position. It checks for an error, which the iterator forgets when it moves on.
func (r reads) value(it *pebble.Iterator) []byte {
	v, err := it.ValueAndErr()
	if err != nil {
		r.store.failRead(err)
	}
	return v
}

func get(s *Store, from pebble.Reader, key []byte) ([]byte, bool) {
	v, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false
	}
	if err != nil {
		s.failRead(err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	if err := closer.Close(); err != nil {
		s.failRead(err)
	}
	return out, true
}

// iterate calls fn with an iterator over [lo, hi), and closes it, also if fn panics: an open one would keep its files forever.
func (r reads) iterate(lo, hi []byte, fn func(it *pebble.Iterator)) {
	it, err := r.from.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		r.store.failRead(err)
	}
	finished := false
	defer func() {
		if !finished {
			_ = it.Close()
		}
	}()
	fn(it)
	finished = true
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		r.store.failRead(err)
	}
}

// after returns the key that follows key.
func after(key []byte) []byte { return append(key[:len(key):len(key)], 0) }
