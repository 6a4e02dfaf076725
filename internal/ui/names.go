package ui

import (
	"errors"
	"strings"

	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

// names is the search of a list by name.
type names struct {
	Like    string
	Unlike  string           // URL of the list without the search
	Refused *problem.Problem // what is wrong with the search
}

func (v *visit) names() names {
	return names{Like: v.query("like"), Unlike: v.base + v.here("like", "", "cursor", "")}
}

// refuse keeps an API error about the search, to be shown next to it, and returns any other error.
func (n *names) refuse(err error) error {
	if !errors.Is(err, pawltype.ErrInvalidArgument) {
		return err
	}
	p := problem.Of(err)
	n.Refused = &p
	return nil
}

// pattern returns the pattern that names must match; "" matches all. A word without a star matches anywhere in a name.
func (v *visit) pattern() string {
	like := strings.TrimSpace(v.query("like"))
	if like == "" || strings.Contains(like, "*") {
		return like
	}
	return "*" + like + "*"
}

// more links to the next part of a list.
type more struct {
	Next, First string
	Later       bool // this is not the first part
	ByName      bool // the list is sorted by name rather than newest first
}

func (v *visit) moreOf(next string) more {
	m := more{First: v.base + v.here("cursor", ""), Later: v.query("cursor") != ""}
	if next != "" {
		m.Next = v.base + v.here("cursor", next)
	}
	return m
}

// moreNames returns the links of a list that is sorted by name.
func (v *visit) moreNames(next string) more {
	m := v.moreOf(next)
	m.ByName = true
	return m
}
