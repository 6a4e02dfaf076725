package gateway

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fakeTokens stores tokens, and reports node n2 as lagging.
type fakeTokens struct {
	mu     sync.Mutex
	tokens []auth.Token
	names  []string
	calls  []tokens.Call
	quotas task.Quotas
}

// answer registers the fake's answers in a table.
func (t *fakeTokens) answer(to verbtest.Answers) {
	verbtest.On(to, tokens.Add, t.AddToken)
	verbtest.On(to, tokens.Rotate, t.RotateToken)
	verbtest.On(to, tokens.Revoke, t.RevokeToken)
	verbtest.On(to, tokens.List, t.Tokens)
	verbtest.On(to, namespaces.Add, t.AddNamespace)
	verbtest.On(to, namespaces.SetQuotas, t.SetQuotas)
	verbtest.On(to, namespaces.Remove, t.RemoveNamespace)
	verbtest.On(to, namespaces.List, t.Namespaces)
}

func (f *fakeTokens) AddToken(_ context.Context, c tokens.Call) (tokens.Changed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	t := c.Token
	t.CreatedAt, t.CreatedBy = 1_000_000, c.Author.Name
	if c.Life != 0 {
		t.ExpiresAt = t.CreatedAt.Add(c.Life)
	}
	f.tokens = append(f.tokens, t)
	slices.SortFunc(f.tokens, func(a, b auth.Token) int {
		return strings.Compare(a.Namespace+"\x00"+a.Name, b.Namespace+"\x00"+b.Name)
	})
	return tokens.Changed{Token: t, Unconfirmed: []string{"n2"}}, nil
}

func (f *fakeTokens) RotateToken(_ context.Context, c tokens.Call) (tokens.Changed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	t := f.tokens[0]
	t.RotatedAt, t.OldUntil, t.UsedAt = 2_000_000, store.Time(2_000_000).Add(c.Overlap), 1_500_000
	return tokens.Changed{Token: t}, nil
}

func (f *fakeTokens) RevokeToken(_ context.Context, c tokens.Call) (tokens.Changed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.tokens, func(t auth.Token) bool { return t.ID() == c.Token.ID() }) {
		return tokens.Changed{}, task.NotFound("token", c.Token.Name)
	}
	return tokens.Changed{}, nil
}

func (f *fakeTokens) Tokens(_ context.Context, by auth.Rights) ([]auth.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.tokens), func(t auth.Token) bool { return !by.Covers(t.Rights) }), nil
}

func (f *fakeTokens) AddNamespace(_ context.Context, c namespaces.Call) ([]string, error) {
	f.names = append(f.names, c.Name)
	f.quotas = f.quotas.Change(c.Quotas)
	return nil, nil
}

func (f *fakeTokens) SetQuotas(_ context.Context, q namespaces.Change) ([]string, error) {
	f.quotas = f.quotas.Change(q.Quotas)
	return []string{"n2"}, nil
}

func (f *fakeTokens) RemoveNamespace(context.Context, namespaces.Change) ([]string, error) {
	return []string{"n2"}, nil
}

func (f *fakeTokens) Namespaces(context.Context, verb.Nothing) (all []namespaces.Info, err error) {
	for i, name := range f.names {
		all = append(all, namespaces.Info{Namespace: namespaces.Namespace{Name: name, CreatedAt: store.Time(i) * 1_000_000,
			CreatedBy: "boss", Quotas: f.quotas},
			Queues: 3, Schedules: i})
	}
	return all, nil
}

