package node

import (
	"testing"

	"github.com/pawlq/pawl/internal/shard"
)

// Replicas are equal if all known hashes are, whichever of them differs.
func TestCompareHashes(t *testing.T) {
	a, b, more := shard.Hash{Index: 9, Sum: 1, Rows: 3}, shard.Hash{Index: 9, Sum: 2, Rows: 3}, shard.Hash{Index: 9, Sum: 1, Rows: 4}
	for _, c := range []struct {
		known []shard.Hash
		rows  int64
		equal bool
	}{
		{nil, 0, true},
		{[]shard.Hash{a}, 3, true},
		{[]shard.Hash{a, a, a}, 3, true},
		{[]shard.Hash{b, a, a}, 3, false},
		{[]shard.Hash{a, b, a}, 3, false},
		{[]shard.Hash{a, a, b}, 3, false},
		{[]shard.Hash{more, a}, 4, false},
	} {
		if rows, equal := compareHashes(c.known); rows != c.rows || equal != c.equal {
			t.Errorf("hashes %v: %d rows, equal: %t; want %d, %t", c.known, rows, equal, c.rows, c.equal)
		}
	}
}
