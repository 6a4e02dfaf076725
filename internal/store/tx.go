package store

import (
	"bytes"
	"errors"

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
	reads
	s     *Store
	batch *pebble.Batch
	now   Time
	index uint64
	// Local belongs to the layer that runs the round.
	Local any
}

// maxRoom bounds the initial size of a round's buffer. Usually that is the size of the last round: similar rounds come in series.
const maxRoom = 4 << 20

// Begin starts a round at the shard's time now. It will become the log's entry index.
func (s *Store) Begin(now Time, index uint64) *Tx {
	b := s.db.NewIndexedBatchWithSize(int(s.roundSize.Load()))
	return &Tx{reads: reads{s, b}, s: s, batch: b, now: now, index: index}
}

// Now returns the shard's time of the round. It never runs backwards from round to round.
func (t *Tx) Now() Time { return t.now }

// Index returns the index that the round will have in the log.
func (t *Tx) Index() uint64 { return t.index }

// Set writes a row.
func (t *Tx) Set(key, value []byte) {
	if err := t.batch.Set(key, value, nil); err != nil {
		panic(err) // only a closed batch or a row of over 4 GiB
	}
}

// Delete removes a row if it exists.
func (t *Tx) Delete(key []byte) {
	if err := t.batch.Delete(key, nil); err != nil {
		panic(err)
	}
}

// RangeFrom is the number of rows from which DeleteRange costs less than deleting them one by one. Tests lower it.
var RangeFrom = 64

// DeleteRange removes the rows in [lo, hi). For a few rows it costs more than deleting them: until it is compacted, every read near it has to pass over
// it.
func (t *Tx) DeleteRange(lo, hi []byte) {
	if err := t.batch.DeleteRange(lo, hi, nil); err != nil {
		panic(err)
	}
}

// First returns the first key in [lo, hi), and how many rows and tombstones it passed.
func (t *Tx) First(lo, hi []byte) (key []byte, cost int, ok bool) {
	it := iterate(t.s, t.from, lo, hi)
	if ok = it.First(); ok {
		key = append(key, it.Key()...)
	}
	stats := it.Stats()
	cost = stats.ForwardStepCount[pebble.InternalIterCall]
	t.finish(it)
	return key, cost, ok
}

// GetRuns is like GetEach, for keys most of which have no other rows between them. apart is true if there are other rows between a row and the previous
// one, or the first key. GetRuns is cheaper than GetEach if there are none, and more expensive if there are some.
func (t *Tx) GetRuns(keys [][]byte, fn func(i int, value []byte, apart bool)) {
	if len(keys) == 0 {
		return
	}
	last := keys[len(keys)-1]
	it := iterate(t.s, t.from, keys[0], append(last[:len(last):len(last)], 0))
	ok, apart := it.First(), false
	for i := 0; ok && i < len(keys); i++ {
		if bytes.Compare(it.Key(), keys[i]) < 0 {
			ok, apart = it.SeekGE(keys[i]), true
		}
		if ok && bytes.Equal(it.Key(), keys[i]) {
			fn(i, t.value(it), apart)
			ok, apart = it.Next(), false
		}
	}
	t.finish(it)
}

// Size returns the number of bytes written so far.
func (t *Tx) Size() int { return t.batch.Len() }

// Empty reports whether nothing was written.
func (t *Tx) Empty() bool { return t.batch.Empty() }

// Seal appends the writes to b, for Apply. The Tx stays readable until Close.
func (t *Tx) Seal(b []byte) []byte { return append(b, t.batch.Repr()...) }

// Close frees the Tx. It must be called exactly once.
func (t *Tx) Close() {
	t.s.roundSize.Store(int64(min(t.batch.Len()+t.batch.Len()/8, maxRoom)))
	if err := t.batch.Close(); err != nil {
		t.s.fail(err)
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
	it := iterate(r.store, r.from, lo, hi)
	for ok := it.First(); ok; ok = it.Next() {
		if !fn(it.Key(), r.value(it)) {
			break
		}
	}
	r.finish(it)
}

func (r reads) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	it := iterate(r.store, r.from, lo, hi)
	for ok := it.Last(); ok; ok = it.Prev() {
		if !fn(it.Key(), r.value(it)) {
			break
		}
	}
	r.finish(it)
}

func (r reads) GetEach(keys [][]byte, fn func(i int, value []byte)) {
	if len(keys) == 0 {
		return
	}
	last := keys[len(keys)-1]
	it := iterate(r.store, r.from, keys[0], append(last[:len(last):len(last)], 0))
	for i, key := range keys {
		if it.SeekGE(key) && bytes.Equal(it.Key(), key) {
			fn(i, r.value(it))
		}
	}
	r.finish(it)
}

// value returns the value at an iterator's position. It checks for an error, which the iterator forgets when it moves on.
func (r reads) value(it *pebble.Iterator) []byte {
	v, err := it.ValueAndErr()
	if err != nil {
		r.store.failRead(errors.Join(err, it.Close()))
	}
	return v
}

func (r reads) finish(it *pebble.Iterator) {
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		r.store.failRead(err)
	}
}

// Get reads the latest applied state.
func (s *Store) Get(key []byte) ([]byte, bool) { return get(s, s.db, key) }

// Scan reads the latest applied state.
func (s *Store) Scan(lo, hi []byte, fn func(key, value []byte) bool) { reads{s, s.db}.Scan(lo, hi, fn) }

// ScanBack reads the latest applied state.
func (s *Store) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	reads{s, s.db}.ScanBack(lo, hi, fn)
}

// GetEach reads the latest applied state.
func (s *Store) GetEach(keys [][]byte, fn func(i int, value []byte)) {
	reads{s, s.db}.GetEach(keys, fn)
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

func iterate(s *Store, from pebble.Reader, lo, hi []byte) *pebble.Iterator {
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		s.failRead(err)
	}
	return it
}
