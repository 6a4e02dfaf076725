package verb

import "slices"

// MergePages makes one page, of up to limit items, of the pages of several shards, each in the order of compare. It ends where a shard's page
// ends that has more behind it: what comes then is not known. A page that has more is not empty.
func MergePages[P, T any](pages []P, limit int, of func(P) (items []T, more bool), compare func(a, b T) int) (items []T, more bool) {
	var last *T // up to this one all is known; nil: all is
	for _, p := range pages {
		some, behind := of(p)
		items = append(items, some...)
		if behind && (last == nil || compare(some[len(some)-1], *last) < 0) {
			last = &some[len(some)-1]
		}
	}
	slices.SortFunc(items, compare)
	for i, it := range items {
		if i == limit || last != nil && compare(it, *last) > 0 {
			return items[:i], true
		}
	}
	return items, last != nil
}
