package pawltype

import "time"

// PageRequest says which part of a list is wanted.
type PageRequest struct {
	Limit       int    // items at most: default 100, at most 1,000
	Cursor      string // Page.NextCursor of the page before; "" for the first
	WithPayload bool   // of tasks: their payloads too
}

// Page is a part of a list.
type Page[T any] struct {
	Items      []T       // may be empty while NextCursor is set: the search goes on
	NextCursor string    // "" at the end
	Searched   *Searched // of tasks: how far the search came that ended before the page was full; nil: it is full, or the list ends here
}

// Searched says how far the search for a page of tasks came. Where few tasks match, a page ends once a bounded number of rows was read.
type Searched struct {
	Rows  int64     // that were read for this page
	Until time.Time // all that were created later were found; of the dead letters of a queue, all that ended later
}
