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
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/internal/ui/web"
)

var settingsPages = []web.Page{{Path: "/settings", Template: "settings", Nav: "/settings", Show: showSettings}}

var settingsActions = []web.Action{{Path: "/settings/you", Nav: "/settings", Form: youForm, Do: doYou}}

type settingsView struct {
	Server        *admin.Server
	Bounds        *admin.Limits
	Quotas        []quotaRow
	Limits        []form.Fact
	Me            *admin.Identity
	QueuePatterns string // queues for which the token is valid
	Theme         string
	Keys          string // "on", "off"
	Name          string
	Base          string
}

func showSettings(req *web.Request) (*web.Screen, error) {
	server, err := req.Admin().Cluster().Server(req.Ctx)
	if err != nil {
		return nil, err
	}
	me, err := req.Admin().Access().WhoAmI(req.Ctx)
	if err != nil {
		return nil, err
	}
	bounds, err := req.Admin().Namespaces().Limits(req.Ctx)
	if err != nil {
		return nil, err
	}
	theme := web.Theme(req.HTTP)
	if theme == "" {
		theme = "system"
	}
	req.Lacks(bounds.Missing)
	return &web.Screen{Title: "Settings", Data: settingsView{Server: server, Bounds: bounds,
		Quotas: quotaRows(&bounds.Quotas, bounds.Usage), Limits: limitFacts(bounds.Limits), Me: me, QueuePatterns: orAny(me.Queues),
		Theme: theme, Keys: keysWord(req.HTTP), Name: visitor.Name(req.HTTP), Base: req.Root()}}, nil
}

func keysWord(r *http.Request) string {
	if web.NoKeys(r) {
		return "off"
	}
	return "on"
}

// limitLabels names limits for which the API's name says too little.
var limitLabels = map[string]string{"payload": "task payload", "result": "task result", "name": "queue name, type, tag",
	"batch": "tasks per call", "body": "request body", "http_headers": "HTTP headers and URL", "error_text": "error message",
	"once_result": "result of a once key", "task_headers": "task headers", "tags": "tags per task", "attempts": "attempts per task",
	"delay": "longest delay", "page": "list entries per page", "wait": "longest wait of a call", "claim": "tasks per claim",
	"claim_bytes": "payload bytes per claim", "run": "longest run", "connections_per_address": "connections per address"}

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

func youForm(req *web.Request) (*form.Form, error) {
	return &form.Form{Title: "Preferences", Button: "Save", Back: "/settings", Text: "Stored in this browser only.", Fields: []form.Field{
		{Name: "name", Label: "Your name", Kind: "text", Value: visitor.Name(req.HTTP),
			Hint: "Recorded in the audit log with what you do. It is not verified."},
		{Name: "theme", Label: "Theme", Kind: "choice", Options: []form.Option{{Value: "", Label: "system"},
			{Value: "light", Label: "light"}, {Value: "dark", Label: "dark"}}, Value: web.Theme(req.HTTP)},
		{Name: "keys", Label: "Keyboard shortcuts", Kind: "choice", Options: form.Choices("", "on", "off"), Value: keysWord(req.HTTP),
			Hint: "Turn single-key shortcuts off if you use voice control."},
	}}, nil
}

func doYou(req *web.Request) (web.Done, error) {
	f, err := youForm(req)
	if err != nil {
		return web.Done{}, err
	}
	name, theme := req.Edits(f).Text("name"), req.Value("theme")
	if err := visitor.CheckName(name); err != nil {
		return web.Done{}, err
	}
	if theme != "" && theme != "light" && theme != "dark" {
		return web.Done{}, format.BadField("theme", "%q is neither light nor dark", format.Clip(theme, 20))
	}
	keys := req.Value("keys")
	if keys != "" && keys != "on" && keys != "off" {
		return web.Done{}, format.BadField("keys", "%q is neither on nor off", format.Clip(keys, 20))
	}
	req.KeepCookie(web.KeysCookie, strings.TrimPrefix(keys, "on"))
	req.KeepCookie(visitor.NameCookie, url.QueryEscape(name))
	req.KeepCookie(web.ThemeCookie, theme)
	return web.Done{Message: fmt.Sprintf("Saved. The audit log will record you as %q.", name), Next: "/settings"}, nil
}
