package web

import (
	"errors"
	"strings"

	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// Names is the search of a list by name.
type Names struct {
	Like     string
	ClearURL string          // URL of the list without the search
	Refused  *format.Problem // what is wrong with the search
}

// Names returns the search in the URL.
func (l *Links) Names() Names {
	return Names{Like: l.Query("like"), ClearURL: l.Here("like", "", "cursor", "")}
}

// Refuse keeps an API error about the search, to be shown next to it, and returns any other error.
func (n *Names) Refuse(err error) error {
	if !errors.Is(err, pawltype.ErrInvalidArgument) {
		return err
	}
	p := format.ProblemOf(err)
	n.Refused = &p
	return nil
}

// Pattern returns the pattern that names must match; "" matches all. A word without a star matches anywhere in a name.
func (l *Links) Pattern() string {
	like := strings.TrimSpace(l.Query("like"))
	if like == "" || strings.Contains(like, "*") {
		return like
	}
	return "*" + like + "*"
}

// More links to the next part of a list.
type More struct {
	Next, First string
	NotFirst    bool // this is not the first part
	ByName      bool // the list is sorted by name rather than newest first
}

// More returns the links of a list; next is the cursor of its next part, "" if there is none.
func (l *Links) More(next string) More {
	m := More{First: l.Here("cursor", ""), NotFirst: l.Query("cursor") != ""}
	if next != "" {
		m.Next = l.Here("cursor", next)
	}
	return m
}

// MoreByName returns the links of a list that is sorted by name.
func (l *Links) MoreByName(next string) More {
	m := l.More(next)
	m.ByName = true
	return m
}