// The calls on tokens and namespaces over REST, each with its response checked against openapi.json.
func TestTokensOverREST(t *testing.T) {
	k, fake := newTokenSet(), &fakeTokens{names: []string{"default"}}
	k.add("boss", auth.Everything)
	k.add("lead", auth.Rights{Namespace: "team", Roles: auth.Admin, Queues: []string{"mail*"}})
	f := newFake()
	fake.answer(f.table())
	f.auth = k.auth
	g := New(f.config())
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	for _, c := range []struct{ who, method, path, body, want string }{
		{"lead", "GET", "/api/v1/me", "", `200 {"token_required":true,"name":"lead","roles":["produce","consume","observe",` +
			`"operate","admin"],"namespace":"team","all_namespaces":false,"queues":["mail*"]}`},
		{"lead", "POST", "/api/v1/tokens", `{"name":"ci","roles":["consume","produce"],"queues":["mail.in"],"expires_in":"1h"}`,
			`201 {"token":{"name":"ci","namespace":"team","roles":["produce","consume"],"queues":["mail.in"],"created_by":"lead",` +
				`"created_at":"1970-01-01T00:00:01Z","expires_at":"1970-01-01T01:00:01Z"},"secret":"…","unconfirmed_nodes":["n2"]}`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"oncall","roles":["operate"],"queues":["*"],"all_namespaces":true,` +
			`"never_expires":true}`,
			`201 {"token":{"name":"oncall","namespace":"*","roles":["operate"],"created_by":"*/boss",` +
				`"created_at":"1970-01-01T00:00:01Z"},"secret":"…","unconfirmed_nodes":["n2"]}`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"bill","roles":["produce"],"queues":["*"],"certificate":"dns:billing"}`,
			`201 {"token":{"name":"bill","namespace":"default","roles":["produce"],"certificate":"dns:billing","created_by":"*/boss",` +
				`"created_at":"1970-01-01T00:00:01Z"},"unconfirmed_nodes":["n2"]}`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"bill","roles":["produce"],"queues":["*"],"certificate":"dns:billing",` +
			`"expires_in":"1h","never_expires":true}`, `400 never_expires: is given together with expires_in`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["*"],"certificate":"billing"}`,
			`400 certificate: \"billing\" is not a certificate name`},
		{"lead", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["mail"],"certificate":"dns:billing"}`,
			`403 token \"lead\" is limited to a namespace or to queues, and can't make a token for a certificate`},
		{"lead", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["*"]}`,
			`403 token \"lead\" is limited to the queues mail*, and can't make one that sees others`},
		{"lead", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["mail","sms"]}`,
			`403 token \"lead\" is limited to the queues mail*, and can't make one that sees others`},
		{"lead", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["sms","mail"]}`,
			`403 token \"lead\" is limited to the queues mail*, and can't make one that sees others`},
		{"lead", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["mail"],"all_namespaces":true}`,
			`403 token \"lead\" is limited to namespace \"team\", and can't make one that is not`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"a b","roles":["produce"],"queues":["*"]}`,
			`400 name: \"a b\" has a character other than`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"admin-token-file","roles":["produce"],"queues":["*"]}`,
			`400 name: \"admin-token-file\" is reserved for the token in a server's --admin-token-file`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"x"}`, `400 roles: is required`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"]}`,
			`400 queues: is required: patterns of queues, or * for all queues`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":[]}`, `400 queues: is required`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["*"],"expires_in":"0s"}`,
			`400 expires_in: 0s is not between 1s and`},
		{"boss", "POST", "/api/v1/tokens", `{"name":"x","roles":["produce"],"queues":["*"],"namespace":"team"}`, `400 namespace: `},
		{"boss", "GET", "/api/v1/tokens?all_namespaces=true&limit=1", "",
			`200 {"items":[{"name":"oncall","namespace":"*","roles":["operate"],"created_by":"*/boss",` +
				`"created_at":"1970-01-01T00:00:01Z"}],"next_cursor":"AXgqAG9uY2FsbA"}`},
		{"boss", "GET", "/api/v1/tokens?all_namespaces=true&cursor=AXgqAG9uY2FsbA", "", `"name":"ci"`},
		{"boss", "GET", "/api/v1/tokens", "", `200 {"items":[{"name":"oncall",`},
		{"lead", "GET", "/api/v1/tokens", "", `200 {"items":[{"name":"ci",`},
		{"lead", "GET", "/api/v1/tokens/ci", "", `200 {"name":"ci","namespace":"team",`},
		{"lead", "GET", "/api/v1/tokens/oncall?all_namespaces=true", "", `404 token \"oncall\": not found`},
		{"boss", "POST", "/api/v1/tokens/oncall/rotate", `{"all_namespaces":true,"overlap":"2h"}`,
			`"rotated_at":"1970-01-01T00:00:02Z","old_until":"1970-01-01T02:00:02Z","used_at":"1970-01-01T00:00:01.5Z"},"secret":"…"}`},
		{"boss", "POST", "/api/v1/tokens/oncall/rotate", `{"overlap":"721h"}`, `400 overlap: 721h0m0s is not between`},
		{"boss", "DELETE", "/api/v1/tokens/oncall?all_namespaces=maybe", "", `400 all_namespaces: \"maybe\" is neither true nor false`},
		{"boss", "DELETE", "/api/v1/tokens/oncall", "", `404 token \"oncall\": not found`},
		{"boss", "POST", "/api/v1/namespaces", `{"name":"team","quotas":{"max_backlog":50}}`, `200 {}`},
		{"boss", "POST", "/api/v1/namespaces", `{"name":"team","quotas":{"max_backlog":-1}}`,
			`400 quotas.max_backlog: -1 is not between 0 and`},
		{"boss", "POST", "/api/v1/namespaces", `{"name":"team","quotas":{"backlog":1}}`, `400 quotas.backlog: `},
		{"boss", "PATCH", "/api/v1/namespaces/team", `{"quotas":{}}`, `400 quotas: none is given`},
		{"lead", "PATCH", "/api/v1/namespaces/team", `{"quotas":{"max_running":9}}`, `403 `},
		{"boss", "PATCH", "/api/v1/namespaces/team", `{"quotas":{"max_running":7},"reason":"noisy"}`,
			`200 {"namespace":{"name":"team","created_at":"1970-01-01T00:00:01Z","created_by":"boss","quotas":{"max_backlog":50,` +
				`"max_backlog_bytes":0,"max_running":7,"max_queues":0,"max_schedules":0,"max_requests_per_second":0,` +
				`"max_bytes_per_second":0},"usage":{"backlog":10,"backlog_bytes":4096,"running":0,"queues":3,"schedules":1}},` +
				`"unconfirmed_nodes":["n2"]}`},
		{"boss", "GET", "/api/v1/namespaces/nobody", "", `404 namespace \"nobody\": not found`},
		{"lead", "GET", "/api/v1/namespaces/default", "", `404 namespace \"default\": not found`},
		{"lead", "GET", "/api/v1/namespaces/team", "", `200 {"name":"team","created_at":"1970-01-01T00:00:01Z","created_by":"boss",` +
			`"quotas":{"max_backlog":50,"max_backlog_bytes":0,"max_running":7,"max_queues":0,"max_schedules":0,` +
			`"max_requests_per_second":0,"max_bytes_per_second":0}}`},
		{"lead", "GET", "/api/v1/limits", "", `200 {"limits":[{"name":"payload","value":1048576,"unit":"bytes"}`},
		{"boss", "POST", "/api/v1/namespaces", `{"name":"-"}`, `400 name: \"-\" is not a namespace name`},
		{"boss", "GET", "/api/v1/namespaces?limit=1", "",
			`200 {"items":[{"name":"default","created_by":"boss","quotas":{"max_backlog":50,` +
				`"max_backlog_bytes":0,"max_running":7,"max_queues":0,"max_schedules":0,"max_requests_per_second":0,` +
				`"max_bytes_per_second":0},"usage":{"backlog":10,"backlog_bytes":4096,"running":0,"queues":3,"schedules":0}}],` +
				`"next_cursor":"AW5kZWZhdWx0"}`},
		{"boss", "GET", "/api/v1/namespaces?cursor=AW5kZWZhdWx0", "",
			`200 {"items":[{"name":"team","created_at":"1970-01-01T00:00:01Z","created_by":"boss","quotas":{"max_backlog":50,` +
				`"max_backlog_bytes":0,"max_running":7,"max_queues":0,"max_schedules":0,"max_requests_per_second":0,` +
				`"max_bytes_per_second":0},"usage":{"backlog":10,"backlog_bytes":4096,"running":0,"queues":3,"schedules":1}}],` +
				`"next_cursor":""}`},
		{"lead", "GET", "/api/v1/namespaces", "", `200 {"items":[{"name":"team",`},
		{"boss", "DELETE", "/api/v1/namespaces/team", "", `200 {"unconfirmed_nodes":["n2"]}`},
		{"lead", "POST", "/api/v1/namespaces", `{"name":"mine"}`, `403 `},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer "+k.secret[c.who])
		if c.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		w := serveChecked(t, g.Handler(), r, []byte(c.body))
		got := fmt.Sprintf("%d %s", w.Code, w.Body)
		if _, detail, refused := strings.Cut(w.Body.String(), `"detail":"`); refused {
			got = fmt.Sprintf("%d %s", w.Code, detail)
		}
		if head, rest, ok := strings.Cut(got, `"secret":"`); ok {
			if bearer.Check(rest[:54]) != nil || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: secret %q is invalid or may be cached: %v", c.path, rest, w.Header())
			}
			got = head + `"secret":"…` + rest[54:]
		}
		if !strings.Contains(got, c.want) || strings.HasPrefix(c.want, "2") && !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s %s %s: got\n%s, want\n%s", c.who, c.method, c.path, c.body, got, c.want)
		}
	}
	for _, c := range fake.calls {
		if c.Token.Hash == (auth.Hash{}) {
			t.Errorf("AddToken or RotateToken got no hash: %+v", c)
		}
	}
}

// Lifetimes and overlaps over gRPC, and their defaults.
func TestTokenLives(t *testing.T) {
	k, fake := newTokenSet(), &fakeTokens{}
	k.add("boss", auth.Everything)
	f := newFake()
	fake.answer(f.table())
	f.auth = k.auth
	g := New(f.config())
	conn := dialGateway(t, g)
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	ctx, c := with(t.Context(), k.secret["boss"], ""), pawlv1.NewAccessServiceClient(conn)
	if _, err := c.AddToken(ctx, &pawlv1.AddTokenRequest{Name: "a", Roles: []string{"observe"}, Queues: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RotateToken(ctx, &pawlv1.RotateTokenRequest{Name: "a", NeverExpires: true}); err != nil {
		t.Fatal(err)
	}
	if len(fake.calls) != 2 || fake.calls[0].Life != auth.DefaultLife || fake.calls[1].Life != 0 ||
		fake.calls[1].Overlap != auth.DefaultOverlap || fake.calls[0].Token.Hash == fake.calls[1].Token.Hash {
		t.Errorf("calls = %+v", fake.calls)
	}
}
