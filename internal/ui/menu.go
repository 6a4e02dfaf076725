package ui

import (
	"errors"
	"slices"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// navItem is an entry of the menu.
type navItem struct {
	Path, Label, Key string // Key: the letter that goes there
	needs            string // the right that the API asks for; "": to observe, "-": none
	of               reach  // what the API wants the visitor's token to be good for
	Heading          string // of another sort of pages, which begins with it
	Here             bool

	Counted bool // it has a count
	N       int64
	Counts  string // what
	Urgent  bool
}

// reach is how far a token must go.
type reach int

const (
	someQueues reach = iota
	wholeNamespace
	wholeCluster
)

// entries are the pages in the order of their use on call.
var entries = []navItem{
	{Path: "/", Label: "Overview", Key: "o", of: wholeNamespace}, {Path: "/queues", Label: "Queues", Key: "q"}, {Path: "/tasks", Label: "Tasks", Key: "t"},
	{Path: "/types", Label: "Types", Key: "e"},
	{Path: "/dead", Label: "Dead letters", Key: "d"}, {Path: "/poison", Label: "Poison", Key: "p"}, {Path: "/schedules", Label: "Schedules", Key: "s"},
	{Path: "/groups", Label: "Groups", Key: "g"},
	{Path: "/workers", Label: "Workers", Key: "w", Heading: "Activity"}, {Path: "/operations", Label: "Operations", Key: "b"}, {Path: "/audit", Label: "Audit", Key: "a", needs: "operate", of: wholeNamespace},
	{Path: "/cluster", Label: "Cluster", Key: "c", of: wholeCluster, Heading: "Administration"}, {Path: "/webhooks", Label: "Webhooks", Key: "h", of: wholeNamespace},
	{Path: "/namespaces", Label: "Namespaces", Key: "m", needs: "cluster"}, {Path: "/tokens", Label: "Tokens", Key: "y", needs: "admin"},
	{Path: "/settings", Label: "Settings", Key: ",", needs: "-"},
}

// menu are the pages that the visitor may see.
func (v *visit) menu() (items []navItem) {
	heading := ""
	for _, e := range entries {
		if e.Heading != "" {
			heading = e.Heading
		}
		if mayGo(v.me, e) {
			e.Here, e.Heading, heading = e.Path == v.nav, heading, ""
			items = append(items, e)
		}
	}
	return items
}

// mayGo tells whether the API would answer a page to the visitor. Nobody is known: then it is asked.
func mayGo(me *admin.Identity, e navItem) bool {
	if me == nil || !me.TokenRequired || e.needs == "-" {
		return true
	}
	needs := e.needs
	if needs == "" {
		needs = "observe"
	}
	if !slices.Contains(strings.Fields(rights(me)), needs) {
		return false
	}
	return e.of == someQueues || me.Queues == nil && (e.of == wholeNamespace || me.AllNamespaces)
}

// elsewhere is where a visitor begins who may not see the overview; "": nowhere else.
func (v *visit) elsewhere(refused error) string {
	if v.r.URL.Path != "/" || v.left || v.partial() || !errors.Is(refused, pawltype.ErrPermissionDenied) || v.who() == nil {
		return ""
	}
	if slices.Contains(v.me.Roles, admin.RoleProduce) && !slices.Contains(v.me.Roles, admin.RoleObserve) {
		return "/enqueue"
	}
	return v.menu()[0].Path // the settings at least are for everybody
}
