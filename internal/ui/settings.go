package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pawlq/pawl"
)

var settingsPages = []page{{path: "/settings", template: "settings", nav: "/settings", show: showSettings}}

var settingsActions = []action{{path: "/settings/you", nav: "/settings", form: youForm, do: doYou}}

// themeCookie holds "light" or "dark". A script sets it too.
const themeCookie = "pawl-theme"

// yearSeconds is how long choices of a visitor are kept.
const yearSeconds = 365 * 24 * 3600

func themeOf(r *http.Request) string {
	c, err := r.Cookie(themeCookie)
	if err != nil || c.Value != "light" && c.Value != "dark" {
		return ""
	}
	return c.Value
}

type settingsView struct {
	Server *pawl.ServerInfo
	Theme  string
	Name   string
	Base   string
}

func showSettings(v *visit) (*screen, error) {
	server, err := v.admin().Server(v.ctx)
	if err != nil {
		return nil, err
	}
	theme := themeOf(v.r)
	if theme == "" {
		theme = "as the system"
	}
	return &screen{Title: "Settings", Data: settingsView{Server: server, Theme: theme, Name: nameOf(v.r), Base: v.base}}, nil
}

func youForm(v *visit) (*form, error) {
	f := &form{Title: "You", Button: "Save", Back: "/settings", Text: "Kept in this browser.", Fields: []field{
		{Name: "name", Label: "Your name", Kind: "text", Value: nameOf(v.r), Hint: "The audit keeps it with what you do. Nobody checks it: it is what you call yourself."},
		{Name: "theme", Label: "Light or dark", Kind: "choice", Options: []option{{"", "as the system"}, {"light", "light"}, {"dark", "dark"}}, Value: themeOf(v.r)},
	}}
	if names := v.namespaces(); len(names) > 1 {
		f.Fields = append(f.Fields, field{Name: "namespace", Label: "Namespace", Kind: "choice", Options: choices("that of the token", names...), Value: textCookie(v.r, namespaceCookie),
			Hint: "Whose queues and tasks all pages show."})
	}
	return f, nil
}

// maxNamespaces is how many namespaces can be chosen from.
const maxNamespaces = 1000

// namespaces are those among which the visitor may choose: none, unless the token is good for all. One that is gone must not keep
// people from choosing another, so errors are no more than nothing to choose.
func (v *visit) namespaces() (names []string) {
	who := of(v.r)
	who.namespace = ""
	client, leave, err := v.visitors.client(who)
	if err != nil {
		return nil
	}
	defer leave()
	page, err := client.Admin().NamespacesPage(v.ctx, pawl.PageRequest{Limit: maxNamespaces})
	if err != nil {
		return nil
	}
	for _, n := range page.Items {
		names = append(names, n.Name)
	}
	return names
}

// checkOwnName refuses what the API would refuse as the name of who acts.
func checkOwnName(name string) error {
	const most = 256
	if len(name) > most {
		return badField("name", "%d bytes, at most %d are allowed", len(name), most)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return badField("name", "%q has other characters than letters, digits, signs and spaces of ASCII", clip(name, 60))
	}
	return nil
}

func doYou(v *visit) (done, error) {
	name, theme := v.value("name"), v.value("theme")
	if err := checkOwnName(name); err != nil {
		return done{}, err
	}
	if theme != "" && theme != "light" && theme != "dark" {
		return done{}, badField("theme", "%q is neither light nor dark", clip(theme, 20))
	}
	if namespace := v.value("namespace"); v.r.PostForm.Has("namespace") {
		if err := checkOwnName(namespace); err != nil {
			return done{}, err
		}
		v.keep(namespaceCookie, url.QueryEscape(namespace))
	}
	v.keep(nameCookie, url.QueryEscape(name))
	v.keep(themeCookie, theme)
	return done{Said: fmt.Sprintf("Saved. The audit calls you %q.", name), Next: "/settings"}, nil
}

// keep sets a cookie for long; "" takes it away.
func (v *visit) keep(name, value string) {
	age := yearSeconds
	if value == "" {
		age = -1
	}
	c := v.cookie(name, value, age)
	c.HttpOnly = name != themeCookie // which the switch sets
	http.SetCookie(v.w, c)
}
