package ui_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

var shownSecret = regexp.MustCompile(`<code tabindex="0">(pawl_[A-Za-z0-9_]+)</code>`)

// sendAs submits a form in a session, with the token where a form asks for it again.
func (w *world) sendAs(t *testing.T, token, path string, form url.Values) (status int, body string) {
	t.Helper()
	if !form.Has("your_token") {
		form.Set("your_token", token)
	}
	resp, body := w.send(t, "POST", path, form.Encode(), append(as(token), "Content-Type", "application/x-www-form-urlencoded",
		"Sec-Fetch-Site", "same-origin")...)
	return resp.StatusCode, body
}

func TestTokenLifecycle(t *testing.T) {
	w := startGuarded(t)
	see := func(token string) int { resp, _ := w.get(t, "/queues", as(token)...); return resp.StatusCode }
	status, body := w.sendAs(t, w.token, "/new-token", url.Values{"name": {"shop"}, "roles": {"observe", "produce"},
		"queues": {"mail*, reports"}, "expires_in": {"30d"}, "reason": {"a new shop"}})
	m := shownSecret.FindStringSubmatch(body)
	if status != 200 || m == nil {
		t.Fatalf("creating a token: status %d, or no secret: %s", status, body)
	}
	first := m[1]
	info, err := admin.New(w.client).Access().GetToken(t.Context(), admin.TokenName{Name: "shop"})
	must(t, err)
	if left := time.Until(info.ExpiresAt); len(info.Roles) != 2 || strings.Join(info.Queues, " ") != "mail* reports" ||
		left < 29*24*time.Hour || left > 30*24*time.Hour {
		t.Errorf("the token is %+v, want two roles, two queues and 30 days", info)
	}
	if resp, body := w.get(t, "/tokens", as(w.token)...); resp.Header.Get("Cache-Control") != "no-store" || strings.Contains(body, first) ||
		!strings.Contains(body, ">shop<") {
		t.Error("the list shows the secret, lacks the token, or may be cached")
	}
	if see(first) != 200 {
		t.Error("the new token was not accepted")
	}
	_, body = w.sendAs(t, w.token, "/tokens/shop/rotate", url.Values{"overlap": {"0s"}})
	if m = shownSecret.FindStringSubmatch(body); m == nil || m[1] == first || see(m[1]) != 200 || see(first) != 303 {
		t.Errorf("after the rotation the old secret is still valid, or the new one is not: %s", body)
	}
	if status, _ = w.sendAs(t, w.token, "/tokens/shop/revoke", url.Values{"reason": {"it closed"}}); status != 303 || see(m[1]) != 303 {
		t.Errorf("revoking has status %d, or the token is still valid", status)
	}

	_, body = w.sendAs(t, w.token, "/new-token", url.Values{"name": {"all"}, "roles": {"observe"}, "queues": {"*"},
		"all_namespaces": {"yes"}, "expires_in": {"never"}})
	if info, err = admin.New(w.client).Access().GetToken(t.Context(), admin.TokenName{Name: "all", AllNamespaces: true}); err != nil ||
		!info.ExpiresAt.IsZero() {
		t.Errorf("the token for all namespaces is %+v, %v: %s", info, err, body)
	}
	if resp, body := w.get(t, "/tokens/all/revoke?all=yes", as(w.token)...); resp.StatusCode != 200 ||
		!strings.Contains(body, "Revoke all") {
		t.Errorf("the form to revoke a token of all namespaces: status %d", resp.StatusCode)
	}
	for e, err := range admin.New(w.client).Audit().List(t.Context(), admin.AuditFilter{Action: "token.*"}) {
		must(t, err)
		if e.Interface == "ui" && e.Action == "token.add" && e.Target == "shop" && e.Reason == "a new shop" {
			return
		}
	}
	t.Error("the audit log has no entry for the created token")
}

// A session gets nothing that outlasts it, neither a secret nor a webhook's URL: whoever wants one must have its token, too.
func TestSessionsAloneMakeNothingLasting(t *testing.T) {
	w := startGuarded(t)
	w.tokenFor(t, "shop", admin.RoleObserve)
	other := w.tokenFor(t, "boss", admin.RoleAdmin)
	_, err := admin.New(w.client).Webhooks().Create(t.Context(), admin.WebhookSpec{Name: "oncall", URL: "https://ops.example.com/pawl"})
	must(t, err)
	for path, form := range map[string]url.Values{
		"/new-token":              {"name": {"x"}, "roles": {"admin"}, "queues": {"*"}},
		"/tokens/shop/rotate":     {"overlap": {"1h"}},
		"/new-webhook":            {"name": {"mine"}, "url": {"https://mine.example.com"}},
		"/webhooks/oncall/edit":   {"url": {"https://mine.example.com"}, "queues": {"*"}},
		"/webhooks/oncall/rotate": {"overlap": {"1h"}},
	} {
		_, page := w.get(t, path, as(w.token)...)
		if !strings.Contains(page, `name="your_token" type="password"`) || strings.Contains(page, w.token) {
			t.Errorf("%s does not ask for the token, or has it", path)
		}
		if version := hiddenVersion.FindStringSubmatch(page); version != nil {
			form.Set("version", version[1])
		}
		for _, again := range []string{"", other, w.token[:len(w.token)-1], w.token + "x"} {
			form.Set("your_token", again)
			status, body := w.sendAs(t, w.token, path, form)
			if status != 422 || !strings.Contains(body, "is not the token that you logged in with") || again != "" &&
				strings.Contains(body, again) {
				t.Errorf("%s with the token %q has status %d, or shows it", path, again, status)
			}
		}
		form.Set("your_token", w.token)
		if status, body := w.sendAs(t, w.token, path, form); status != map[bool]int{true: 303,
			false: 200}[strings.HasSuffix(path, "/edit")] {
			t.Errorf("%s with the session's token has status %d: %s", path, status, body)
		}
	}
}

