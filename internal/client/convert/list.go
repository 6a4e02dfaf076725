package convert

import (
	"errors"
	"iter"
	"slices"

	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// searchedOf returns how far the search for a page got.
func searchedOf(resp any) *pawltype.Searched {
	r, ok := resp.(interface{ GetSearched() *pawlv1.Searched })
	if !ok || r.GetSearched() == nil {
		return nil
	}
	return &pawltype.Searched{Rows: r.GetSearched().GetRows(), Until: Time(r.GetSearched().GetUntil())}
}

// Page converts a page of a response.
func Page[P, T any](resp interface {
	GetItems() []P
	GetNextCursor() string
}, of func(P) T) pawltype.Page[T] {
	page := pawltype.Page[T]{NextCursor: resp.GetNextCursor(), Searched: searchedOf(resp)}
	if r, ok := resp.(interface{ GetMissing() []*pawlv1.Missing }); ok {
		page.Missing = Missing(r.GetMissing())
	}
	for _, p := range resp.GetItems() {
		page.Items = append(page.Items, of(p))
	}
	return page
}

// Missing converts what a response lacks.
func Missing(list []*pawlv1.Missing) (out []pawltype.Missing) {
	for _, m := range list {
		out = append(out, pawltype.Missing{Node: m.GetNode(), Shard: m.GetShard(), Reason: m.GetReason()})
	}
	return out
}

// Pages iterates over the items of all pages. If some may be missing, it ends with an IncompleteError.
func Pages[T any](read func(cursor string) (pawltype.Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var missing []pawltype.Missing
		cursor := ""
		for {
			page, err := read(cursor)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			for _, m := range page.Missing { // of every page, if it is away for long
				if !slices.ContainsFunc(missing, func(known pawltype.Missing) bool {
					return known.Node == m.Node &&
						known.Shard == m.Shard
				}) {
					missing = append(missing, m)
				}
			}
			switch {
			case page.NextCursor == "" && len(missing) > 0:
				yield(none, &pawltype.IncompleteError{Missing: missing})
				return
			case page.NextCursor == "":
				return
			case page.NextCursor == cursor:
				yield(none, errors.New("pawl: list makes no progress: the broker returned the same cursor twice"))
				return
			}
			cursor = page.NextCursor
		}
	}
}

// Figures iterates like Pages over a list that has all items, although some of their figures may be missing: it does not end with an error.
func Figures[T any](read func(cursor string) (pawltype.Page[T], error)) iter.Seq2[T, error] {
	return Pages(func(cursor string) (pawltype.Page[T], error) {
		page, err := read(cursor)
		page.Missing = nil
		return page, err
	})
}
