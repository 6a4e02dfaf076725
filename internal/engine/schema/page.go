package schema

import "github.com/pawlq/pawl/internal/store"

// PageBytes bounds what is read for one page or step, payloads included: all tasks of a page are in memory at the same time.
const PageBytes = 8 << 20

// Counted is a reader that counts the bytes of the values it returns.
type Counted struct {
	store.Reader
	Bytes int
}

// Get implements store.Reader.
func (c *Counted) Get(key []byte) ([]byte, bool) {
	v, ok := c.Reader.Get(key)
	c.Bytes += len(v)
	return v, ok
}

// Scan implements store.Reader.
func (c *Counted) Scan(lo, hi []byte, fn func(key, value []byte) bool) {
	c.Reader.Scan(lo, hi, c.counting(fn))
}

// ScanBack implements store.Reader.
func (c *Counted) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	c.Reader.ScanBack(lo, hi, c.counting(fn))
}

// GetEach implements store.Reader.
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