var hiddenVersion = regexp.MustCompile(`name="version" value="([^"]*)"`)

func TestTokensAreForAdmins(t *testing.T) {
	w := startGuarded(t)
	for _, role := range []admin.Role{admin.RoleObserve, admin.RoleOperate} {
		token := w.tokenFor(t, string(role), role)
		for _, path := range []string{"/tokens/observe/rotate", "/tokens/observe/revoke"} {
			if status, _ := w.sendAs(t, token, path, url.Values{"confirm": {"observe"}}); status != 403 {
				t.Errorf("%s: POST %s has status %d, want 403", role, path, status)
			}
		}
		if status, body := w.sendAs(t, token, "/new-token", url.Values{"name": {"x"}, "roles": {"observe"},
			"queues": {"*"}}); status != 403 ||
			shownSecret.MatchString(body) {
			t.Errorf("a token with role %s could create a token: status %d", role, status)
		}
		if resp, _ := w.get(t, "/tokens", as(token)...); resp.StatusCode != 403 {
			t.Errorf("a token with role %s can list tokens: status %d", role, resp.StatusCode)
		}
	}
	// An admin of one namespace can't create a token with more rights.
	operator := w.tokenFor(t, "admin", admin.RoleAdmin)
	if status, body := w.sendAs(t, operator, "/new-token", url.Values{"name": {"x"}, "roles": {"admin"}, "queues": {"*"},
		"all_namespaces": {"yes"}}); status != 403 || shownSecret.MatchString(body) {
		t.Errorf("an admin of one namespace could create a token for all: status %d", status)
	}
	if _, body := w.get(t, "/new-token", as(operator)...); strings.Contains(body, "all_namespaces") {
		t.Error("the form of an admin of one namespace offers tokens for all")
	}
	for form, field := range map[string]string{"name=&roles=observe": "name", "name=a/b&roles=observe": "name", "name=x": "roles",
		"name=x&roles=observe": "queues", "name=x&roles=observe&queues=a%20b": "queues",
		"name=x&roles=observe&queues=*&expires_in=soon": "expires_in"} {
		values, _ := url.ParseQuery(form)
		if status, body := w.sendAs(t, w.token, "/new-token", values); status != 422 ||
			!regexp.MustCompile(`(?s)wrong">\s*<label for="f-`+field+
				`"`).MatchString(body) {
			t.Errorf("%s: status %d, or no error is shown at field %s", form, status, field)
		}
	}
}

// TestAddressesNameTheNamespace: pages of two namespaces can be open at the same time, and an action on one applies there.
func TestAddressesNameTheNamespace(t *testing.T) {
	w := startGuarded(t)
	shop := w.inShop(t)
	for _, c := range []*pawl.Client{w.client, shop} {
		_, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "send"}, pawl.Queue("mail"))
		must(t, err)
	}
	_, err := admin.New(w.client).Queues().Put(t.Context(), "own", admin.QueueSettings{})
	must(t, err)
	for path, sees := range map[string]bool{"/queues": true, "/in/shop/queues": false} {
		_, body := w.get(t, path, as(w.token)...)
		if got := strings.Contains(body, ">own<"); got != sees {
			t.Errorf("%s shows the default namespace's queue: %v, want %v", path, got, sees)
		}
	}
	_, body := w.get(t, "/in/shop/queues", as(w.token)...)
	for _, want := range []string{`href="/in/shop/queues/mail"`, `href="/in/shop/tasks"`, `data-root="/"`, `hx-get="/in/shop/queues"`,
		`data-watch="/in/shop/live?`, `src="/static/`} {
		if !strings.Contains(body, want) {
			t.Errorf("a page of another namespace lacks %s", want)
		}
	}
	if status, _ := w.sendAs(t, w.token, "/in/shop/queues/mail/purge", url.Values{"confirm": {"mail"}, "count": {"1"},
		"reason": {"test"}}); status != 303 {
		t.Fatalf("purging a queue of another namespace: status %d", status)
	}
	for name, c := range map[string]*pawl.Client{"default": w.client, "shop": shop} {
		q, err := admin.New(c).Queues().Get(t.Context(), "mail")
		must(t, err)
		if want := map[string]int64{"default": 1}[name]; q.Depth.Ready != want {
			t.Errorf("after a purge in shop %d tasks are ready in %s, want %d", q.Depth.Ready, name, want)
		}
	}
}

