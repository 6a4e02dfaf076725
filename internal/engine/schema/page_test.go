package schema

import (
	"testing"

	"github.com/pawlq/pawl/internal/store"
)

// values is a reader whose values have the sizes that their keys say.
type values struct{ store.Reader }

func (values) Get(key []byte) ([]byte, bool) { return make([]byte, int(key[0])<<10), true }

// A page ends when it has read 8 MiB, or before there is no room. Room is asked for before it is needed, and not for a small page.
func TestPagesEndWithoutRoom(t *testing.T) {
	for _, c := range []struct {
		what  string
		kib   byte // of each item
		room  int  // KiB
		items int
	}{
		{"no limit", 64, -1, 128},
		{"enough room", 64, 9000, 128},
		{"little room", 64, 640, 10},
		{"room for half an item more", 64, 672, 10},
		{"large items", 200, 1000, 5},
		{"small items", 1, 200, 144},
		{"a large item, without room", 200, 0, 1},
		{"small items, without room", 1, 0, 16},
	} {
		left := c.room << 10
		from := store.Reader(values{})
		if c.room >= 0 {
			from = Limit(from, func(n int) bool {
				if n > left {
					return false
				}
				left -= n
				return true
			})
		}
		m := Count(from)
		items := 0
		for full := false; !full; full = m.Full() {
			m.Get([]byte{c.kib})
			items++
		}
		if items != c.items || c.room > 0 && m.Bytes > c.room<<10 {
			t.Errorf("%s: a page has %d items and %d bytes, want %d", c.what, items, m.Bytes, c.items)
		}
		if m.Full() != true {
			t.Errorf("%s: the page goes on", c.what)
		}
	}
	if m := Count(Limit(values{}, nil)); m.Full() {
		t.Error("an empty page is full")
	}
}
