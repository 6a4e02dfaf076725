package conformance

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
)

// accessCalls are the calls on tokens, namespaces, webhooks and markers, whose answers have no shard stamp.
var accessCalls = regexp.MustCompile(` /(tokens|namespaces|me|webhooks|markers)\b|(Token|Tokens|Namespace|Namespaces|WhoAmI|Webhook|` +
	`Webhooks|WebhookSecret|WebhookDeliveries|Marker|Markers)Request$`)

// keyInfo is a token as the API shows it.
type keyInfo struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	Roles     []string  `json:"roles"`
	Queues    []string  `json:"queues"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	RotatedAt time.Time `json:"rotated_at"`
	OldUntil  time.Time `json:"old_until"`
	UsedAt    time.Time `json:"used_at"`
}

// newKey is a token that was created or rotated.
type newKey struct {
	Token       keyInfo  `json:"token"`
	Secret      string   `json:"secret"`
	Unconfirmed []string `json:"unconfirmed_nodes"`
}

type keySpec struct {
	Name    string   `json:"name"`
	Roles   []string `json:"roles"`
	Queues  []string `json:"queues,omitempty"`
	Expires span     `json:"expires_in,omitempty"`
	Request string   `json:"request_id,omitempty"`
}

type identity struct {
	Required  bool      `json:"token_required"`
	Name      string    `json:"name"`
	Roles     []string  `json:"roles"`
	Namespace string    `json:"namespace"`
	All       bool      `json:"all_namespaces"`
	Queues    []string  `json:"queues"`
	ExpiresAt time.Time `json:"expires_at"`
}

type accessAPI interface {
	WhoAmI(ctx context.Context) (identity, error)
	AddKey(ctx context.Context, k keySpec) (newKey, error)
	RotateKey(ctx context.Context, name string, overlap span, request string) (newKey, error)
	RevokeKey(ctx context.Context, name string) error
	Key(ctx context.Context, name string) (keyInfo, error)
	Keys(ctx context.Context, pattern string) ([]keyInfo, error)
	AddSpace(ctx context.Context, name string) error
	RemoveSpace(ctx context.Context, name string) error
	Spaces(ctx context.Context, pattern string) ([]string, error)
}

func (w *world) keys() accessAPI { return w.api.(accessAPI) }

func (w *world) keyNames() string { return w.keysLike("") }

func (w *world) keysLike(pattern string) string {
	w.Helper()
	var names []string
	for _, k := range ok[[]keyInfo](w)(w.keys().Keys(w.ctx(), pattern)) {
		names = append(names, k.Name)
	}
	return strings.Join(names, " ")
}

func TestAccess(t *testing.T) {
	tellAll(t, []story{
		ofTheGateway(story{name: "without authentication every caller is an admin", tell: func(w *world) {
			me := ok[identity](w)(w.keys().WhoAmI(w.ctx()))
			is(w, "who", []any{me.Required, me.Name, me.Namespace, me.All, len(me.Queues), slices.Contains(me.Roles, "admin")},
				[]any{false, "", "default", true, 0, true})
		}}),
		ofTheGateway(story{name: "a token is created, shown, listed, rotated and revoked", tell: func(w *world) {
			made := ok[newKey](w)(w.keys().AddKey(w.ctx(), keySpec{Name: "shop", Roles: []string{"produce", "observe"},
				Queues: []string{"mail",
					"shop-*"}, Expires: 30 * day}))
			is(w, "the token", []any{made.Token.Name, made.Token.Namespace, made.Token.Roles, made.Token.Queues, made.Token.CreatedBy},
				[]any{"shop", "default", []string{"produce", "observe"}, []string{"mail", "shop-*"}, actor})
			is(w, "its life", made.Token.ExpiresAt.Sub(made.Token.CreatedAt), 30*day.std())
			is(w, "the secret, and who does not know of it", []any{len(made.Secret) > 40, len(made.Unconfirmed)}, []any{true, 0})
			is(w, "as it is shown", ok[keyInfo](w)(w.keys().Key(w.ctx(), "shop")), made.Token)
			ok[newKey](w)(w.keys().AddKey(w.ctx(), keySpec{Name: "ops", Roles: []string{"operate"}, Queues: []string{"*"}}))
			is(w, "the list", w.keyNames(), "ops shop")
			w.pass(hour)
			turned := ok[newKey](w)(w.keys().RotateKey(w.ctx(), "shop", 2*hour, ""))
			is(w, "another secret", turned.Secret != made.Secret && len(turned.Secret) > 40, true)
			is(w, "how long the old one is good", turned.Token.OldUntil.Sub(turned.Token.RotatedAt), 2*hour.std())
			is(w, "its roles", turned.Token.Roles, made.Token.Roles)
			w.done(w.keys().RevokeKey(w.ctx(), "shop"))
			is(w, "the list after", w.keyNames(), "ops")
			_, err := w.keys().Key(w.ctx(), "shop")
			w.refused("one that was revoked", err, refusal{Code: "not_found"})
			_, err = w.keys().RotateKey(w.ctx(), "shop", hour, "")
			w.refused("a rotation of it", err, refusal{Code: "not_found"})
			w.refused("a second revocation", w.keys().RevokeKey(w.ctx(), "shop"), refusal{Code: "not_found"})
		}}),
		ofTheGateway(story{name: "a repeated create or rotate whose answer was lost returns a new secret", tell: func(w *world) {
			const first, again, other = "019c0000-0000-7000-8000-000000000001", "019c0000-0000-7000-8000-000000000002",
				"019c0000-0000-7000-8000-000000000003"
			k := keySpec{Name: "shop", Roles: []string{"produce"}, Queues: []string{"*"}, Request: first}
			lost := ok[newKey](w)(w.keys().AddKey(w.ctx(), k))
			w.pass(second)
			made := ok[newKey](w)(w.keys().AddKey(w.ctx(), k))
			is(w, "another secret, of the same token", []any{made.Secret != lost.Secret, made.Token.CreatedAt, made.Token.RotatedAt,
				made.Token.OldUntil},
				[]any{true, lost.Token.CreatedAt, w.now(), time.Time{}})
			is(w, "which ones are good", w.good(lost, made), []bool{false, true})
			taken := refusal{Code: "conflict"}
			for what, bad := range map[string]keySpec{
				"with another role":       {Name: "shop", Roles: []string{"observe"}, Queues: []string{"*"}, Request: first},
				"under another id":        {Name: "shop", Roles: []string{"produce"}, Queues: []string{"*"}, Request: other},
				"without an id":           {Name: "shop", Roles: []string{"produce"}, Queues: []string{"*"}},
				"with another expires_in": {Name: "shop", Roles: []string{"produce"}, Queues: []string{"*"}, Request: first, Expires: hour},
			} {
				_, err := w.keys().AddKey(w.ctx(), bad)
				w.refused(what, err, taken)
			}
			w.pass(second)
			gone := ok[newKey](w)(w.keys().RotateKey(w.ctx(), "shop", 2*hour, again))
			w.pass(minute)
			turned := ok[newKey](w)(w.keys().RotateKey(w.ctx(), "shop", 2*hour, again))
			is(w, "until when the one before is good", turned.Token.OldUntil, gone.Token.OldUntil)
			is(w, "which ones are good", w.good(lost, made, gone, turned), []bool{false, true, false, true})
			_, err := w.keys().RotateKey(w.ctx(), "shop", hour, again)
			w.refused("with another overlap", err, taken)
			_, err = w.keys().AddKey(w.ctx(), k)
			w.refused("a repeat of the first request, after a rotation", err, taken)
			w.pass(11 * minute)
			_, err = w.keys().RotateKey(w.ctx(), "shop", 2*hour, again)
			w.refused("a repeat that comes too late", err, taken)
			_, err = w.keys().RotateKey(w.ctx(), "shop", 2*hour, "shop")
			w.refused("an id that is none", err, refusal{Code: "invalid_argument", Field: "request_id"})
			is(w, "which ones are good", w.good(made, turned), []bool{true, true})
			is(w, "the audit", w.audited(), []string{"token.add", "token.rotate", "token.rotate", "token.rotate"})
		}}),
		ofTheGateway(story{name: "an invalid token is refused and not created", tell: func(w *world) {
			for what, c := range map[string]struct {
				spec  keySpec
				field string
			}{
				"no name":         {keySpec{Roles: []string{"produce"}, Queues: []string{"*"}}, "name"},
				"an odd name":     {keySpec{Name: "a b", Roles: []string{"produce"}, Queues: []string{"*"}}, "name"},
				"no role":         {keySpec{Name: "a"}, "roles"},
				"an unknown role": {keySpec{Name: "a", Roles: []string{"king"}, Queues: []string{"*"}}, "roles"},
				"a life too long": {keySpec{Name: "a", Roles: []string{"produce"}, Queues: []string{"*"}, Expires: 4000 * day},
					"expires_in"},
				"no queues": {keySpec{Name: "a", Roles: []string{"produce"}}, "queues"},
			} {
				_, err := w.keys().AddKey(w.ctx(), c.spec)
				w.refused(what, err, refusal{Code: "invalid_argument", Field: c.field})
			}
			ok[newKey](w)(w.keys().AddKey(w.ctx(), keySpec{Name: "a", Roles: []string{"produce"}, Queues: []string{"*"}}))
			_, err := w.keys().AddKey(w.ctx(), keySpec{Name: "a", Roles: []string{"observe"}, Queues: []string{"*"}})
			w.refused("a name that is taken", err, refusal{Code: "conflict"})
			is(w, "what there is", w.keyNames(), "a")
			ok[newKey](w)(w.keys().AddKey(w.ctx(), keySpec{Name: "shop.eu", Roles: []string{"produce"}, Queues: []string{"*"}}))
			ok[newKey](w)(w.keys().AddKey(w.ctx(), keySpec{Name: "shop.us", Roles: []string{"produce"}, Queues: []string{"*"}}))
			for pattern, want := range map[string]string{"shop.*": "shop.eu shop.us", "*.us": "shop.us", "a": "a", "shop": "",
				"*": "a shop.eu shop.us"} {
				is(w, "those like "+pattern, w.keysLike(pattern), want)
			}
			_, err = w.keys().Keys(w.ctx(), "shop us")
			w.refused("no pattern", err, refusal{Code: "invalid_argument", Field: "pattern"})
		}}),
		ofTheGateway(story{name: "namespaces are created and deleted", tell: func(w *world) {
			is(w, "at first", ok[[]string](w)(w.keys().Spaces(w.ctx(), "")), []string{"default"})
			w.done(w.keys().AddSpace(w.ctx(), "team-a"))
			is(w, "with another", ok[[]string](w)(w.keys().Spaces(w.ctx(), "")), []string{"default", "team-a"})
			is(w, "those like a pattern", ok[[]string](w)(w.keys().Spaces(w.ctx(), "team-*")), []string{"team-a"})
			_, err := w.keys().Spaces(w.ctx(), "*********")
			w.refused("too many stars", err, refusal{Code: "invalid_argument", Field: "pattern"})
			w.done(w.keys().AddSpace(w.ctx(), "team-a")) // a repeat
			is(w, "still", ok[[]string](w)(w.keys().Spaces(w.ctx(), "")), []string{"default", "team-a"})
			w.refused("a bad name", w.keys().AddSpace(w.ctx(), "Team A"), refusal{Code: "invalid_argument", Field: "name"})
			w.refused("one that is not there", w.keys().RemoveSpace(w.ctx(), "team-b"), refusal{Code: "not_found"})
			w.done(w.keys().RemoveSpace(w.ctx(), "team-a"))
			is(w, "after", ok[[]string](w)(w.keys().Spaces(w.ctx(), "")), []string{"default"})
		}}),
	})
}

// good reports which secrets are accepted.
func (w *world) good(keys ...newKey) (good []bool) {
	w.Helper()
	all := ok[[]auth.Token](w)(w.testNode.control.Tokens.List(w.ctx(), auth.Everything))
	for _, k := range keys {
		hash := auth.HashOf(k.Secret)
		good = append(good, slices.ContainsFunc(all, func(t auth.Token) bool {
			return t.Hash == hash || t.OldHash == hash && t.OldUntil.Time().After(w.now())
		}))
	}
	return good
}

// done checks that a call whose answer has no content was not refused.
func (w *world) done(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (d *rest) WhoAmI(ctx context.Context) (me identity, err error) {
	return me, d.query(ctx, "GET", "/me", nil, &me)
}
func (d *rest) AddKey(ctx context.Context, k keySpec) (made newKey, err error) {
	return made, d.call(ctx, "POST", "/tokens", k, &made)
}
func (d *rest) RotateKey(ctx context.Context, name string, overlap span, request string) (made newKey, err error) {
	return made, d.call(ctx, "POST", "/tokens/"+name+"/rotate", fields{"overlap": overlap}.with(request != "", "request_id", request),
		&made)
}
func (d *rest) RevokeKey(ctx context.Context, name string) error {
	return d.query(ctx, "DELETE", "/tokens/"+name, nil, &map[string]any{})
}
func (d *rest) Key(ctx context.Context, name string) (k keyInfo, err error) {
	return k, d.query(ctx, "GET", "/tokens/"+name, nil, &k)
}
func (d *rest) Keys(ctx context.Context, pattern string) ([]keyInfo, error) {
	var list struct {
		Items []keyInfo `json:"items"`
		Next  string    `json:"next_cursor"`
	}
	return list.Items, d.query(ctx, "GET", "/tokens", patternQuery(pattern), &list)
}

// patternQuery asks for the names that match a pattern.
func patternQuery(pattern string) url.Values {
	if pattern == "" {
		return nil
	}
	return url.Values{"pattern": {pattern}}
}

func (d *rest) AddSpace(ctx context.Context, name string) error {
	return d.call(ctx, "POST", "/namespaces", fields{"name": name}, &map[string]any{})
}
func (d *rest) RemoveSpace(ctx context.Context, name string) error {
	return d.query(ctx, "DELETE", "/namespaces/"+name, nil, &map[string]any{})
}
func (d *rest) Spaces(ctx context.Context, pattern string) (names []string, err error) {
	var list struct {
		Items []map[string]any `json:"items"`
		Next  string           `json:"next_cursor"`
	}
	err = d.query(ctx, "GET", "/namespaces", patternQuery(pattern), &list)
	for _, n := range list.Items {
		names = append(names, n["name"].(string))
	}
	return names, err
}

func (d *rpc) WhoAmI(ctx context.Context) (identity, error) {
	p, err := ask(ctx, d.access.WhoAmI, &pawlv1.WhoAmIRequest{})
	return identity{p.GetTokenRequired(), p.GetName(), p.GetRoles(), p.GetNamespace(), p.GetAllNamespaces(), p.GetQueues(),
		timeOf(p.GetExpiresAt())}, err
}
func (d *rpc) AddKey(ctx context.Context, k keySpec) (newKey, error) {
	p, err := ask(ctx, d.access.AddToken, &pawlv1.AddTokenRequest{Name: k.Name, Roles: k.Roles, Queues: k.Queues,
		ExpiresIn: spanProto(k.Expires), RequestId: text(k.Request)})
	return newKey{keyProto(p.GetToken()), p.GetSecret(), p.GetUnconfirmedNodes()}, err
}
func (d *rpc) RotateKey(ctx context.Context, name string, overlap span, request string) (newKey, error) {
	p, err := ask(ctx, d.access.RotateToken, &pawlv1.RotateTokenRequest{Name: name, Overlap: durationpb.New(overlap.std()),
		RequestId: text(request)})
	return newKey{keyProto(p.GetToken()), p.GetSecret(), p.GetUnconfirmedNodes()}, err
}
func (d *rpc) RevokeKey(ctx context.Context, name string) error {
	_, err := ask(ctx, d.access.RevokeToken, &pawlv1.RevokeTokenRequest{Name: name})
	return err
}
func (d *rpc) Key(ctx context.Context, name string) (keyInfo, error) {
	p, err := ask(ctx, d.access.GetToken, &pawlv1.GetTokenRequest{Name: name})
	return keyProto(p.GetToken()), err
}
func (d *rpc) Keys(ctx context.Context, pattern string) (all []keyInfo, err error) {
	p, err := ask(ctx, d.access.ListTokens, &pawlv1.ListTokensRequest{Pattern: text(pattern)})
	for _, t := range p.GetItems() {
		all = append(all, keyProto(t))
	}
	return all, err
}
func (d *rpc) AddSpace(ctx context.Context, name string) error {
	_, err := ask(ctx, d.access.AddNamespace, &pawlv1.AddNamespaceRequest{Name: name})
	return err
}
func (d *rpc) RemoveSpace(ctx context.Context, name string) error {
	_, err := ask(ctx, d.access.RemoveNamespace, &pawlv1.RemoveNamespaceRequest{Name: name})
	return err
}
func (d *rpc) Spaces(ctx context.Context, pattern string) (names []string, err error) {
	p, err := ask(ctx, d.access.ListNamespaces, &pawlv1.ListNamespacesRequest{Pattern: text(pattern)})
	for _, n := range p.GetItems() {
		names = append(names, n.GetName())
	}
	return names, err
}

func keyProto(p *pawlv1.Token) keyInfo {
	return keyInfo{p.GetName(), p.GetNamespace(), p.GetRoles(), p.GetQueues(), p.GetCreatedBy(), timeOf(p.GetCreatedAt()),
		timeOf(p.GetExpiresAt()), timeOf(p.GetRotatedAt()), timeOf(p.GetOldUntil()), timeOf(p.GetUsedAt())}
}

func (d *sdk) WhoAmI(ctx context.Context) (identity, error) {
	me, err := d.admin().Access().WhoAmI(ctx)
	if err != nil {
		return identity{}, refusedBySDK(err)
	}
	return identity{me.TokenRequired, me.Name, rolesText(me.Roles), me.Namespace, me.AllNamespaces, me.Queues, me.ExpiresAt}, nil
}
func (d *sdk) AddKey(ctx context.Context, k keySpec) (newKey, error) {
	spec := admin.TokenSpec{Name: k.Name, Queues: k.Queues, Life: k.Expires.std(), RequestID: k.Request}
	for _, r := range k.Roles {
		spec.Roles = append(spec.Roles, admin.Role(r))
	}
	return newKeySDK(d.admin().Access().CreateToken(ctx, spec))
}
func (d *sdk) RotateKey(ctx context.Context, name string, overlap span, request string) (newKey, error) {
	over := overlap.std()
	return newKeySDK(d.admin().Access().RotateToken(ctx, admin.TokenName{Name: name}, admin.Rotation{Overlap: &over, RequestID: request}))
}
func (d *sdk) RevokeKey(ctx context.Context, name string) error {
	_, err := d.admin().Access().RevokeToken(ctx, admin.TokenName{Name: name})
	return refusedBySDK(err)
}
func (d *sdk) Key(ctx context.Context, name string) (keyInfo, error) {
	t, err := d.admin().Access().GetToken(ctx, admin.TokenName{Name: name})
	if err != nil {
		return keyInfo{}, refusedBySDK(err)
	}
	return keySDK(t), nil
}
func (d *sdk) Keys(ctx context.Context, pattern string) (all []keyInfo, err error) {
	for t, err := range d.admin().Access().ListTokens(ctx, admin.TokenFilter{Pattern: pattern}) {
		if err != nil {
			return nil, refusedBySDK(err)
		}
		all = append(all, keySDK(t))
	}
	return all, nil
}
func (d *sdk) AddSpace(ctx context.Context, name string) error {
	_, err := d.admin().Namespaces().Create(ctx, name, admin.QuotaChange{})
	return refusedBySDK(err)
}
func (d *sdk) RemoveSpace(ctx context.Context, name string) error {
	_, err := d.admin().Namespaces().Delete(ctx, name)
	return refusedBySDK(err)
}
func (d *sdk) Spaces(ctx context.Context, pattern string) (names []string, err error) {
	for n, err := range d.admin().Namespaces().List(ctx, admin.NamespaceFilter{Pattern: pattern}) {
		if err != nil {
			return nil, refusedBySDK(err)
		}
		names = append(names, n.Name)
	}
	return names, nil
}

func newKeySDK(t *admin.NewToken, err error) (newKey, error) {
	if err != nil {
		return newKey{}, refusedBySDK(err)
	}
	return newKey{keySDK(&t.Token), t.Secret, t.Unconfirmed}, nil
}

func keySDK(t *admin.Token) keyInfo {
	return keyInfo{t.Name, t.Namespace, rolesText(t.Roles), t.Queues, t.CreatedBy, t.CreatedAt, t.ExpiresAt, t.RotatedAt,
		t.OldUntil, t.UsedAt}
}

func rolesText(roles []admin.Role) (names []string) {
	for _, r := range roles {
		names = append(names, string(r))
	}
	return names
}

func (d *roundRobin) WhoAmI(ctx context.Context) (identity, error) {
	return d.next().(accessAPI).WhoAmI(ctx)
}
func (d *roundRobin) AddKey(ctx context.Context, k keySpec) (newKey, error) {
	return d.next().(accessAPI).AddKey(ctx, k)
}
func (d *roundRobin) RotateKey(ctx context.Context, name string, overlap span, request string) (newKey, error) {
	return d.next().(accessAPI).RotateKey(ctx, name, overlap, request)
}
func (d *roundRobin) RevokeKey(ctx context.Context, name string) error {
	return d.next().(accessAPI).RevokeKey(ctx, name)
}
func (d *roundRobin) Key(ctx context.Context, name string) (keyInfo, error) {
	return d.next().(accessAPI).Key(ctx, name)
}
func (d *roundRobin) Keys(ctx context.Context, pattern string) ([]keyInfo, error) {
	return d.next().(accessAPI).Keys(ctx, pattern)
}
func (d *roundRobin) AddSpace(ctx context.Context, name string) error {
	return d.next().(accessAPI).AddSpace(ctx, name)
}
func (d *roundRobin) RemoveSpace(ctx context.Context, name string) error {
	return d.next().(accessAPI).RemoveSpace(ctx, name)
}
func (d *roundRobin) Spaces(ctx context.Context, pattern string) ([]string, error) {
	return d.next().(accessAPI).Spaces(ctx, pattern)
}
