package ui

import (
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var namespacePages = []web.Page{{Path: "/namespaces", Template: "namespaces", Nav: "/namespaces", Show: showNamespaces}}

var namespaceActions = []web.Action{
	{Path: "/new-namespace", Nav: "/namespaces", Form: newNamespaceForm, Do: doNewNamespace},
	{Path: "/namespaces/choose", Nav: "/namespaces", Form: chooseForm, Do: doChoose},
	{Path: "/namespaces/{namespace}/quotas", Nav: "/namespaces", Form: quotasForm, Do: doQuotas},
	{Path: "/namespaces/{namespace}/remove", Nav: "/namespaces", Form: removeNamespaceForm, Do: doRemoveNamespace},
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
	web.Names
	web.More
}

// namespaceRow is a namespace in a list.
type namespaceRow struct {
	*admin.Namespace
	URL  string // URL of its pages
	Here bool   // it is the one being shown
	Rows []quotaRow
}

func showNamespaces(req *web.Request) (*web.Screen, error) {
	me, err := req.Admin().Access().WhoAmI(req.Ctx)
	if err != nil {
		return nil, err
	}
	view := &namespacesView{Names: req.Names()}
	page, err := req.Admin().Namespaces().ListPage(req.Ctx, admin.NamespaceFilter{Pattern: req.Pattern()},
		pawltype.PageRequest{Limit: namespacesLimit, Cursor: req.Query("cursor")})
	if err = view.Refuse(err); err != nil {
		return nil, err
	}
	view.More = req.MoreByName(page.NextCursor)
	for _, n := range page.Items {
		req.Lacks(n.Missing)
		view.Rows = append(view.Rows, namespaceRow{n, visitor.BasePath(req.Root(), n.Name) + "/", n.Name == me.Namespace,
			quotaRows(&n.Quotas, n.Usage)})
	}
	return &web.Screen{Title: "Namespaces", Data: view}, nil
}

func newNamespaceForm(*web.Request) (*form.Form, error) {
	return &form.Form{Title: "New namespace", Button: "Create namespace", Back: "/namespaces",
		Text: "A namespace has its own queues, tasks, schedules, groups, operations, workers, tokens and audit log. Nothing in " +
			"it is visible from another namespace.", Fields: []form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true,
			Placeholder: "team-a", Hint: "Lower-case letters, digits and -"}, form.Reason()}}, nil
}

func doNewNamespace(req *web.Request) (web.Done, error) {
	behind, err := req.Admin().WithReason(req.Value("reason")).Namespaces().Create(req.Ctx, req.Value("name"), admin.QuotaChange{})
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Created namespace " + req.Value("name") + "." + unconfirmed(behind), Next: "/namespaces"}, nil
}

// unconfirmed names the nodes that have not confirmed a change.
func unconfirmed(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	return " Not confirmed within a second by nodes " + strings.Join(nodes, ", ") + "."
}

func removeNamespaceForm(req *web.Request) (*form.Form, error) {
	name := req.PathValue("namespace")
	return &form.Form{Title: "Remove " + format.Clip(name, 60), Danger: true, Button: "Remove namespace", Back: "/namespaces",
		Text: "A namespace can be removed only when it has no queues, schedules or tokens. Its ended tasks are deleted too; the " +
			"audit log stays.",
		Fields: []form.Field{{Name: "confirm", Label: "Type its name to confirm", Kind: "text", Placeholder: name, Required: true},
			form.Reason()}}, nil
}

func doRemoveNamespace(req *web.Request) (web.Done, error) {
	name := req.PathValue("namespace")
	if req.Value("confirm") != name {
		return web.Done{}, format.BadField("confirm", "does not match the name of the namespace, %q", name)
	}
	behind, err := req.Admin().WithReason(req.Value("reason")).Namespaces().Delete(req.Ctx, name)
	if err != nil {
		return web.Done{}, err
	}
	if name == visitor.Namespace(req.HTTP) {
		req.SwitchTo("") // the pages of the deleted namespace no longer exist
	}
	return web.Done{Message: "Removed namespace " + name + "." + unconfirmed(behind), Next: "/namespaces"}, nil
}

// namespaceNames returns the namespaces that the visitor can choose from, also while in one that no longer exists.
// There are none unless the token is valid for all. It ignores errors.
func namespaceNames(req *web.Request) (names []string) {
	_ = req.As(req.Visitor(""), func(a admin.Client) error {
		page, err := a.Namespaces().ListPage(req.Ctx, admin.NamespaceFilter{}, pawltype.PageRequest{Limit: maxNamespaces})
		for _, n := range page.Items {
			names = append(names, n.Name)
		}
		return err
	})
	return names
}

func chooseForm(req *web.Request) (*form.Form, error) {
	chosen := "default"
	if me := req.Identity(); me != nil {
		chosen = me.Namespace
	}
	which := form.Field{Name: "namespace", Label: "Namespace", Kind: "choice", Options: form.Choices("", namespaceNames(req)...),
		Value: chosen}
	if len(which.Options) > maxListed {
		which.Kind, which.Value, which.Placeholder, which.Hint = "text", "", chosen,
			"Type part of the name, then choose. You can also search on the Namespaces page."
	}
	return &form.Form{Title: "Namespace", Button: "Switch", Back: "/", Text: "The pages of a namespace are below " + req.Root() +
		visitor.NamespacePath + "NAME, so you can keep several namespaces open at once.",
		Fields: []form.Field{which}}, nil
}

func doChoose(req *web.Request) (web.Done, error) {
	namespace := req.Value("namespace")
	if err := visitor.CheckName(namespace); err != nil {
		return web.Done{}, err
	}
	if _, err := req.CheckVisitor(req.Visitor(namespace)); err != nil {
		return web.Done{}, err
	}
	req.SwitchTo(namespace)
	return web.Done{Message: "Now showing namespace " + namespace + ".", Next: "/"}, nil
}
