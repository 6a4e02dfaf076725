package schema

import "github.com/pawlq/pawl/internal/store"

// PageBytes bounds what is read for one page or step, payloads included: all tasks of a page are in memory at the same time.
const PageBytes = 8 << 20

// A page asks for room once it has read firstRoom: for what it has read and for the next item, which may be as large as
// the last, or roomStep.
const (
	firstRoom = 16 << 10
	roomStep  = 64 << 10
)

// limited is a reader for pages that end when there is no room.
type limited struct {
	store.Reader
	room func(bytes int) bool
}

// Limit returns a reader whose pages end early when room returns false. room is told how many more bytes a page needs; nil:
// there is always room.
func Limit(from store.Reader, room func(bytes int) bool) store.Reader {
	if room == nil {
		return from
	}
	return limited{from, room}
}

// Counted is a reader that counts the bytes of the values it returns.
type Counted struct {
	store.Reader
	Bytes int
	last  int // Bytes at the last call of Full
	asked int // bytes that there is room for
	room  func(bytes int) bool
	full  bool
}

// Count returns a reader for a page.
func Count(from store.Reader) *Counted {
	l, _ := from.(limited)
	return &Counted{Reader: from, room: l.room}
}

// Full reports whether the page must end, unless it is empty: it has read PageBytes, or there is no room for more. It is called after each
// item.
func (c *Counted) Full() bool {
	item := c.Bytes - c.last
	c.last = c.Bytes
	if c.room != nil && c.Bytes >= firstRoom && c.Bytes+item > c.asked && !c.full {
		need := c.Bytes + max(item, roomStep) - c.asked
		c.asked, c.full = c.asked+need, !c.room(need)
	}
	return c.full || c.Bytes >= PageBytes
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
