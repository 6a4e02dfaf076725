package ui

import (
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

var namespacePages = []page{{path: "/namespaces", template: "namespaces", nav: "/namespaces", show: showNamespaces}}

var namespaceActions = []action{
	{path: "/new-namespace", nav: "/namespaces", form: newNamespaceForm, do: doNewNamespace},
	{path: "/namespaces/choose", nav: "/namespaces", form: chooseForm, do: doChoose},
	{path: "/namespaces/{namespace}/quotas", nav: "/namespaces", form: quotasForm, do: doQuotas},
	{path: "/namespaces/{namespace}/remove", nav: "/namespaces", form: removeNamespaceForm, do: doRemoveNamespace},
}

// maxNamespaces is the maximum number of namespaces to choose from, namespacesLimit the page size of the list.
const (
	maxNamespaces   = 1000
	namespacesLimit = 40
	// maxListed is the maximum number of namespaces in a drop-down list; with more, the name is typed.
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
	URL  string // URL of its pages
	Here bool   // it is the one being shown
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
		view.Rows = append(view.Rows, namespaceRow{n, visitor.BasePath(v.UI.base, n.Name) + "/", n.Name == me.Namespace, quotaRows(&n.Quotas, n.Usage)})
	}
	return &screen{Title: "Namespaces", Data: view}, nil
}

func newNamespaceForm(*visit) (*form.Form, error) {
	return &form.Form{Title: "New namespace", Button: "Create namespace", Back: "/namespaces", Text: "A namespace has its own queues, tasks, schedules, groups, operations, workers, tokens and audit log. Nothing in it is visible from another namespace.",
		Fields: []form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "team-a", Hint: "Lower-case letters, digits and -"}, form.Reason()}}, nil
}

func doNewNamespace(v *visit) (done, error) {
	behind, err := v.admin().WithReason(v.value("reason")).Namespaces().Create(v.ctx, v.value("name"), admin.QuotaChange{})
	if err != nil {
		return done{}, err
	}
	return done{Said: "Created namespace " + v.value("name") + "." + unconfirmed(behind), Next: "/namespaces"}, nil
}

// unconfirmed names the nodes that have not confirmed a change.
func unconfirmed(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	return " Not confirmed within a second by nodes " + strings.Join(nodes, ", ") + "."
}

func removeNamespaceForm(v *visit) (*form.Form, error) {
	name := v.r.PathValue("namespace")
	return &form.Form{Title: "Remove " + format.Clip(name, 60), Danger: true, Button: "Remove namespace", Back: "/namespaces", Text: "A namespace can be removed only when it has no queues, schedules or tokens. Its ended tasks are deleted too; the audit log stays.",
		Fields: []form.Field{{Name: "confirm", Label: "Type its name to confirm", Kind: "text", Placeholder: name, Required: true}, form.Reason()}}, nil
}

func doRemoveNamespace(v *visit) (done, error) {
	name := v.r.PathValue("namespace")
	if v.value("confirm") != name {
		return done{}, problem.BadField("confirm", "does not match the name of the namespace, %q", name)
	}
	behind, err := v.admin().WithReason(v.value("reason")).Namespaces().Delete(v.ctx, name)
	if err != nil {
		return done{}, err
	}
	if name == visitor.Namespace(v.r) {
		v.base = v.UI.base // the pages of the deleted namespace no longer exist
	}
	return done{Said: "Removed namespace " + name + "." + unconfirmed(behind), Next: "/namespaces"}, nil
}

// namespaces returns the namespaces that the visitor can choose from, also while in one that no longer exists. There are none unless the token is
// valid for all. It ignores errors.
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

// several reports whether there is more than one to choose from.
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

func chooseForm(v *visit) (*form.Form, error) {
	chosen := "default"
	if me := v.who(); me != nil {
		chosen = me.Namespace
	}
	which := form.Field{Name: "namespace", Label: "Namespace", Kind: "choice", Options: form.Choices("", v.namespaces()...), Value: chosen}
	if len(which.Options) > maxListed {
		which.Kind, which.Value, which.Placeholder, which.Hint = "text", "", chosen, "Type part of the name, then choose. You can also search on the Namespaces page."
	}
	return &form.Form{Title: "Namespace", Button: "Switch", Back: "/", Text: "The pages of a namespace are below " + v.UI.base + visitor.NamespacePath + "NAME, so you can keep several namespaces open at once.",
		Fields: []form.Field{which}}, nil
}

func doChoose(v *visit) (done, error) {
	namespace := v.value("namespace")
	if err := visitor.CheckName(namespace); err != nil {
		return done{}, err
	}
	if err := v.known(v.in(namespace)); err != nil {
		return done{}, err
	}
	v.base = visitor.BasePath(v.UI.base, namespace)
	return done{Said: "Now showing namespace " + namespace + ".", Next: "/"}, nil
}
