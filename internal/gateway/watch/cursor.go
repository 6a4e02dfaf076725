package watch

import (
	"slices"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
)

// cursorLine maintains the cursor of a stream, so that a step in one shard need not encode all of it again. It belongs to the
// stream's goroutine.
type cursorLine struct {
	places events.Places
	parts  map[uint32][]byte
	order  []uint32
	reads  map[uint32]bool // shards being read
	began  bool            // it started from a cursor
}

func newCursorLine(places events.Places) *cursorLine {
	c := &cursorLine{places: events.Places{}, parts: map[uint32][]byte{}, reads: map[uint32]bool{}, began: len(places) > 0}
	for shard, at := range places {
		c.set(shard, at)
	}
	return c
}

// at returns up to where a shard was read. A shard that the cursor doesn't have was not read.
func (c *cursorLine) at(shard uint32) events.Place {
	at, known := c.places[shard]
	if !known && c.began {
		return events.Unknown
	}
	return at
}

func (c *cursorLine) set(shard uint32, at events.Place) {
	if _, known := c.places[shard]; !known {
		i, _ := slices.BinarySearch(c.order, shard)
		c.order = slices.Insert(c.order, i, shard)
	}
	c.places[shard] = at
	c.parts[shard] = events.Places{shard: at}.Encode()
}

func (c *cursorLine) text() string {
	if len(c.order) == 0 {
		return ""
	}
	var b []byte
	for _, shard := range c.order {
		b = append(b, c.parts[shard]...)
	}
	return apiproto.EncodeCursor(apiproto.EventCursor, b)
}
