package pawltype

import (
	"fmt"
	"time"
)

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
	Missing    []Missing // shards and nodes whose part is missing
}

// Missing is a shard or a node that did not answer in time. Everything else in a response is as if it had nothing.
type Missing struct {
	Node   string // its name; "": it is a shard
	Shard  uint32 // its number; 0 is the system shard
	Reason string // what it did instead, such as "did not answer in time"
}

func (m Missing) String() string {
	if m.Node != "" {
		return fmt.Sprintf("node %s %s", m.Node, m.Reason)
	}
	return fmt.Sprintf("shard %d %s", m.Shard, m.Reason)
}

// IncompleteError is the error with which an iterator over a list ends, after all items that it has, if some of them
// may be missing. It is an ErrUnavailable.
type IncompleteError struct {
	Missing []Missing // the shards and nodes that did not answer in time; at least one
}

// Error names the first of Missing.
func (e *IncompleteError) Error() string { return e.Unwrap().Error() }

// Unwrap returns an *Error.
func (e *IncompleteError) Unwrap() error {
	msg := fmt.Sprintf("the list is incomplete: %s", e.Missing[0])
	if more := len(e.Missing) - 1; more > 0 {
		msg += fmt.Sprintf(", and %d more", more)
	}
	return &Error{Code: ErrUnavailable, Message: msg}
}

// Searched describes how far the search for a page of tasks got. Where few tasks match, a page ends after a bounded number of rows.
type Searched struct {
	Rows  int64     // read for this page
	Until time.Time // all matches created after this were found; for the dead letters of a queue, all that ended after it
}
