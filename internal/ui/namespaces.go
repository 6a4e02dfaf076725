package ui

import (
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

var namespacePages = []page{{path: "/namespaces", template: "namespaces", nav: "/namespaces", show: showNamespaces}}

var namespaceActions = []action{
	{path: "/new-namespace", nav: "/namespaces", form: newNamespaceForm, do: doNewNamespace},
	{path: "/namespaces/choose", nav: "/namespaces", form: chooseForm, do: doChoose},
	{path: "/namespaces/{namespace}/quotas", nav: "/namespaces", form: quotasForm, do: doQuotas},
	{path: "/namespaces/{namespace}/remove", nav: "/namespaces", form: removeNamespaceForm, do: doRemoveNamespace},
}

// maxNamespaces is how many namespaces can be chosen from, namespacesLimit how many a page of the list has.
const (
	maxNamespaces   = 1000
	namespacesLimit = 40
	// maxListed is how many are chosen from a list; among more, one types.
	maxListed = 20
)

type namespacesView struct {
	Rows []namespaceRow
	names
	more
}

// namespaceRow is a namespace in a list.
type namespaceRow struct {
	*admin.Namespace
	URL  string // of its pages
	Here bool   // it is the one that pages show
	Rows []quotaRow
}

func showNamespaces(v *visit) (*screen, error) {
	me, err := v.admin().Access().WhoAmI(v.ctx)
	if err != nil {
		return nil, err
	}
	view := &namespacesView{names: v.names()}
	page, err := v.admin().Namespaces().ListPage(v.ctx, admin.NamespaceFilter{Pattern: v.pattern()}, pawltype.PageRequest{Limit: namespacesLimit, Cursor: v.query("cursor")})
	if err = view.refuse(err); err != nil {
		return nil, err
	}
	view.more = v.moreNames(page.NextCursor)
	for _, n := range page.Items {
		view.Rows = append(view.Rows, namespaceRow{n, v.baseOf(n.Name) + "/", n.Name == me.Namespace, quotaRows(&n.Quotas, n.Usage)})
	}
	return &screen{Title: "Namespaces", Data: view}, nil
}

func newNamespaceForm(*visit) (*form, error) {
	return &form{Title: "New namespace", Button: "Make the namespace", Back: "/namespaces", Text: "It has queues, tasks, schedules, groups, operations, workers, tokens and an audit of its own; nothing of it is found from another.",
		Fields: []field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "team-a", Hint: "Lower-case letters, digits and -"}, reasonField()}}, nil
}

func doNewNamespace(v *visit) (done, error) {
	behind, err := v.admin().WithReason(v.value("reason")).Namespaces().Create(v.ctx, v.value("name"), admin.QuotaChange{})
	if err != nil {
		return done{}, err
	}
	return done{Said: "Namespace " + v.value("name") + " is there." + unconfirmed(behind), Next: "/namespaces"}, nil
}

// unconfirmed names the nodes that have not confirmed a change.
func unconfirmed(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	return " Nodes that have not confirmed it within a second: " + strings.Join(nodes, ", ") + "."
}

func removeNamespaceForm(v *visit) (*form, error) {
	name := v.r.PathValue("namespace")
	return &form{Title: "Remove " + clip(name, 60), Danger: true, Button: "Remove the namespace", Back: "/namespaces", Text: "Only one without queues, schedules and tokens can be removed. What is kept of its ended tasks goes with it; the audit stays.",
		Fields: []field{{Name: "confirm", Label: "Type its name to confirm", Kind: "text", Placeholder: name, Required: true}, reasonField()}}, nil
}

func doRemoveNamespace(v *visit) (done, error) {
	name := v.r.PathValue("namespace")
	if v.value("confirm") != name {
		return done{}, badField("confirm", "is not the name of the namespace, %q", name)
	}
	behind, err := v.admin().WithReason(v.value("reason")).Namespaces().Delete(v.ctx, name)
	if err != nil {
		return done{}, err
	}
	if name == spaceOf(v.r) {
		v.base = v.UI.base // the pages of this one are gone
	}
	return done{Said: "Removed namespace " + name + "." + unconfirmed(behind), Next: "/namespaces"}, nil
}

// namespaces are those among which the visitor may choose, also from within one that is gone: none, unless the token is good for all. Errors
// are no more than nothing to choose.
func (v *visit) namespaces() (names []string) {
	_ = v.as(v.in(""), func(a admin.Client) error {
		page, err := a.Namespaces().ListPage(v.ctx, admin.NamespaceFilter{}, pawltype.PageRequest{Limit: maxNamespaces})
		for _, n := range page.Items {
			names = append(names, n.Name)
		}
		return err
	})
	return names
}

// several tells whether there is anything to choose.
func (v *visit) several() (many bool) {
	if v.me == nil || !v.me.AllNamespaces {
		return false
	}
	if v.me.Namespace != "default" {
		return true
	}
	page, err := v.admin().Namespaces().ListPage(v.ctx, admin.NamespaceFilter{}, pawltype.PageRequest{Limit: 2})
	return err == nil && len(page.Items) > 1
}

func chooseForm(v *visit) (*form, error) {
	chosen := "default"
	if me := v.who(); me != nil {
		chosen = me.Namespace
	}
	which := field{Name: "namespace", Label: "Namespace", Kind: "choice", Options: choices("", v.namespaces()...), Value: chosen}
	if len(which.Options) > maxListed {
		which.Kind, which.Value, which.Placeholder, which.Hint = "text", "", chosen, "Type a part of its name, and choose. The page of namespaces looks for names, too."
	}
	return &form{Title: "Namespace", Button: "Go there", Back: "/", Text: "Its pages have addresses of their own, below " + v.UI.base + spacePath + "NAME: they can be open beside those of others.",
		Fields: []field{which}}, nil
}

func doChoose(v *visit) (done, error) {
	namespace := v.value("namespace")
	if err := checkOwnName(namespace); err != nil {
		return done{}, err
	}
	if err := v.known(v.in(namespace)); err != nil {
		return done{}, err
	}
	v.base = v.baseOf(namespace)
	return done{Said: "These are the queues and tasks of " + namespace + ".", Next: "/"}, nil
}
