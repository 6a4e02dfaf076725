package verb

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMergedPages walks through a list spread over several shards, page by page, with shards that return short pages: nothing is left out
// or repeated.
func TestMergedPages(t *testing.T) {
	type page struct {
		items []int
		more  bool
	}
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		shards := make([][]int, 1+random.IntN(4))
		var all []int
		for n := range random.IntN(40) {
			shard := random.IntN(len(shards))
			shards[shard] = append(shards[shard], n)
			all = append(all, n)
		}
		limit := 1 + random.IntN(8)
		var walked []int
		for after, more := -1, true; more; {
			pages := make([]page, len(shards))
			for i, items := range shards {
				from, _ := slices.BinarySearch(items, after+1)
				rest := items[from:]
				n := min(len(rest), 1+random.IntN(limit)) // a shard may return fewer, but at least one
				pages[i] = page{slices.Clone(rest[:n]), n < len(rest)}
			}
			var items []int
			items, more = MergePages(pages, limit, func(p page) ([]int, bool) { return p.items, p.more }, cmp.Compare[int])
			if len(items) > limit || more && len(items) == 0 {
				t.Fatalf("seed %d: MergePages returned %d items, want at most %d and at least one if there are more (more = %t)", seed,
					len(items), limit, more)
			}
			if walked = append(walked, items...); len(walked) > 0 {
				after = walked[len(walked)-1]
			}
		}
		if !slices.Equal(walked, all) {
			t.Fatalf("seed %d: the pages together held %v, want %v", seed, walked, all)
		}
	}
}
