package ui

import (
	"encoding/json"
	"net"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

// caller describes how the visitor would call this server from a terminal: at what address, and as whom.
type caller struct {
	curl string // "curl" with its headers
	url  string // base URL of the API, up to /api/v1
	cli  string // flags of pawl, each preceded by a space
}

// who returns the visitor's identity; nil: the API could not be asked.
func (v *visit) who() *admin.Identity {
	if v.me == nil && v.client != nil {
		v.me, _ = v.admin().Access().WhoAmI(v.ctx)
	}
	return v.me
}

func (v *visit) caller() caller {
	secure := v.r.TLS != nil || v.r.Header.Get("X-Forwarded-Proto") == "https"
	c := caller{curl: "curl", url: "http://" + v.r.Host + v.UI.base}
	switch {
	case secure:
		c.url = "https://" + v.r.Host + v.UI.base
		c.cli = " --server " + format.ShellWord("https://"+v.r.Host)
	case !isDefaultServer(v.r.Host):
		c.cli = " --server " + format.ShellWord(v.r.Host)
	}
	me := v.who()
	if me == nil {
		return c
	}
	if me.TokenRequired && me.Certificate == "" {
		c.curl += ` -H "Authorization: Bearer $PAWL_TOKEN"`
	}
	if me.Namespace != "default" && (me.AllNamespaces || !me.TokenRequired) {
		c.curl += " -H " + format.ShellWord("Pawl-Namespace: "+me.Namespace)
		c.cli += " --namespace " + format.ShellWord(me.Namespace)
	}
	return c
}

// isDefaultServer reports whether the CLI calls this server by default.
func isDefaultServer(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != "7295" {
		return false
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// command returns a command line of the CLI.
func (c caller) command(line string) string { return line + c.cli }

// enqueue returns the call that enqueues a task.
func (c caller) enqueue(typ, queue string, payload json.RawMessage) (string, error) {
	body, err := json.Marshal(struct {
		Type    string          `json:"type"`
		Queue   string          `json:"queue,omitempty"`
		Payload json.RawMessage `json:"payload"`
	}{typ, queue, payload})
	return c.curl + " -d " + format.ShellWord(string(body)) + " " + format.ShellWord(c.url+"/api/v1/tasks"), err
}

// hello returns commands for a visitor who has not enqueued anything yet.
func (v *visit) hello() []form.Fact {
	c := v.caller()
	const payload = `{"to":"a@example.com"}`
	call, err := c.enqueue("mail.welcome", "mail", json.RawMessage(payload))
	if err != nil {
		call = ""
	}
	facts := []form.Fact{{Name: "", Value: c.command("pawl enqueue mail.welcome " + format.ShellWord(payload) + " --queue mail")}, {Name: "", Value: c.command("pawl work --type mail.welcome --queue mail --exec cat")}, {Name: "", Value: call}}
	if strings.Contains(c.curl, "PAWL_TOKEN") {
		facts = append([]form.Fact{{Name: "", Value: "read -rs PAWL_TOKEN; export PAWL_TOKEN"}}, facts...)
	}
	return facts
}

// as calls the API once as another visitor than the request's.
func (v *visit) as(who visitor.Visitor, call func(admin.Client) error) error {
	client, leave, err := v.visitors.Client(who)
	if err != nil {
		return err
	}
	defer leave()
	return call(admin.New(client).WithActor(who.Name))
}

// in returns the visitor in another namespace; "": that of the token.
func (v *visit) in(namespace string) visitor.Visitor {
	who := visitor.Of(v.r)
	who.Namespace = namespace
	return who
}

// known checks whether the API accepts a visitor.
func (v *visit) known(who visitor.Visitor) error {
	return v.as(who, func(a admin.Client) error {
		_, err := a.Access().WhoAmI(v.ctx)
		return err
	})
}