// TestNamespacesOfOthers: a visitor who may not enter a namespace, or enters one that no longer exists, gets an error
// with a link to their own.
func TestNamespacesOfOthers(t *testing.T) {
	w := startGuarded(t)
	shop := w.inShop(t)
	token, err := admin.New(shop).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "clerk", Queues: []string{"*"},
		Roles: []admin.Role{admin.RoleObserve}})
	must(t, err)
	for from, c := range map[string][2]string{"/queues?like=x": {token.Secret, "/in/shop/queues?like=x"}, "/in/default/queues?like=x": {
		w.token, "/queues?like=x"}, "/in/shop": {w.token, "/in/shop/"},
		"/in/shop//queues": {w.token, "/in/shop/queues"}} {
		if resp, _ := w.get(t, from, as(c[0])...); resp.StatusCode/100 != 3 || resp.Header.Get("Location") != c[1] {
			t.Errorf("%s has status %d and redirects to %q, want %q", from, resp.StatusCode, resp.Header.Get("Location"), c[1])
		}
	}
	for path, token := range map[string]string{"/in/default/queues": token.Secret, "/in/gone/queues": w.token} {
		resp, body := w.get(t, path, as(token)...)
		if resp.StatusCode < 400 || !strings.Contains(body, `href="/queues"`) || strings.Contains(body, "/in/gone") ||
			strings.Contains(body, "hx-get=") {
			t.Errorf("%s: status %d, or the page has no link to the own namespace", path, resp.StatusCode)
		}
	}
	for _, path := range []string{"/in/", "/in/A%2Fb/queues", "/in/" + strings.Repeat("a", 64) + "/queues"} {
		if resp, _ := w.get(t, path, as(w.token)...); resp.StatusCode != 404 {
			t.Errorf("%.30s: status %d, want 404", path, resp.StatusCode)
		}
	}
}

// inShop creates another namespace, and returns a client in it with all rights.
func (w *world) inShop(t *testing.T) *pawl.Client {
	t.Helper()
	_, err := admin.New(w.client).Namespaces().Create(t.Context(), "shop", admin.QuotaChange{})
	must(t, err)
	c, err := pawl.Dial(strings.TrimPrefix(w.url, "http://"), pawl.DialOptions{Token: w.token, Namespace: "shop"})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func TestNamespacesAreChosen(t *testing.T) {
	w := startGuarded(t)
	if _, body := w.get(t, "/", as(w.token)...); strings.Contains(body, "/namespaces/choose") {
		t.Error("with one namespace the page offers a choice of namespaces")
	}
	if status, _ := w.sendAs(t, w.token, "/new-namespace", url.Values{"name": {"shop"}}); status != 303 {
		t.Fatalf("creating a namespace: status %d", status)
	}
	_, err := admin.New(w.client).Queues().Put(t.Context(), "mail", admin.QueueSettings{})
	must(t, err)
	if _, body := w.get(t, "/", as(w.token)...); !strings.Contains(body, "/namespaces/choose") {
		t.Error("the page has no link to choose another namespace")
	}
	if _, body := w.get(t, "/namespaces/choose", as(w.token)...); !strings.Contains(body, `<option value="shop">`) {
		t.Error("an admin can't choose the other namespace")
	}
	watcher := w.tokenFor(t, "watcher", admin.RoleObserve)
	if _, body := w.get(t, "/namespaces/choose", as(watcher)...); strings.Contains(body, `<option value="shop">`) {
		t.Error("an observer of one namespace can see another")
	}
	if status, _ := w.sendAs(t, watcher, "/namespaces/choose", url.Values{"namespace": {"shop"}}); status != 403 {
		t.Errorf("an observer of one namespace could choose another: status %d", status)
	}
	if resp, _ := w.send(t, "POST", "/namespaces/choose", "namespace=shop", append(as(w.token), "Content-Type",
		"application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")...); resp.Header.Get("Location") != "/in/shop/" {
		t.Errorf("choosing a namespace redirects to %q, status %d", resp.Header.Get("Location"), resp.StatusCode)
	}
	if status, body := w.sendAs(t, w.token, "/in/shop/namespaces/shop/remove", url.Values{"confirm": {"Shop"}}); status != 422 ||
		!strings.Contains(body, "does not match the name of the namespace") {
		t.Errorf("removing a namespace with a wrong confirmation has status %d, want 422", status)
	}
	form := append(as(w.token), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	if resp, _ := w.send(t, "POST", "/in/shop/namespaces/shop/remove", "confirm=shop", form...); resp.StatusCode != 303 ||
		resp.Header.Get("Location") != "/namespaces" {
		t.Errorf("removing the current namespace redirects to %q, status %d", resp.Header.Get("Location"), resp.StatusCode)
	}
}
