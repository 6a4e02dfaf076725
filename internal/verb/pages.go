package verb

import "slices"

// MergePages merges the pages of several shards, each in the order of compare, into one page of up to limit items. It ends where the first
// of the pages ends that has more after it: what follows is unknown. A page that has more is not empty.
func MergePages[P, T any](pages []P, limit int, of func(P) (items []T, more bool), compare func(a, b T) int) (items []T, more bool) {
	var last *T // everything up to this one is known; nil: everything is
	for _, p := range pages {
		page, more := of(p)
		items = append(items, page...)
		if more && (last == nil || compare(page[len(page)-1], *last) < 0) {
			last = &page[len(page)-1]
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
