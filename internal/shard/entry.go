package shard

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pawlq/pawl/internal/store"
)

// entryVersion is the first byte of every entry. A replica that reads another version stops: if it skipped the entry, it
// would diverge from the others.
const entryVersion = 1

// headerLen is the length of an entry's header: version 1, term 8, base 8, time 8.
const headerLen = 1 + 8 + 8 + 8

// header precedes the bytes of a round in its log entry. term and base are the guard: the leader of term computed the
// round on the state after entry base.
type header struct {
	term, base uint64
	time       store.Time
}

// put writes h into the first headerLen bytes of b.
func (h header) put(b []byte) {
	b[0] = entryVersion
	binary.BigEndian.PutUint64(b[1:], h.term)
	binary.BigEndian.PutUint64(b[9:], h.base)
	binary.BigEndian.PutUint64(b[17:], uint64(h.time))
}

// parseEntry splits the data of a log entry.
func parseEntry(b []byte) (h header, body []byte, err error) {
	if len(b) < headerLen {
		return h, nil, fmt.Errorf("entry of %d bytes is cut short", len(b))
	}
	if b[0] != entryVersion {
		return h, nil, fmt.Errorf("entry has version %d, this release knows %d: it was written by a newer one", b[0], entryVersion)
	}
	h.term, h.base = binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])
	t := binary.BigEndian.Uint64(b[17:])
	if t > math.MaxInt64 {
		return h, nil, fmt.Errorf("entry has time %d out of range", t)
	}
	h.time = store.Time(t)
	return h, b[headerLen:], nil
}

// holds reports whether the guard allows an entry at index of term to take effect.
func (h header) holds(index, term uint64) bool {
	return h.term == term && h.base+1 == index
}
