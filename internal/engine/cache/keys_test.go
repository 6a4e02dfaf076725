package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// keyRows holds the rows of keys in a store, with their expiry.
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

// end deletes the rows of keys that expire by then.
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

// No key with a row is reported as new, and nearly every other one is, once the earlier rows are read and while there are not too many.
func TestKeys(t *testing.T) {
	defer func(was int) { maxKeys = was }(maxKeys)
	for seed := range uint64(6) {
		maxKeys = 8 << 20
		if seed%2 == 1 {
			maxKeys = 2 * minFilter
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		r, n, now := newKeyRows(t), 0, store.Time(0)
		var k *Keys
		check := func() (newOnes int) {
			for key := range r.rows {
				if k.IsNew(r.store, now, []byte(key)) {
					t.Fatalf("seed %d: key %q has a row, but is reported as new", seed, key)
				}
			}
			for i := range 1000 {
				if k.IsNew(r.store, now, keyOf(n+i)) {
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
					k.Add(key, now, until)
					if rng.IntN(8) == 0 { // it is looked up while others arrive and earlier rows are still being read
						k.IsNew(tx, now, keyOf(rng.IntN(n)))
					}
				}
			})
			r.end(now)
			k.End(now)
			if rng.IntN(4) == 0 {
				if told := check(); maxKeys > n && told < 980 {
					t.Errorf("seed %d: of 1,000 new keys %d are reported as new", seed, told)
				}
			}
		}
		now += 100
		r.end(now)
		k.End(now)
		if told := check(); told != 1000 || len(k.filters) != 0 || k.size != 0 {
			t.Errorf("seed %d: after all keys expired, of 1,000 new keys %d are reported as new, with %d filters for %d keys", seed, told,
				len(k.filters), k.size)
		}
	}
}

// A new leader reads the earlier keys a bounded number at a time, and reports none as new until it knows them all.
func TestKeysAreReadInPages(t *testing.T) {
	for _, n := range []int{0, 1, readAtOnce - 1, readAtOnce, readAtOnce + 1, 10 * readAtOnce} {
		r, k := newKeyRows(t), Keys{}
		r.write(func(tx *store.Tx) {
			for i := range n {
				r.set(tx, keyOf(i), store.Time(n+i))
			}
		})
		for call := range n/readAtOnce + 2 {
			told := k.IsNew(r.store, 0, keyOf(n))
			if want := min((call+1)*readAtOnce, n); k.keys() != want {
				t.Errorf("%d keys: %d were read after %d calls, want %d", n, k.keys(), call+1, want)
			}
			if told != (call >= n/readAtOnce) {
				t.Errorf("%d keys: call %d reports another key as new: %t", n, call+1, told)
			}
		}
		if n > 0 && k.filters[0].until != store.Time(2*n-1) {
			t.Errorf("%d keys: the last expires at %d, want %d", n, k.filters[0].until, 2*n-1)
		}
	}
}

// keys returns how many keys the filters hold.
func (k *Keys) keys() (n int) {
	for _, f := range k.filters {
		n += f.size - f.room
	}
	return n
}

// Many keys need few filters, and their memory is bounded. While a key is in no filter, no key is reported as new.
func TestFiltersAreBounded(t *testing.T) {
	defer func(was int) { maxKeys = was }(maxKeys)
	maxKeys = 40 * minFilter
	const all = 64 * minFilter
	for name, until := range map[string]func(i int) store.Time{
		"rising":  func(i int) store.Time { return store.Time(i + 1) },
		"falling": func(i int) store.Time { return store.Time(all - i) },
	} {
		r, k := newKeyRows(t), Keys{}
		for i := range all {
			if k.Add(keyOf(i), 0, until(i)); i%64 != 0 {
				continue
			}
			size := 0
			for _, f := range k.filters {
				size += f.size
			}
			if last := k.filters[len(k.filters)-1]; k.size != size || size > maxKeys || len(k.filters) > 24 || last.size > maxKeys/4 {
				t.Fatalf("%s: %d filters for %d keys, counted as %d, after %d keys, the last filter is for %d", name, len(k.filters), size,
					k.size, i+1, last.size)
			}
			if told := k.IsNew(r.store, 0, keyOf(all)); told != (k.missing == 0) {
				t.Fatalf("%s: after %d keys another one is reported as new: %t", name, i+1, told)
			}
		}
		dropped := store.Time(0)
		for i := range all {
			if !slices.ContainsFunc(k.filters, func(f keyFilter) bool { return f.keys.Test(keyOf(i)) }) {
				dropped = max(dropped, until(i))
			}
		}
		if dropped == 0 || k.missing != dropped || k.keys() >= all {
			t.Fatalf("%s: keys that expire until %d are recorded as missing, want %d", name, k.missing, dropped)
		}
		for _, c := range []struct {
			until store.Time
			want  bool
		}{{dropped - 1, false}, {dropped, true}} {
			if k.End(c.until); k.IsNew(r.store, 0, keyOf(all)) != c.want {
				t.Errorf("%s: with keys expired until %d of %d another one is reported as new: %t", name, c.until, dropped, !c.want)
			}
		}
		if k.End(all); len(k.filters) != 0 || k.size != 0 {
			t.Errorf("%s: %d filters for %d keys are left", name, len(k.filters), k.size)
		}
	}
}

// A few long-lived keys do not keep the filters of many short-lived ones, and the filters that are dropped to make room
// are those that expire first.
func TestFiltersOfLongLivedKeys(t *testing.T) {
	defer func(was int) { maxKeys = was }(maxKeys)
	maxKeys = 8 * minFilter
	var k Keys
	now, n := store.Time(0), 0
	for range 200 {
		for range minFilter / 2 {
			n++
			k.Add(keyOf(n), now, now.Add(time.Minute))
		}
		n++
		k.Add(keyOf(n), now, now.Add(24*time.Hour))
		if now = now.Add(30 * time.Second); k.missing != 0 {
			t.Fatalf("after %d keys some are missing from the filters, until %d", n, k.missing)
		}
		k.End(now)
	}
	if k.keys() > 4*minFilter {
		t.Errorf("the filters hold %d of %d keys", k.keys(), n)
	}
	for range 8 * minFilter {
		n++
		k.Add(keyOf(n), now, now.Add(time.Minute))
	}
	if k.missing == 0 || k.missing > now.Add(time.Minute) {
		t.Errorf("keys are missing until %d, want at most %d", k.missing, now.Add(time.Minute))
	}
}
