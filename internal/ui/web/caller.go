package web

import (
	"encoding/json"
	"net"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

// Caller describes how the visitor would call this server from a terminal: at what address, and as whom.
type Caller struct {
	Curl string   // "curl" with its headers
	URL  string   // base URL of the API, up to /api/v1
	CLI  []string // flags of pawl
}

// Identity returns the visitor's identity; nil: the API could not be asked.
func (req *Request) Identity() *admin.Identity {
	if req.me == nil && req.Client != nil {
		req.me, _ = req.Admin().Access().WhoAmI(req.Ctx)
	}
	return req.me
}

// Caller returns how the visitor would call this server.
func (req *Request) Caller() Caller {
	secure := req.HTTP.TLS != nil || req.HTTP.Header.Get("X-Forwarded-Proto") == "https"
	c := Caller{Curl: "curl", URL: "http://" + req.HTTP.Host + req.server.base}
	switch {
	case secure:
		c.URL = "https://" + req.HTTP.Host + req.server.base
		c.CLI = []string{"--server=https://" + req.HTTP.Host}
	case !isDefaultServer(req.HTTP.Host):
		c.CLI = []string{"--server=" + req.HTTP.Host}
	}
	me := req.Identity()
	if me == nil {
		return c
	}
	if me.TokenRequired && me.Certificate == "" {
		c.Curl += ` -H "Authorization: Bearer $PAWL_TOKEN"`
	}
	if me.Namespace != "default" && (me.AllNamespaces || !me.TokenRequired) {
		c.Curl += " -H " + humanize.ShellWord("Pawl-Namespace: "+me.Namespace)
		c.CLI = append(c.CLI, "--namespace="+me.Namespace)
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

// Command returns a command line of the CLI, as humanize.Command does.
func (c Caller) Command(verb string, args []string, flags ...string) string {
	return humanize.Command(verb, args, append(flags, c.CLI...)...)
}

// Enqueue returns the call that enqueues a task.
func (c Caller) Enqueue(typ, queue string, payload json.RawMessage) (string, error) {
	body, err := json.Marshal(struct {
		Type    string          `json:"type"`
		Queue   string          `json:"queue,omitempty"`
		Payload json.RawMessage `json:"payload"`
	}{typ, queue, payload})
	return c.Curl + " -d " + humanize.ShellWord(string(body)) + " " + humanize.ShellWord(c.URL+"/api/v1/tasks"), err
}

// GettingStarted returns commands for a visitor who has not enqueued anything yet.
func (req *Request) GettingStarted() []form.Fact {
	c := req.Caller()
	const payload = `{"to":"a@example.com"}`
	call, err := c.Enqueue("mail.welcome", "mail", json.RawMessage(payload))
	if err != nil {
		call = ""
	}
	facts := []form.Fact{{Value: c.Command("enqueue", []string{"mail.welcome", payload}, "--queue=mail")},
		{Value: c.Command("work", nil, "--type=mail.welcome", "--queue=mail", "--exec=cat")}, {Value: call}}
	if strings.Contains(c.Curl, "PAWL_TOKEN") {
		facts = append([]form.Fact{{Value: "read -rs PAWL_TOKEN; export PAWL_TOKEN"}}, facts...)
	}
	return facts
}

// As calls the API once as another visitor than the request's.
func (req *Request) As(who visitor.Visitor, call func(admin.Client) error) error {
	client, leave, err := req.server.clients.Client(who)
	if err != nil {
		return err
	}
	defer leave()
	return call(admin.New(client).WithActor(who.Name))
}

// Visitor returns the visitor in another namespace; "": that of the token.
func (req *Request) Visitor(namespace string) visitor.Visitor {
	who := visitor.Of(req.HTTP)
	who.Namespace = namespace
	return who
}

// CheckVisitor checks whether the API accepts a visitor.
func (req *Request) CheckVisitor(who visitor.Visitor) (me *admin.Identity, err error) {
	err = req.As(who, func(a admin.Client) (err error) {
		me, err = a.Access().WhoAmI(req.Ctx)
		return err
	})
	return me, err
}
