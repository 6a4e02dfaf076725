package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

var settingsPages = []page{{path: "/settings", template: "settings", nav: "/settings", show: showSettings}}

var settingsActions = []action{{path: "/settings/you", nav: "/settings", form: youForm, do: doYou}}

// themeCookie holds "light" or "dark". A script sets it as well.
const themeCookie = "pawl-theme"

// keysCookie holds "off" if single-letter shortcuts are disabled, as speech input software requires.
const keysCookie = "pawl-keys"

func noKeys(r *http.Request) bool { return visitor.CookieText(r, keysCookie) == "off" }

// yearSeconds is how long a visitor's choices are kept.
const yearSeconds = 365 * 24 * 3600

func themeOf(r *http.Request) string {
	c, err := r.Cookie(themeCookie)
	if err != nil || c.Value != "light" && c.Value != "dark" {
		return ""
	}
	return c.Value
}

type settingsView struct {
	Server *admin.Server
	Bounds *admin.Limits
	Quotas []quotaRow
	Limits []form.Fact
	Me     *admin.Identity
	Good   string // queues for which the token is valid
	Theme  string
	Keys   string // "on", "off"
	Name   string
	Base   string
}

func showSettings(v *visit) (*screen, error) {
	server, err := v.admin().Cluster().Server(v.ctx)
	if err != nil {
		return nil, err
	}
	me, err := v.admin().Access().WhoAmI(v.ctx)
	if err != nil {
		return nil, err
	}
	bounds, err := v.admin().Namespaces().Limits(v.ctx)
	if err != nil {
		return nil, err
	}
	theme := themeOf(v.r)
	if theme == "" {
		theme = "system"
	}
	return &screen{Title: "Settings", Data: settingsView{Server: server, Bounds: bounds, Quotas: quotaRows(&bounds.Quotas, bounds.Usage), Limits: limitFacts(bounds.Limits), Me: me, Good: orAny(me.Queues), Theme: theme, Keys: keysWord(v.r), Name: visitor.Name(v.r), Base: v.UI.base}}, nil
}

func keysWord(r *http.Request) string {
	if noKeys(r) {
		return "off"
	}
	return "on"
}

// limitLabels names limits for which the API's name says too little.
var limitLabels = map[string]string{"payload": "task payload", "result": "task result", "name": "queue name, type, tag", "batch": "tasks per call", "body": "request body", "http_headers": "HTTP headers and URL",
	"error_text": "error message", "once_result": "result of a once key", "task_headers": "task headers", "tags": "tags per task", "attempts": "attempts per task", "delay": "longest delay",
	"page": "list entries per page", "wait": "longest wait of a call", "claim": "tasks per claim", "claim_bytes": "payload bytes per claim", "run": "longest run", "connections_per_address": "connections per address"}

// limitFacts describes limits in words.
func limitFacts(limits []admin.Limit) (facts []form.Fact) {
	for _, l := range limits {
		f := form.Fact{Name: strings.ReplaceAll(l.Name, "_", " "), Value: format.Number(l.Value) + " " + l.Unit}
		if label := limitLabels[l.Name]; label != "" {
			f.Name = label
		}
		switch l.Unit {
		case "bytes":
			f.Value = format.Size(l.Value)
		case "seconds":
			f.Value = format.Duration(time.Duration(l.Value) * time.Second)
		}
		facts = append(facts, f)
	}
	return facts
}

// orAny joins patterns of queues; none means any.
func orAny(queues []string) string {
	if len(queues) == 0 {
		return "all"
	}
	return strings.Join(queues, ", ")
}

func youForm(v *visit) (*form.Form, error) {
	return &form.Form{Title: "Preferences", Button: "Save", Back: "/settings", Text: "Stored in this browser only.", Fields: []form.Field{
		{Name: "name", Label: "Your name", Kind: "text", Value: visitor.Name(v.r), Hint: "Recorded in the audit log with what you do. It is not verified."},
		{Name: "theme", Label: "Theme", Kind: "choice", Options: []form.Option{{Value: "", Label: "system"}, {Value: "light", Label: "light"}, {Value: "dark", Label: "dark"}}, Value: themeOf(v.r)},
		{Name: "keys", Label: "Keyboard shortcuts", Kind: "choice", Options: form.Choices("", "on", "off"), Value: keysWord(v.r), Hint: "Turn single-key shortcuts off if you use voice control."},
	}}, nil
}

func doYou(v *visit) (done, error) {
	name, theme := v.value("name"), v.value("theme")
	if err := visitor.CheckName(name); err != nil {
		return done{}, err
	}
	if theme != "" && theme != "light" && theme != "dark" {
		return done{}, problem.BadField("theme", "%q is neither light nor dark", format.Clip(theme, 20))
	}
	keys := v.value("keys")
	if keys != "" && keys != "on" && keys != "off" {
		return done{}, problem.BadField("keys", "%q is neither on nor off", format.Clip(keys, 20))
	}
	v.keep(keysCookie, strings.TrimPrefix(keys, "on"))
	v.keep(visitor.NameCookie, url.QueryEscape(name))
	v.keep(themeCookie, theme)
	return done{Said: fmt.Sprintf("Saved. The audit log will record you as %q.", name), Next: "/settings"}, nil
}

// keep sets a long-lived cookie; "" deletes it.
func (v *visit) keep(name, value string) {
	age := yearSeconds
	if value == "" {
		age = -1
	}
	c := v.cookie(name, value, age)
	c.HttpOnly = name != themeCookie // the theme switch's script sets that one
	http.SetCookie(v.w, c)
}
