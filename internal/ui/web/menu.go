package web

import (
	"errors"
	"slices"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// navItem is an entry of the menu.
type navItem struct {
	Path, Label, Key string // Key: the shortcut
	needs            string // the right that the API requires; "": observe, "-": none
	of               reach  // how far the visitor's token must reach
	Heading          string // title of the section that starts with this entry
	Here             bool

	Counted bool // it has a count
	N       int64
	Counts  string // what is counted
	Urgent  bool
}

// reach is the scope that a token must have.
type reach int

const (
	someQueues reach = iota
	wholeNamespace
	wholeCluster
)

// entries are the pages in the order of their use on call.
var entries = []navItem{
	{Path: "/", Label: "Overview", Key: "o", of: wholeNamespace}, {Path: "/queues", Label: "Queues", Key: "q"},
	{Path: "/tasks", Label: "Tasks", Key: "t"}, {Path: "/types", Label: "Types", Key: "e"},
	{Path: "/dead", Label: "Dead letters", Key: "d"}, {Path: "/poison", Label: "Poison", Key: "p"},
	{Path: "/schedules", Label: "Schedules", Key: "s"}, {Path: "/groups", Label: "Groups", Key: "g"},
	{Path: "/workers", Label: "Workers", Key: "w", Heading: "Activity"}, {Path: "/operations", Label: "Operations", Key: "b"},
	{Path: "/audit", Label: "Audit", Key: "a", needs: "operate", of: wholeNamespace}, {Path: "/cluster", Label: "Cluster", Key: "c",
		of: wholeCluster, Heading: "Administration"}, {Path: "/webhooks", Label: "Webhooks", Key: "h", of: wholeNamespace},
	{Path: "/namespaces", Label: "Namespaces", Key: "m", needs: "cluster"}, {Path: "/tokens", Label: "Tokens", Key: "y", needs: "admin"},
	{Path: "/settings", Label: "Settings", Key: ",", needs: "-"},
}

// menu returns the entries that the visitor may see.
func (req *Request) menu() (items []navItem) {
	heading := ""
	for _, e := range entries {
		if e.Heading != "" {
			heading = e.Heading
		}
		if mayGo(req.me, e) {
			e.Here, e.Heading, heading = e.Path == req.nav, heading, ""
			items = append(items, e)
		}
	}
	return items
}

// MayOpen reports whether the API would let the visitor see a page of the menu. Pages ask it before calls that would be refused, since the
// audit log counts refusals.
func (req *Request) MayOpen(path string) bool {
	at := slices.IndexFunc(entries, func(e navItem) bool { return e.Path == path })
	return mayGo(req.Identity(), entries[at])
}

// mayGo reports whether the API would let the visitor see a page. If the visitor is unknown it returns true: the API decides.
func mayGo(me *admin.Identity, e navItem) bool {
	if me == nil || !me.TokenRequired || e.needs == "-" {
		return true
	}
	needs := e.needs
	if needs == "" {
		needs = "observe"
	}
	if !slices.Contains(strings.Fields(visitor.Rights(me)), needs) {
		return false
	}
	return e.of == someQueues || me.Queues == nil && (e.of == wholeNamespace || me.AllNamespaces)
}

// elsewhere returns the start page of a visitor who may not see the overview; "": none.
func (req *Request) elsewhere(refused error) string {
	if req.HTTP.URL.Path != "/" || req.left || req.partial() || !errors.Is(refused, pawltype.ErrPermissionDenied) || req.Identity() == nil {
		return ""
	}
	if slices.Contains(req.me.Roles, admin.RoleProduce) && !slices.Contains(req.me.Roles, admin.RoleObserve) {
		return "/enqueue"
	}
	return req.menu()[0].Path // everybody may see the settings, at least
}
