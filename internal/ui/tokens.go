package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var tokenPages = []web.Page{{Path: "/tokens", Template: "tokens", Nav: "/tokens", Show: showTokens}}

var tokenActions = []web.Action{
	{Path: "/new-token", Nav: "/tokens", Form: newTokenForm, Do: doNewToken, Outlasting: true},
	{Path: "/tokens/{token}/rotate", Nav: "/tokens", Form: rotateForm, Do: doRotate, Outlasting: true},
	{Path: "/tokens/{token}/revoke", Nav: "/tokens", Form: revokeForm, Do: doRevoke},
}

const (
	// tokensLimit is the page size of the list.
	tokensLimit = 50
	// endsSoon is how long before its expiry a token is highlighted.
	endsSoon = 7 * 24 * time.Hour
)

// tokenRow is a token in a list.
type tokenRow struct {
	*admin.Token
	QueuePatterns string // queues for which it is valid
	State         string // "", "expired", "ends soon"
	Mine          bool
	Query         string // distinguishes it from a token of the same name in another namespace
}

type tokensView struct {
	Rows     []tokenRow
	Required bool // whether calls need one
	web.Names
	web.More
}

func showTokens(req *web.Request) (*web.Screen, error) {
	me, err := req.Admin().Access().WhoAmI(req.Ctx)
	if err != nil {
		return nil, err
	}
	view := &tokensView{Required: me.TokenRequired, Names: req.Names()}
	page, err := req.Admin().Access().ListTokensPage(req.Ctx, admin.TokenFilter{Pattern: req.Pattern()},
		pawltype.PageRequest{Limit: tokensLimit, Cursor: req.Query("cursor")})
	if err = view.Refuse(err); err != nil {
		return nil, err
	}
	view.More = req.MoreByName(page.NextCursor)
	for _, t := range page.Items {
		view.Rows = append(view.Rows, tokenRowOf(req, t, me))
	}
	return &web.Screen{Title: "Tokens", Data: view}, nil
}

func tokenRowOf(req *web.Request, t *admin.Token, me *admin.Identity) tokenRow {
	row := tokenRow{Token: t, QueuePatterns: orAny(t.Queues), Mine: me.TokenRequired && t.Name == me.Name &&
		(t.Namespace == admin.AllNamespaces) == me.AllNamespaces}
	if t.Namespace == admin.AllNamespaces {
		row.Query = "?all=yes"
	}
	switch left := t.ExpiresAt.Sub(req.Now); {
	case t.ExpiresAt.IsZero():
	case left <= 0:
		row.State = "expired"
	case left < endsSoon:
		row.State = "ends soon"
	}
	return row
}

// roleCheckboxes describe the roles.
var roleCheckboxes = []form.Checkbox{
	{Value: string(admin.RoleObserve), Hint: "read"},
	{Value: string(admin.RoleOperate), Hint: "observe, cancel, retry and pause; settings, schedules"},
	{Value: string(admin.RoleProduce), Hint: "enqueue"},
	{Value: string(admin.RoleConsume), Hint: "claim and settle tasks"},
	{Value: string(admin.RoleAdmin), Hint: "all of the above, and tokens"},
}

// lifeField asks how long a token is valid.
func lifeField() form.Field {
	return form.Field{Name: "expires_in", Label: "Valid for", Kind: "text", Placeholder: "90d", Hint: "At most 10 years, or never."}
}

func newTokenForm(req *web.Request) (*form.Form, error) {
	me, err := req.Admin().Access().WhoAmI(req.Ctx)
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "New token", Button: "Create token", Back: "/tokens",
		Text: "The token is shown once; Pawl keeps only its hash. It can do no more than you can.", Fields: []form.Field{
			{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "shop",
				Hint: "Letters, digits and . _ - : The audit log records actions under this name."},
			{Name: "roles", Label: "Roles", Kind: "ticks", Required: true, Checkboxes: slices.Clone(roleCheckboxes)},
			{Name: "queues", Label: "Queues", Kind: "text", Required: true,
				Hint: "Comma-separated names. * matches any characters: mail*, reports; * alone: all queues"},
			lifeField(),
		}}
	if me.AllNamespaces {
		f.Fields = append(f.Fields, form.Field{Name: "all_namespaces", Label: "Valid in all namespaces", Kind: "tick",
			Hint: "Otherwise only in " + me.Namespace + "."})
	}
	f.Fields = append(f.Fields, form.Reason())
	return f, nil
}

// readLife parses how long a token is valid; 0: the server's default.
func readLife(r *form.Reader, name string) time.Duration {
	if r.Text(name) == "never" {
		return admin.NeverExpires
	}
	return r.Duration(name)
}

