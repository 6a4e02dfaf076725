package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// keyRows are the rows of keys in a store, and until when they last.
type keyRows struct {
	t     *testing.T
	store *store.Store
	index uint64
	rows  map[string]store.Time
}

func newKeyRows(t *testing.T) *keyRows {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &keyRows{t: t, store: s, rows: map[string]store.Time{}}
}

func keyOf(i int) []byte {
	return schema.IdempotencyKey([]string{"a", "default"}[i%2], "queue", fmt.Sprint("key-", i))
}

func (r *keyRows) write(do func(tx *store.Tx)) {
	r.index++
	tx := r.store.Begin(store.Time(r.index), r.index)
	defer tx.Close()
	do(tx)
	if err := r.store.Apply(store.Position{Index: r.index, Term: 1, Time: tx.Now()}, tx.Seal(nil)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *keyRows) set(tx *store.Tx, key []byte, until store.Time) {
	tx.Set(key, schema.KeyRow{Until: until}.Encode())
	r.rows[string(key)] = until
}

// end deletes the rows of keys that end by then.
func (r *keyRows) end(until store.Time) {
	r.write(func(tx *store.Tx) {
		for key, ends := range r.rows {
			if ends <= until {
				tx.Delete([]byte(key))
				delete(r.rows, key)
			}
		}
	})
}

// No key that has a row is called new, and nearly every other one is, once what was there before is read and while there are not too many.
func TestKeys(t *testing.T) {
	defer func(was int) { maxKeys = was }(maxKeys)
	for seed := range uint64(10) {
		maxKeys = 8 << 20
		if seed%2 == 1 {
			maxKeys = 2 * minFilter
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		r, n, now := newKeyRows(t), 0, store.Time(0)
		var k *Keys
		check := func() (newOnes int) {
			for i := range n + 1000 {
				if _, there := r.rows[string(keyOf(i))]; k.IsNew(r.store, keyOf(i)) && there {
					t.Fatalf("seed %d: key %d has a row and is called new", seed, i)
				}
			}
			for i := range 1000 {
				if k.IsNew(r.store, keyOf(n+i)) {
					newOnes++
				}
			}
			return newOnes
		}
		for range 40 {
			if k == nil || rng.IntN(8) == 0 {
				k = &Keys{} // of a new leader
			}
			now += store.Time(rng.IntN(10))
			r.write(func(tx *store.Tx) {
				for range rng.IntN(2000) {
					key, until := keyOf(n), now+1+store.Time(rng.IntN(60))
					n++
					r.set(tx, key, until)
					k.Add(key, until)
					if rng.IntN(8) == 0 { // it is asked for while others come, and what was there before is read on
						k.IsNew(tx, keyOf(rng.IntN(n)))
					}
				}
			})
			r.end(now)
			k.End(now)
			if rng.IntN(4) == 0 {
				if told := check(); maxKeys > n && told < 980 {
					t.Errorf("seed %d: of 1,000 new keys %d are called new", seed, told)
				}
			}
		}
		now += 100
		r.end(now)
		k.End(now)
		if told := check(); told != 1000 || len(k.filters) != 0 || k.count != 0 {
			t.Errorf("seed %d: when all keys have ended, of 1,000 new keys %d are called new; %d filters for %d keys", seed, told, len(k.filters), k.count)
		}
	}
}

// A new leader reads the keys that were there before it a bounded number at a time, and calls none new until it knows them.
func TestKeysAreReadOn(t *testing.T) {
	for _, n := range []int{0, 1, readAtOnce - 1, readAtOnce, readAtOnce + 1, 10 * readAtOnce} {
		r, k := newKeyRows(t), Keys{}
		r.write(func(tx *store.Tx) {
			for i := range n {
				r.set(tx, keyOf(i), store.Time(n+i))
			}
		})
		for call := range n/readAtOnce + 2 {
			told := k.IsNew(r.store, keyOf(n))
			if want := min((call+1)*readAtOnce, n); k.count != want {
				t.Errorf("%d keys: %d are read after %d calls, want %d", n, k.count, call+1, want)
			}
			if told != (call >= n/readAtOnce) {
				t.Errorf("%d keys: call %d tells that another is new: %t", n, call+1, told)
			}
		}
		if k.count > 0 && k.filters[0].until != store.Time(2*n-1) {
			t.Errorf("%d keys: the last ends at %d, want %d", n, k.filters[0].until, 2*n-1)
		}
	}
}

// The filters of many keys are few, and their memory has a bound. While a key is in none, no key is called new.
func TestFiltersAreBounded(t *testing.T) {
	defer func(was int) { maxKeys = was }(maxKeys)
	maxKeys = 40 * minFilter
	r, k := newKeyRows(t), Keys{}
	const all = 64 * minFilter
	for i := range all {
		k.Add(keyOf(i), store.Time(i+1))
		if room := k.filters[len(k.filters)-1]; k.count > maxKeys || len(k.filters) > 24 || room.count > max(minFilter, k.count/3) {
			t.Fatalf("%d keys in %d filters after %d; the last has %d", k.count, len(k.filters), i+1, room.count)
		}
		if told := k.IsNew(r.store, keyOf(all)); told != (k.missing == 0) {
			t.Fatalf("after %d keys another one is called new: %t", i+1, told)
		}
	}
	dropped := k.missing
	if dropped == 0 || k.filters[0].bits.Test(keyOf(int(dropped)-1)) {
		t.Fatalf("keys that end until %d are said to be missing", dropped)
	}
	for _, c := range []struct {
		until store.Time
		want  bool
	}{{dropped - 1, false}, {dropped, true}} {
		if k.End(c.until); k.IsNew(r.store, keyOf(all)) != c.want {
			t.Errorf("when keys have ended until %d of %d: another one is called new: %t", c.until, dropped, !c.want)
		}
	}
	var falling Keys
	for i := range all {
		falling.Add(keyOf(i), store.Time(all-i))
	}
	if falling.missing != all {
		t.Errorf("keys that end until %d are said to be missing, want those of the first filter, until %d", falling.missing, all)
	}
	if k.End(all - 1); len(k.filters) != 1 {
		t.Errorf("%d filters are left for one key", len(k.filters))
	}
	if k.End(all); len(k.filters) != 0 || k.count != 0 {
		t.Errorf("%d filters are left for %d keys", len(k.filters), k.count)
	}
}
