package ui

import (
	"errors"
	"strings"

	"github.com/pawlq/pawl/pawltype"
)

// names is what a list looks for in names.
type names struct {
	Like    string
	Unlike  string   // the list whatever the names
	Refused *problem // what is wrong with the search
}

func (v *visit) names() names {
	return names{Like: v.query("like"), Unlike: v.base + v.here("like", "", "cursor", "")}
}

// refuse keeps what the API says against the search, to be shown with it; other errors are given back.
func (n *names) refuse(err error) error {
	if !errors.Is(err, pawltype.ErrInvalidArgument) {
		return err
	}
	p := problemOf(err)
	n.Refused = &p
	return nil
}

// pattern is what names must fit, "": all do. A word without a star is looked for anywhere in them.
func (v *visit) pattern() string {
	like := strings.TrimSpace(v.query("like"))
	if like == "" || strings.Contains(like, "*") {
		return like
	}
	return "*" + like + "*"
}

// more says where a list goes on.
type more struct {
	Next, First string
	Later       bool // this is not the beginning
	ByName      bool // the list is by name, and not newest first
}

func (v *visit) moreOf(next string) more {
	m := more{First: v.base + v.here("cursor", ""), Later: v.query("cursor") != ""}
	if next != "" {
		m.Next = v.base + v.here("cursor", next)
	}
	return m
}

// moreNames says where a list that is by name goes on.
func (v *visit) moreNames(next string) more {
	m := v.moreOf(next)
	m.ByName = true
	return m
}