func doNewToken(req *web.Request) (web.Done, error) {
	r := req.Reader()
	t := admin.TokenSpec{Name: r.Name("name"), Queues: r.Patterns("queues"), AllNamespaces: r.Text("all_namespaces") != "",
		Life: readLife(r, "expires_in")}
	for _, role := range req.HTTP.PostForm["roles"] {
		t.Roles = append(t.Roles, admin.Role(role))
	}
	if len(t.Roles) == 0 {
		r.Fail(format.BadField("roles", "select at least one"))
	}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	made, err := req.Admin().WithReason(r.Text("reason")).Access().CreateToken(req.Ctx, t)
	if err != nil {
		return web.Done{}, err
	}
	return shownOnce("Token "+made.Name, made), nil
}

// shownOnce shows the secret of a token that was created or rotated.
func shownOnce(title string, t *admin.NewToken) web.Done {
	once := &web.Secret{Title: title, Text: "Copy it now. It is not shown again.", Secret: t.Secret, Next: "/tokens", Commands: []form.Fact{
		{Name: "For commands", Value: "export PAWL_TOKEN=" + t.Secret}, {Name: "For REST", Value: "Authorization: Bearer " + t.Secret}}}
	if !t.OldUntil.IsZero() {
		once.Facts = append(once.Facts, form.Fact{Name: "Old secret valid until", Value: t.OldUntil.UTC().Format("2006-01-02 15:04 MST")})
	}
	if len(t.Unconfirmed) > 0 {
		once.Facts = append(once.Facts, form.Fact{Name: "Not yet confirmed by nodes", Value: strings.Join(t.Unconfirmed, ", ")})
	}
	return web.Done{Secret: once}
}

// tokenNameOf returns the token that a request is about.
func tokenNameOf(req *web.Request) admin.TokenName {
	return admin.TokenName{Name: req.PathValue("token"), AllNamespaces: req.Query("all") != ""}
}

// tokenForm adds a token's facts to the form of an action on it.
func tokenForm(req *web.Request, f *form.Form) (*form.Form, error) {
	t, err := req.Admin().Access().GetToken(req.Ctx, tokenNameOf(req))
	if err != nil {
		return nil, err
	}
	me, err := req.Admin().Access().WhoAmI(req.Ctx)
	if err != nil {
		return nil, err
	}
	row := tokenRowOf(req, t, me)
	roles := make([]string, len(t.Roles))
	for i, role := range t.Roles {
		roles[i] = string(role)
	}
	f.Title += " " + t.Name
	f.Back = "/tokens"
	f.Facts = []form.Fact{{Name: "Roles", Value: strings.Join(roles, ", ")}, {Name: "Queues", Value: row.QueuePatterns},
		{Name: "Last used", Value: agoText(t.UsedAt, req.Now)}}
	if row.Mine {
		f.Text += " You are logged in with this token, and will have to log in again."
	}
	return f, nil
}

func agoText(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return format.Ago(t, now).Text
}

func rotateForm(req *web.Request) (*form.Form, error) {
	return tokenForm(req, &form.Form{Title: "Rotate", Button: "Create new secret",
		Text: "Pawl creates a new secret and shows it once. The old one stays valid for a while.",
		Fields: []form.Field{{Name: "overlap", Label: "Keep the old one valid for", Kind: "text", Placeholder: "24h",
			Hint: "At most 30 days. 0s revokes it immediately."}, lifeField(), form.Reason()}})
}

func doRotate(req *web.Request) (web.Done, error) {
	r := req.Reader()
	how := admin.Rotation{Life: readLife(r, "expires_in")}
	if r.Text("overlap") != "" {
		overlap := r.Duration("overlap")
		how.Overlap = &overlap
	}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	made, err := req.Admin().WithReason(r.Text("reason")).Access().RotateToken(req.Ctx, tokenNameOf(req), how)
	if err != nil {
		return web.Done{}, err
	}
	return shownOnce("New secret of "+made.Name, made), nil
}

func revokeForm(req *web.Request) (*form.Form, error) {
	return tokenForm(req, &form.Form{Title: "Revoke", Danger: true, Button: "Revoke",
		Text:   "The token stops working immediately. Workers that use it lose their streams, and other workers claim their tasks.",
		Fields: []form.Field{form.Reason()}})
}

func doRevoke(req *web.Request) (web.Done, error) {
	behind, err := req.Admin().WithReason(req.Value("reason")).Access().RevokeToken(req.Ctx, tokenNameOf(req))
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: fmt.Sprintf("Revoked %s.", req.PathValue("token")) + unconfirmed(behind), Next: "/tokens"}, nil
}
