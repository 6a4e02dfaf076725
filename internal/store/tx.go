package store

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Reader reads a shard's state at one point. Slices given to callbacks are valid only within them; those returned may
// be kept, but not changed.
type Reader interface {
	// Get returns the value of key, and whether there is one.
	Get(key []byte) ([]byte, bool)
	// Scan calls fn for the rows from lo up to but without hi, in order, until fn returns false.
	Scan(lo, hi []byte, fn func(key, value []byte) bool)
	// ScanBack is Scan from the last row to the first.
	ScanBack(lo, hi []byte, fn func(key, value []byte) bool)
	// GetEach calls fn for those of the keys that have a value, in order. The keys must be ascending. It costs much less than
	// as many calls of Get when the keys lie close together.
	GetEach(keys [][]byte, fn func(i int, value []byte))
}

// Tx is the work of one round: it sees the state and its own writes. It is not safe for concurrent use.
//
// Reads panic with *Failure when the state can't be read.
type Tx struct {
	reads
	s     *Store
	batch *pebble.Batch
	now   Time
	index uint64
	// Local is free for the layer that runs the round.
	Local any
}

// maxRoom is how many bytes of room a round begins with at most. As a rule it is what the last one took: rounds come in trains.
const maxRoom = 4 << 20

// Begin starts a round at the shard's time now that will become the log's entry index.
func (s *Store) Begin(now Time, index uint64) *Tx {
	b := s.db.NewIndexedBatchWithSize(int(s.roundSize.Load()))
	return &Tx{reads: reads{s, b}, s: s, batch: b, now: now, index: index}
}

// Now is the shard's time of the round. It never runs backwards from round to round.
func (t *Tx) Now() Time { return t.now }

// Index is where in the log the round will stand.
func (t *Tx) Index() uint64 { return t.index }

// Set writes a row.
func (t *Tx) Set(key, value []byte) {
	if err := t.batch.Set(key, value, nil); err != nil {
		panic(err) // only a closed batch or a row of over 4 GiB
	}
}

// Delete removes a row if it is there.
func (t *Tx) Delete(key []byte) {
	if err := t.batch.Delete(key, nil); err != nil {
		panic(err)
	}
}

// RangeFrom is from how many rows on DeleteRange costs less than their deletions. Tests lower it.
var RangeFrom = 64

// DeleteRange removes the rows from lo up to but without hi. For a few rows it costs more than their deletions: until it is merged, everyone who reads
// near it passes it.
func (t *Tx) DeleteRange(lo, hi []byte) {
	if err := t.batch.DeleteRange(lo, hi, nil); err != nil {
		panic(err)
	}
}

// First returns the first key from lo up to but without hi, and how many rows and remains of deleted rows it passed.
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

// GetRuns is GetEach for keys most of which have no other rows between them, and says of each row whether it lies apart: others lie between it and
// the one before, or the first key. It costs less than GetEach where none do, and more where some do.
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

// Size is the number of bytes written so far.
func (t *Tx) Size() int { return t.batch.Len() }

// Empty says whether nothing was written.
func (t *Tx) Empty() bool { return t.batch.Empty() }

// Seal appends what was written to b, for Apply. The Tx stays readable until Close.
func (t *Tx) Seal(b []byte) []byte { return append(b, t.batch.Repr()...) }

// Close frees the Tx. It must be called exactly once.
func (t *Tx) Close() {
	t.s.roundSize.Store(int64(min(t.batch.Len()+t.batch.Len()/8, maxRoom)))
	if err := t.batch.Close(); err != nil {
		t.s.fail(err)
	}
}

// Snapshot is the state as it was at one moment.
type Snapshot struct {
	reads
	snap *pebble.Snapshot
}

// Snapshot returns the state as it is now. Close it soon: it keeps old rows alive.
func (s *Store) Snapshot() *Snapshot {
	snap := s.db.NewSnapshot()
	return &Snapshot{reads{s, snap}, snap}
}

// Close frees the snapshot.
func (s *Snapshot) Close() { _ = s.snap.Close() } // it can fail only when closed twice

// reads implements Reader over anything of Pebble's that can be read.
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

// value is that of the row at which an iterator is. An iterator forgets that one could not be read when it moves on.
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
