package pawltype

import "time"

// PageRequest selects a part of a list.
type PageRequest struct {
	Limit       int    // maximum number of items: default 100, at most 1,000
	Cursor      string // Page.NextCursor of the previous page; "" for the first
	WithPayload bool   // for tasks: include their payloads
}

// Page is a part of a list.
type Page[T any] struct {
	Items      []T       // may be empty while NextCursor is set: the search continues
	NextCursor string    // "" at the end
	Searched   *Searched // for tasks: how far the search got, if it ended before the page was full or the list complete; else nil
}

// Searched describes how far the search for a page of tasks got. Where few tasks match, a page ends after a bounded number of rows.
type Searched struct {
	Rows  int64     // read for this page
	Until time.Time // all matches created after this were found; for the dead letters of a queue, all that ended after it
}
