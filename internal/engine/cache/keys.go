package cache

import (
	"bytes"
	"slices"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

// Keys tells, without a read, that an idempotency key stands for no task: most keys are new, and the rows of many keys lie anywhere in a table that
// no memory holds. It has Bloom filters, each of which goes when the last of its keys has ended.
type Keys struct {
	filters []keyFilter
	count   int // of keys in all filters

	read   bool   // the rows that were there before are known
	behind []byte // up to where they were read

	// missing is until when a key may last that no filter has; 0: there is none.
	missing store.Time
}

// keyFilter is the filter of some keys.
type keyFilter struct {
	bits  *bloom.BloomFilter
	room  int        // for more keys
	count int        // of its keys
	until store.Time // when the last of them ends
}

const (
	// Of a thousand new keys a filter takes one for an old one.
	bitsPerKey, hashes = 15, 10
	// minFilter and maxFilter bound the keys of a filter. In between it has room for a fourth of all, so that there are never many filters, and
	// not much is kept for keys that have ended.
	minFilter, maxFilter = 1 << 12, 1 << 20
	// readAtOnce is how many of the rows that were there before each new key reads, until all are known.
	readAtOnce = 64
)

// maxKeys bounds the keys of all filters: 16 MiB. Tests lower it.
var maxKeys = 8 << 20

// IsNew is false if the key may stand for a task.
func (k *Keys) IsNew(from store.Reader, key []byte) bool {
	if !k.read {
		k.readOn(from)
	}
	if !k.read || k.missing != 0 {
		return false
	}
	at := bloom.Locations(key, hashes)
	return !slices.ContainsFunc(k.filters, func(f keyFilter) bool { return f.bits.TestLocations(at) })
}

// readOn reads some of the rows of all namespaces.
func (k *Keys) readOn(from store.Reader) {
	lo, n := []byte{schema.TableKey}, 0
	if k.behind != nil {
		lo = append(k.behind, 0)
	}
	from.Scan(lo, []byte{schema.TableKey + 1}, func(key, row []byte) bool {
		r, err := schema.DecodeKey(row)
		schema.Must(err)
		k.Add(key, r.Until)
		k.behind = bytes.Clone(key)
		n++
		return n < readAtOnce
	})
	k.read = n < readAtOnce
}

// Add notes a key that stands for a task.
func (k *Keys) Add(key []byte, until store.Time) {
	if len(k.filters) == 0 || k.filters[len(k.filters)-1].room == 0 {
		k.begin()
	}
	f := &k.filters[len(k.filters)-1]
	f.bits.Add(key)
	f.room--
	f.count++
	f.until = max(f.until, until)
	k.count++
}

// begin begins a filter. The first ones make room for it.
func (k *Keys) begin() {
	room := min(max(k.count/4, minFilter), maxFilter)
	for k.count+room > maxKeys {
		k.missing = max(k.missing, k.filters[0].until)
		k.count -= k.filters[0].count
		k.filters = slices.Delete(k.filters, 0, 1)
	}
	k.filters = append(k.filters, keyFilter{bits: bloom.New(uint(room*bitsPerKey), hashes), room: room}) // #nosec G115 -- bounded
}

// End drops the filters of which no key has a row any more: the rows of all keys that end by then are gone.
func (k *Keys) End(until store.Time) {
	k.filters = slices.DeleteFunc(k.filters, func(f keyFilter) bool {
		over := f.until <= until
		if over {
			k.count -= f.count
		}
		return over
	})
	if k.missing <= until {
		k.missing = 0
	}
}
