package members

import (
	"maps"
	"testing"

	"github.com/pawlq/pawl/internal/shard"
)

// The replicas that differ are those that are not most of the ones that could be asked. Without a majority there is no telling.
func TestWhoDiffers(t *testing.T) {
	a, b, c := shard.Hash{Index: 7, Sum: 1, Rows: 9}, shard.Hash{Index: 7, Sum: 2, Rows: 9}, shard.Hash{Index: 7, Sum: 1,
		Rows: 9, Next: "k"}
	apart, torn := Finding{7, true}, Finding{7, false}
	for name, test := range map[string]struct {
		hashes map[uint64]shard.Hash
		want   map[uint64]Finding
	}{
		"none":                 {nil, map[uint64]Finding{}},
		"one":                  {map[uint64]shard.Hash{1: a}, map[uint64]Finding{}},
		"all equal":            {map[uint64]shard.Hash{1: a, 2: a, 3: a}, map[uint64]Finding{}},
		"one of three":         {map[uint64]shard.Hash{1: a, 2: b, 3: a}, map[uint64]Finding{2: apart}},
		"the leader's":         {map[uint64]shard.Hash{1: b, 2: a, 3: a}, map[uint64]Finding{1: apart}},
		"only its end":         {map[uint64]shard.Hash{1: a, 2: a, 3: c}, map[uint64]Finding{3: apart}},
		"two of two":           {map[uint64]shard.Hash{1: a, 2: b}, map[uint64]Finding{1: torn, 2: torn}},
		"all of three":         {map[uint64]shard.Hash{1: a, 2: b, 3: c}, map[uint64]Finding{1: torn, 2: torn, 3: torn}},
		"two and two":          {map[uint64]shard.Hash{1: a, 2: b, 3: a, 4: b}, map[uint64]Finding{1: torn, 2: torn, 3: torn, 4: torn}},
		"two of five, unequal": {map[uint64]shard.Hash{1: a, 2: b, 3: a, 4: c, 5: a}, map[uint64]Finding{2: apart, 4: apart}},
		"three of five, spread": {map[uint64]shard.Hash{1: a, 2: b, 3: a, 4: c, 5: b}, map[uint64]Finding{1: torn, 2: torn, 3: torn,
			4: torn, 5: torn}},
	} {
		if got := differ(test.hashes); !maps.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// A pass that could not compare a replica that differs clears nobody; one that a former member missed does.
func TestPassMissesWhatDiffers(t *testing.T) {
	two, three := map[uint64]Finding{2: {7, true}}, map[uint64]Finding{2: {7, true}, 3: {9, true}}
	for name, test := range map[string]struct {
		found, want map[uint64]Finding
		missed      map[uint64]bool
		members     []uint64
	}{
		"all were compared":    {nil, nil, nil, []uint64{1, 2, 3}},
		"another was not":      {nil, nil, map[uint64]bool{3: true}, []uint64{1, 2, 3}},
		"it was not":           {nil, two, map[uint64]bool{2: true}, []uint64{1, 2, 3}},
		"it was, and differed": {two, two, map[uint64]bool{3: true}, []uint64{1, 2, 3}},
		"one more differs":     {three, three, nil, []uint64{1, 2, 3}},
		"it is gone":           {nil, nil, map[uint64]bool{2: true}, []uint64{1, 3}},
	} {
		var d Differing
		d.set(two)
		d.end(&pass{found: test.found, missed: test.missed}, test.members)
		if got := d.Of(test.members); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v differ, want %v", name, got, test.want)
		}
	}
}
