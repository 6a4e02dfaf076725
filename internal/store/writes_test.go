package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Rounds read their own writes on top of the state, whatever they read before and in whichever order they write. They
// leave the same state on the leader and on a follower. Rounds of all sizes follow one another, so that buffers are
// used again, and Pebble keeps some.
func TestReadsBetweenWrites(t *testing.T) {
	for seed := range seeds(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var stores [2]*Store
		for i := range stores {
			var err error
			stores[i], err = Open(Config{Dir: "state", FS: vfs.NewMem(), Identity: me, MemTableSize: 64 << 10,
				Fatal: func(err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			defer stores[i].Close()
		}
		want := map[string]string{}
		key := func() string { return fmt.Sprintf("%c%d", 'a'+rng.IntN(3), rng.IntN(12)) }
		for index := uint64(1); index <= 12; index++ {
			tx, before := stores[0].Begin(TimeOf(noon), index), maps.Clone(want)
			if !tx.Empty() || tx.Size() != 0 {
				t.Errorf("a new round has %d bytes of writes", tx.Size())
			}
			large := rng.IntN(4) == 0
			for range rng.IntN(40) {
				switch k := key(); rng.IntN(8) {
				case 0, 1, 2:
					value := fmt.Sprint(rng.IntN(100))
					if large {
						value += strings.Repeat("v", rng.IntN(9000))
					}
					tx.Set([]byte(k), []byte(value))
					want[k] = value
				case 3:
					tx.Delete([]byte(k))
					delete(want, k)
				case 4:
					lo, hi := k, k[:1]+fmt.Sprint(rng.IntN(12))
					if lo > hi {
						lo, hi = hi, lo
					}
					tx.DeleteRange([]byte(lo), []byte(hi+"~"))
					maps.DeleteFunc(want, func(k, _ string) bool { return lo <= k && k < hi+"~" })
				default:
					checkReads(t, rng, tx, want, key)
				}
			}
			if checkReads(t, rng, stores[0], before, key); rng.IntN(5) == 0 {
				tx.Close() // a round that is dropped
				want = before
				index--
				continue
			}
			entry := tx.Seal([]byte("header"))[len("header"):]
			if got := len(entry) - batchrepr.HeaderLen; got != tx.Size() || tx.Empty() != (got == 0) {
				t.Errorf("a round of %d bytes has size %d, and is empty: %t", got, tx.Size(), tx.Empty())
			}
			at := Position{Index: index, Term: 1, Time: TimeOf(noon), Conf: make([]byte, rng.IntN(2)*1000)}
			if err := stores[0].ApplyTx(at, tx); err != nil {
				t.Fatal(err)
			}
			checkReads(t, rng, tx, want, key)
			tx.Close()
			if err := stores[1].Apply(at, entry); err != nil {
				t.Fatal(err)
			}
			for i := range stores {
				checkReads(t, rng, stores[i], want, key)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// checkReads compares a read of each kind with the rows that are wanted.
func checkReads(t *testing.T, rng *rand.Rand, r Reader, want map[string]string, key func() string) {
	t.Helper()
	k := key()
	v, ok := r.Get([]byte(k))
	if w, has := want[k]; ok != has || string(v) != w {
		t.Errorf("Get(%s) = %.10q, %t, want %.10q, %t", k, v, ok, w, has)
	}
	lo, hi := key(), key()
	if lo > hi {
		lo, hi = hi, lo
	}
	var sorted []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if lo <= k && k < hi {
			sorted = append(sorted, k+"="+want[k])
		}
	}
	var got []string
	add := func(k, v []byte) bool { got = append(got, string(k)+"="+string(v)); return true }
	switch rng.IntN(3) {
	case 0:
		r.Scan([]byte(lo), []byte(hi), add)
	case 1:
		r.ScanBack([]byte(lo), []byte(hi), add)
		slices.Reverse(got)
	default:
		var keys [][]byte
		for range rng.IntN(4) {
			keys = append(keys, []byte(key()))
		}
		slices.SortFunc(keys, slices.Compare)
		sorted = nil
		for _, k := range keys {
			if v, ok := want[string(k)]; ok {
				sorted = append(sorted, string(k)+"="+v)
			}
		}
		r.GetEach(keys, func(i int, v []byte) { add(keys[i], v) })
	}
	if !slices.Equal(got, sorted) {
		t.Errorf("from %s to %s: got %.300q, want %.300q", lo, hi, got, sorted)
	}
}

// A round that reads what it hasn't written costs no index of its writes.
func TestFewRoundsNeedAnIndex(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	round(t, s, "a1=1", "a9=9", "b1=1")
	tx := s.Begin(10, 2)
	defer tx.Close()
	none := func([]byte, []byte) bool { return true }
	for _, c := range []struct {
		what  string
		write []string
		read  func()
		index bool
	}{
		{"a row of another table", []string{"a2=2"}, func() { tx.Get([]byte("b1")) }, false},
		{"a row below", []string{"a3=z"}, func() { tx.Get([]byte("a1")) }, false},
		{"a row above", []string{"-a4"}, func() { tx.Get([]byte("a5")) }, false},
		{"rows up to the lowest", nil, func() { tx.Scan([]byte("a"), []byte("a2"), none) }, false},
		{"rows above", nil, func() { tx.ScanBack([]byte("a40"), []byte("b"), none) }, false},
		{"rows of other tables", nil, func() { tx.Scan([]byte("b"), []byte("z"), none) }, false},
		{"no rows", nil, func() { tx.GetEach(nil, nil) }, false},
		{"the highest row", nil, func() { tx.Get([]byte("a4")) }, true},
	} {
		write(tx, c.write...)
		c.read()
		if got := tx.index != nil; got != c.index {
			t.Errorf("a read of %s makes an index: %t, want %t", c.what, got, c.index)
		}
	}
	if write(tx, "a6=6"); tx.index.Count() != 4 {
		t.Errorf("the index has %d rows after four writes to the table", tx.index.Count())
	}
	if tx.Get([]byte("a6")); tx.index.Count() != 4 {
		t.Errorf("the index has %d rows after another read", tx.index.Count())
	}
	other := s.Begin(10, 2)
	defer other.Close()
	if write(other, "-b3:b5"); other.index != nil {
		t.Error("a range deletion makes an index")
	}
	if other.Get([]byte("b4")); other.index == nil {
		t.Error("a read within a deleted range makes no index")
	}
}

func TestRangeWithinATable(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	tx := s.Begin(10, 1)
	defer tx.Close()
	defer func() {
		if p := fmt.Sprint(recover()); p != `range from "a1" to "b1": it spans tables` {
			t.Errorf("panic %q", p)
		}
		if !tx.Empty() {
			t.Error("the refused range was written")
		}
	}()
	tx.DeleteRange([]byte("a1"), []byte("b1"))
}

// A round can write to every table that a key can name.
func TestAllTables(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	tx := s.Begin(10, 1)
	defer tx.Close()
	for table := range 256 {
		tx.Set([]byte{byte(table), 'x'}, []byte{byte(table)})
	}
	for table := range 256 {
		if v, ok := tx.Get([]byte{byte(table), 'x'}); !ok || v[0] != byte(table) {
			t.Errorf("table %d has %v, %t", table, v, ok)
		}
	}
}

// Buffers are used again, unless a round needed more than is kept.
func TestBuffers(t *testing.T) {
	s, err := Open(Config{Dir: "state", FS: vfs.NewMem(), Identity: me, MemTableSize: 8 * maxBuffers})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	index := uint64(0)
	apply := func(size int) {
		index++
		tx := s.Begin(10, index)
		defer tx.Close()
		tx.Set([]byte("a"), make([]byte, size))
		if err := s.ApplyTx(Position{Index: index, Term: 1, Time: 10}, tx); err != nil {
			t.Fatal(err)
		}
	}
	apply(1 << 20)
	kept := s.BufferedBytes()
	if kept < 2<<20 {
		t.Errorf("after a round of 1 MiB, %d bytes of buffers are kept", kept)
	}
	writes, entry := s.buffers.writes, &s.buffers.entry[0]
	if apply(1000); s.buffers.writes != writes || &s.buffers.entry[0] != entry || s.BufferedBytes() != kept {
		t.Error("a small round did not use the buffers of a large one")
	}
	if s.DropBuffers(); s.BufferedBytes() != 0 {
		t.Errorf("after DropBuffers, %d bytes of buffers are kept", s.BufferedBytes())
	}
	if apply(maxBuffers + 1); s.BufferedBytes() != 0 {
		t.Errorf("after a round of over %d bytes, %d bytes of buffers are kept", maxBuffers, s.BufferedBytes())
	}
}
