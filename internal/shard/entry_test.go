package shard

import (
	"math"
	"testing"

	"github.com/pawlq/pawl/internal/store"
)

// An entry that no leader can have written is an error: cut short, in another format, or with an impossible time.
func TestParseEntry(t *testing.T) {
	whole := func(at uint64) []byte {
		b := make([]byte, headerLen)
		header{3, 4, store.Time(at)}.put(b) // #nosec G115 -- out of range on purpose
		return b
	}
	for _, c := range []struct {
		name string
		data []byte
		want string // the error; "": none
	}{
		{"without a body", whole(5), ""},
		{"of the last time", whole(math.MaxInt64), ""},
		{"of no time", whole(math.MaxInt64 + 1), "entry has time 9223372036854775808 out of range"},
		{"cut short", whole(5)[:headerLen-1], "entry of 24 bytes is cut short"},
		{"of another form", append([]byte{entryVersion + 1}, whole(5)[1:]...),
			"entry has version 2, this release knows 1: it was written by a newer one"},
	} {
		h, body, err := parseEntry(c.data)
		switch {
		case err != nil && err.Error() != c.want, err == nil && c.want != "":
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err == nil && (h.term != 3 || h.base != 4 || len(body) != 0):
			t.Errorf("%s: %+v with %d bytes", c.name, h, len(body))
		}
	}
	for h, want := range map[header]bool{{term: 3, base: 4}: true, {term: 3, base: 5}: false, {term: 2, base: 4}: false} {
		if h.holds(5, 3) != want {
			t.Errorf("%+v holds at entry 5 of term 3: %v", h, !want)
		}
	}
}
