package convert

import (
	"iter"

	"github.com/pawlq/pawl/pawltype"

	"errors"

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
	for _, p := range resp.GetItems() {
		page.Items = append(page.Items, of(p))
	}
	return page
}

// Pages iterates over the items of all pages.
func Pages[T any](read func(cursor string) (pawltype.Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		cursor := ""
		for {
			page, err := read(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			if page.NextCursor == cursor {
				var none T
				yield(none, errors.New("pawl: list makes no progress: the broker returned the same cursor twice"))
				return
			}
			cursor = page.NextCursor
		}
	}
}
