package schema

import "github.com/pawlq/pawl/internal/store"

// PageBytes bounds what is read for one page or step, payloads included: each task of a page is held in memory whole.
const PageBytes = 8 << 20

// Counted is a reader that counts the bytes of the values that are read through it.
type Counted struct {
	store.Reader
	Bytes int
}

// Get is store.Reader's.
func (c *Counted) Get(key []byte) ([]byte, bool) {
	v, ok := c.Reader.Get(key)
	c.Bytes += len(v)
	return v, ok
}

// Scan is store.Reader's.
func (c *Counted) Scan(lo, hi []byte, fn func(key, value []byte) bool) {
	c.Reader.Scan(lo, hi, c.counting(fn))
}

// ScanBack is store.Reader's.
func (c *Counted) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	c.Reader.ScanBack(lo, hi, c.counting(fn))
}

// GetEach is store.Reader's.
func (c *Counted) GetEach(keys [][]byte, fn func(i int, value []byte)) {
	c.Reader.GetEach(keys, func(i int, v []byte) {
		c.Bytes += len(v)
		fn(i, v)
	})
}

func (c *Counted) counting(fn func(key, value []byte) bool) func(key, value []byte) bool {
	return func(k, v []byte) bool {
		c.Bytes += len(v)
		return fn(k, v)
	}
}
