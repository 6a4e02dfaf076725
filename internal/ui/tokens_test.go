package ui_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

var shownSecret = regexp.MustCompile(`<code tabindex="0">(pawl_[A-Za-z0-9_]+)</code>`)

// sendAs sends a form in a session.
func (w *world) sendAs(t *testing.T, token, path string, form url.Values) (status int, body string) {
	t.Helper()
	resp, body := w.send(t, "POST", path, form.Encode(), append(as(token), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")...)
	return resp.StatusCode, body
}

func TestTokensAreMadeRotatedAndRevoked(t *testing.T) {
	w := startGuarded(t)
	see := func(token string) int { resp, _ := w.get(t, "/queues", as(token)...); return resp.StatusCode }
	status, body := w.sendAs(t, w.token, "/new-token", url.Values{"name": {"shop"}, "roles": {"observe", "produce"}, "queues": {"mail*, reports"}, "expires_in": {"30d"}, "reason": {"a new shop"}})
	m := shownSecret.FindStringSubmatch(body)
	if status != 200 || m == nil {
		t.Fatalf("status %d, and no secret: %s", status, body)
	}
	first := m[1]
	info, err := w.client.Admin().Token(t.Context(), pawl.TokenName{Name: "shop"})
	must(t, err)
	if left := time.Until(info.ExpiresAt); len(info.Roles) != 2 || strings.Join(info.Queues, " ") != "mail* reports" || left < 29*24*time.Hour || left > 30*24*time.Hour {
		t.Errorf("the token is %+v", info)
	}
	if resp, body := w.get(t, "/tokens", as(w.token)...); resp.Header.Get("Cache-Control") != "no-store" || strings.Contains(body, first) || !strings.Contains(body, ">shop<") {
		t.Error("the list has the secret, or not the token, or browsers keep it")
	}
	if see(first) != 200 {
		t.Error("the new token is not good")
	}
	_, body = w.sendAs(t, w.token, "/tokens/shop/rotate", url.Values{"overlap": {"0s"}})
	if m = shownSecret.FindStringSubmatch(body); m == nil || m[1] == first || see(m[1]) != 200 || see(first) != 303 {
		t.Errorf("after the rotation the old secret is good, or the new one is not: %s", body)
	}
	if status, _ = w.sendAs(t, w.token, "/tokens/shop/revoke", url.Values{"reason": {"it closed"}}); status != 303 || see(m[1]) != 303 {
		t.Errorf("revoke has status %d, or the token is still good", status)
	}

	_, body = w.sendAs(t, w.token, "/new-token", url.Values{"name": {"all"}, "roles": {"observe"}, "all_namespaces": {"yes"}, "expires_in": {"never"}})
	if info, err = w.client.Admin().Token(t.Context(), pawl.TokenName{Name: "all", AllNamespaces: true}); err != nil || !info.ExpiresAt.IsZero() {
		t.Errorf("a token of all namespaces: %+v, %v: %s", info, err, body)
	}
	if resp, body := w.get(t, "/tokens/all/revoke?all=yes", as(w.token)...); resp.StatusCode != 200 || !strings.Contains(body, "Revoke all") {
		t.Errorf("the form for it: status %d", resp.StatusCode)
	}
	for e, err := range w.client.Admin().Audit(t.Context(), pawl.AuditFilter{Action: "token.*"}) {
		must(t, err)
		if e.Face == "ui" && e.Action == "token.add" && e.Target == "shop" && e.Reason == "a new shop" {
			return
		}
	}
	t.Error("the audit does not know who made the token")
}

func TestTokensAreForAdmins(t *testing.T) {
	w := startGuarded(t)
	for _, role := range []pawl.Role{pawl.RoleObserve, pawl.RoleOperate} {
		token := w.tokenFor(t, string(role), role)
		for _, path := range []string{"/tokens", "/namespaces/x/remove", "/tokens/observe/rotate"} {
			if status, _ := w.sendAs(t, token, path, url.Values{"confirm": {"x"}}); status < 400 {
				t.Errorf("%s: %s has status %d", role, path, status)
			}
		}
		if status, body := w.sendAs(t, token, "/new-token", url.Values{"name": {"x"}, "roles": {"observe"}}); status != 403 || shownSecret.MatchString(body) {
			t.Errorf("%s may make tokens: status %d", role, status)
		}
		if resp, _ := w.get(t, "/tokens", as(token)...); resp.StatusCode != 403 {
			t.Errorf("%s sees the tokens: status %d", role, resp.StatusCode)
		}
	}
	// An admin of one namespace makes none that may do more.
	admin := w.tokenFor(t, "admin", pawl.RoleAdmin)
	if status, body := w.sendAs(t, admin, "/new-token", url.Values{"name": {"x"}, "roles": {"admin"}, "all_namespaces": {"yes"}}); status != 403 || shownSecret.MatchString(body) {
		t.Errorf("an admin of a namespace makes one for all: status %d", status)
	}
	if _, body := w.get(t, "/new-token", as(admin)...); strings.Contains(body, "all_namespaces") {
		t.Error("an admin of a namespace is asked whether the token is for all")
	}
	for form, field := range map[string]string{"name=&roles=observe": "name", "name=a/b&roles=observe": "name", "name=x": "roles", "name=x&roles=observe&queues=a%20b": "queues", "name=x&roles=observe&expires_in=soon": "expires_in"} {
		values, _ := url.ParseQuery(form)
		if status, body := w.sendAs(t, w.token, "/new-token", values); status != 422 || !regexp.MustCompile(`(?s)wrong">\s*<label for="f-`+field+`"`).MatchString(body) {
			t.Errorf("%s: status %d, and nothing stands beside %s", form, status, field)
		}
	}
}

func TestNamespacesAreChosen(t *testing.T) {
	w := startGuarded(t)
	if _, body := w.get(t, "/", as(w.token)...); strings.Contains(body, "/namespaces/choose") {
		t.Error("with one namespace there is something to choose")
	}
	if status, _ := w.sendAs(t, w.token, "/new-namespace", url.Values{"name": {"shop"}}); status != 303 {
		t.Fatalf("status %d", status)
	}
	_, err := w.client.Admin().PutQueue(t.Context(), "mail", pawl.QueueSettings{})
	must(t, err)
	if _, body := w.get(t, "/", as(w.token)...); !strings.Contains(body, "/namespaces/choose") {
		t.Error("nothing leads to the other namespace")
	}
	if _, body := w.get(t, "/namespaces/choose", as(w.token)...); !strings.Contains(body, `<option value="shop">`) {
		t.Error("an admin can't choose a namespace")
	}
	watcher := w.tokenFor(t, "watcher", pawl.RoleObserve)
	if _, body := w.get(t, "/namespaces/choose", as(watcher)...); strings.Contains(body, `<option value="shop">`) {
		t.Error("a watcher of one namespace hears of another")
	}
	if status, _ := w.sendAs(t, watcher, "/namespaces/choose", url.Values{"namespace": {"shop"}}); status != 403 {
		t.Errorf("a watcher of one namespace goes to another: status %d", status)
	}
	for namespace, sees := range map[string]bool{"default": true, "shop": false} {
		_, body := w.get(t, "/queues", "Cookie", "__Host-pawl="+w.token+"; pawl-namespace="+namespace)
		if got := strings.Contains(body, ">mail<"); got != sees {
			t.Errorf("in namespace %q the queue is seen: %v, want %v", namespace, got, sees)
		}
	}
	resp, _ := w.get(t, "/queues", "Cookie", "__Host-pawl="+w.token+"; pawl-namespace=gone")
	if got := resp.Header.Get("Set-Cookie"); resp.StatusCode < 400 || !strings.HasPrefix(got, "pawl-namespace=; ") {
		t.Errorf("a namespace that is gone: status %d, and the choice is kept: %q", resp.StatusCode, got)
	}
	if status, _ := w.sendAs(t, w.token, "/namespaces/shop/remove", url.Values{"confirm": {"shop"}}); status != 303 {
		t.Errorf("removing has status %d", status)
	}
}
