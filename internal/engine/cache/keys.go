package cache

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Keys detects, without a read, idempotency keys that belong to no task. Most keys are new, and each look-up would read
// another block of a table that no cache holds. It consists of Bloom filters. The keys of a filter last about equally
// long, and the filter is dropped when the last of them has expired.
type Keys struct {
	filters []keyFilter
	size    int // of all filters

	read   bool   // all rows of earlier leaders are in the filters
	behind []byte // the last row that was read

	// missing is the latest expiry of a key that is in no filter; 0: all are.
	missing store.Time
}

// keyFilter is one Bloom filter.
type keyFilter struct {
	keys       *bloom.BloomFilter
	size, room int        // how many keys it has space for, in all and still
	life       int        // the class of its keys; see lifeOf
	until      store.Time // when the last of them expires
}

const (
	// One new key in a thousand is a false positive.
	bitsPerKey, hashes = 15, 10
	// minFilter and maxFilter bound how many keys a filter holds. In between, it is a quarter of the keys of its class:
	// there are never many filters, and little memory is kept for expired keys.
	minFilter, maxFilter = 1 << 12, 1 << 20
	// readAtOnce is how many rows of earlier leaders each look-up reads, until all are known.
	readAtOnce = 64
)

// maxKeys bounds how many keys the filters hold together: 15 MiB. Tests lower it.
var maxKeys = 8 << 20

// IsNew returns false if the key may belong to a task.
func (k *Keys) IsNew(from store.Reader, now store.Time, key []byte) bool {
	if !k.read {
		k.readOn(from, now)
	}
	if !k.read || k.missing != 0 {
		return false
	}
	at := bloom.Locations(key, hashes)
	return !slices.ContainsFunc(k.filters, func(f keyFilter) bool { return f.keys.TestLocations(at) })
}

// readOn reads more of the rows of earlier leaders, of all namespaces.
func (k *Keys) readOn(from store.Reader, now store.Time) {
	lo, n := []byte{schema.TableKey}, 0
	if k.behind != nil {
		lo = append(k.behind, 0)
	}
	from.Scan(lo, []byte{schema.TableKey + 1}, func(key, row []byte) bool {
		r, err := schema.DecodeKey(row)
		if err != nil {
			r.Until = now.Add(task.MaxHold) // a call with this key will find the row
		}
		k.Add(key, now, r.Until)
		k.behind = bytes.Clone(key)
		n++
		return n < readAtOnce
	})
	k.read = n < readAtOnce
}

// Add records a key that belongs to a task.
func (k *Keys) Add(key []byte, now, until store.Time) {
	f := k.withRoom(lifeOf(until.Sub(now)))
	f.keys.Add(key)
	f.room--
	f.until = max(f.until, until)
}

// lifeOf returns the class of a key by how long it lasts. Each class spans twice as long as the one before, so that a
// few long-lived keys do not keep the filter of many short-lived ones.
func lifeOf(left time.Duration) int {
	return bits.Len64(uint64(max(left/time.Second, 0))) // #nosec G115 -- not negative
}

// withRoom returns a filter of the class that has room. If need be, it drops the filters that expire first.
func (k *Keys) withRoom(life int) *keyFilter {
	alike := 0
	for i := range k.filters {
		f := &k.filters[i]
		if f.life != life {
			continue
		}
		if f.room > 0 {
			return f
		}
		alike += f.size
	}
	size := min(max(alike/4, minFilter), maxFilter)
	for k.size+size > maxKeys {
		first := slices.MinFunc(k.filters, func(a, b keyFilter) int { return cmp.Compare(a.until, b.until) }).until
		k.missing = max(k.missing, first)
		k.drop(first)
	}
	k.size += size
	k.filters = append(k.filters, keyFilter{keys: bloom.New(uint(size*bitsPerKey), hashes), size: size, room: size,
		life: life}) // #nosec G115 -- bounded
	return &k.filters[len(k.filters)-1]
}

// End drops the filters of keys that have expired. The rows of all keys that expire by then must have been deleted.
func (k *Keys) End(until store.Time) {
	k.drop(until)
	if k.missing <= until {
		k.missing = 0
	}
}

// drop drops the filters whose keys all expire by then.
func (k *Keys) drop(until store.Time) {
	k.filters = slices.DeleteFunc(k.filters, func(f keyFilter) bool {
		over := f.until <= until
		if over {
			k.size -= f.size
		}
		return over
	})
}
