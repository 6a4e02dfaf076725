package ui_test

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

// as returns the headers of a request in a new session of a token.
func as(token string) []string {
	w := httptest.NewRecorder()
	visitor.NewSessions(func(auth.SessionID) (auth.SessionKey, error) { return auth.SessionKey{}, auth.ErrNoSession },
		nil, 0).Begin(w, token)
	return []string{"Cookie", "__Host-pawl=" + w.Result().Cookies()[0].Value}
}

// tokenFor creates a token.
func (w *world) tokenFor(t testing.TB, name string, roles ...admin.Role) string {
	t.Helper()
	made, err := admin.New(w.client).Access().CreateToken(t.Context(), admin.TokenSpec{Name: name, Queues: []string{"*"}, Roles: roles})
	must(t, err)
	return made.Secret
}

func TestUnauthenticatedVisitorsLogIn(t *testing.T) {
	w := startGuarded(t)
	for path, want := range map[string]string{"/": "/login?next=%2F", "/tasks?q=state:dead": "/login?next=%2Ftasks%3Fq%3Dstate%253Adead",
		"/settings/you": "/login?next=%2Fsettings%2Fyou",
		"/tasks/0199f3c2-0000-7001-8000-000000000000/payload": "/login?next=%2Ftasks%2F0199f3c2-0000-7001-8000-000000000000%2Fpayload"} {
		for _, cookie := range [][]string{nil, {"Cookie", "__Host-pawl=nonsense"}, {"Cookie", "__Host-pawl=" + w.token}, as("nonsense"),
			as("pawl_" + strings.Repeat("x", 49))} {
			if resp, _ := w.get(t, path, cookie...); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want {
				t.Errorf("%s with cookie %q: status %d to %q, want 303 to %q", path, cookie, resp.StatusCode, resp.Header.Get("Location"),
					want)
			}
		}
	}
	resp, _ := w.get(t, "/queues", "HX-Request", "true", "HX-Current-URL", w.url+"/queues?cursor=x")
	if got := resp.Header.Get("HX-Redirect"); got != "/login?next=%2Fqueues%3Fcursor%3Dx" {
		t.Errorf("the refresh of an open page is redirected to %q", got)
	}
	for script, want := range map[string][]string{"false": {"reload this page", `href="/login"`}, "true": {"then send it again",
		`href="/login"`}} {
		resp, body := w.send(t, "POST", "/enqueue", "type=a", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site",
			"same-origin", "HX-Request", script)
		if resp.StatusCode != 401 || !strings.Contains(body, want[0]) || !strings.Contains(body, want[1]) ||
			(resp.Header.Get("HX-Retarget") == "find .refusal") != (script == "true") {
			t.Errorf("a form without a session, with scripts %s: status %d, target %q: %s", script, resp.StatusCode,
				resp.Header.Get("HX-Retarget"), body)
		}
	}
	if resp, body := w.get(t, "/login"); resp.StatusCode != 200 || strings.Contains(body, `href="/queues"`) {
		t.Errorf("the login page has status %d, or shows the menu", resp.StatusCode)
	}
}

// announce starts to submit a form of some size, and returns the response that arrives before the rest is sent.
func (w *world) announce(t *testing.T, path string, size int, headers ...string) *http.Response {
	t.Helper()
	host := strings.TrimPrefix(w.url, "http://")
	c, err := net.Dial("tcp", host)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nContent-Type: "+
		"application/x-www-form-urlencoded\r\nContent-Length: %d\r\n", path, host, w.url, size)
	for i := 0; i+1 < len(headers); i += 2 {
		head += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	_, err = io.WriteString(c, head+"\r\ntoken=")
	must(t, err)
	must(t, c.SetReadDeadline(time.Now().Add(browserTime)))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("the server waits for %s of %d bytes: %v", path, size, err)
	}
	return resp
}

// TestUnauthenticatedFormsAreNotRead: the form of an unauthenticated visitor is not read, and a login form is limited to a small size.
func TestUnauthenticatedFormsAreNotRead(t *testing.T) {
	w := startGuarded(t)
	for _, c := range []struct {
		path   string
		size   int
		as     string
		status int
	}{
		{"/enqueue", 3 << 20, "", 401},
		{"/enqueue", 3 << 20, "nonsense", 401},
		{"/in/team-a/queues/mail/pause", 3 << 20, "pawl_" + strings.Repeat("x", 49), 401},
		{"/in/nobodys/enqueue", 3 << 20, w.token, 404},
		{"/enqueue", 5 << 20, w.token, 413},
		{"/login", 5 << 10, "", 413},
		{"/login", 5 << 10, w.token, 413},
	} {
		resp := w.announce(t, c.path, c.size, as(c.as)...)
		if resp.StatusCode != c.status || !resp.Close {
			t.Errorf("%s of %d bytes with token %.6q: status %d, close %v, want %d and close", c.path, c.size, c.as, resp.StatusCode,
				resp.Close, c.status)
		}
	}
	if resp, _ := w.post(t, "/login", url.Values{"token": {w.token}, "more": {strings.Repeat("x", 3<<10)}}); resp.StatusCode != 303 {
		t.Errorf("a login form that is slightly longer than usual: status %d, want 303", resp.StatusCode)
	}
}

// Every page of a server that requires no tokens says so, and no page of one that requires them does.
func TestPagesWarnWithoutTokens(t *testing.T) {
	const open = "no access control"
	w, guarded := startWorld(t, ""), startGuarded(t)
	token := guarded.tokenFor(t, "root", admin.RoleAdmin)
	for _, path := range everyPage {
		if resp, body := w.get(t, path); resp.StatusCode == 200 && !strings.Contains(body, open) {
			t.Errorf("%s does not say that there is %s", path, open)
		}
		if _, body := guarded.get(t, path, as(token)...); strings.Contains(body, open) {
			t.Errorf("%s of a server with tokens says that there is %s", path, open)
		}
	}
}

func TestLogin(t *testing.T) {
	w := startGuarded(t)
	for _, token := range []string{"", "nonsense", "pawl_" + strings.Repeat("a", 49), "two words", strings.Repeat("x", 300)} {
		resp, body := w.post(t, "/login", url.Values{"token": {token}})
		if resp.StatusCode != 422 || len(resp.Cookies()) != 0 || !strings.Contains(body, `class="wrong-says"`) || len(token) > 10 &&
			strings.Contains(body, token) {
			t.Errorf("login with the invalid token %q: status %d, cookies %v, or the token is on the page", token,
				resp.StatusCode, resp.Cookies())
		}
	}
	resp, _ := w.post(t, "/login?next="+url.QueryEscape("/tasks?q=x"), url.Values{"token": {w.token}})
	if want := "/login?kept=yes&next=%2Ftasks%3Fq%3Dx"; resp.StatusCode != 303 || resp.Header.Get("Location") != want {
		t.Fatalf("login: status %d to %q, want 303 to %q", resp.StatusCode, resp.Header.Get("Location"), want)
	}
	cookie := resp.Header.Get("Set-Cookie")
	value, secured := strings.CutSuffix(cookie, "; Path=/; HttpOnly; Secure; SameSite=Strict")
	value, ours := strings.CutPrefix(value, "__Host-pawl=")
	if !secured || !ours || strings.Contains(value, "pawl_") {
		t.Errorf("the cookie is %q", cookie)
	}
	if resp, body := w.get(t, "/queues", "Cookie", "__Host-pawl="+value); resp.StatusCode != 200 ||
		!strings.Contains(body, "admin-token-file") {
		t.Errorf("a page with the cookie has status %d", resp.StatusCode)
	}
	for _, headers := range [][]string{{"Authorization", "Bearer " + value}, {"Cookie", "__Host-pawl=" + value}} {
		if resp, _ := w.get(t, "/api/v1/me", headers...); resp.StatusCode != 401 {
			t.Errorf("a call with the cookie as %s: status %d, want 401", headers[0], resp.StatusCode)
		}
	}
	if _, body := w.get(t, "/login?kept=yes"); !strings.Contains(body, "did not keep the session") {
		t.Error("the page does not say that the browser did not keep the cookie")
	}
	for next, want := range map[string]string{"/queues": "/queues", "//evil.example": "/", "https://evil.example": "/",
		`/\evil.example`: "/", "": "/"} {
		if resp, _ := w.get(t, "/login?kept=yes&next="+url.QueryEscape(next), as(w.token)...); resp.Header.Get("Location") != want {
			t.Errorf("after the login, next %q redirects to %q, want %q", next, resp.Header.Get("Location"), want)
		}
	}
	if resp, body := w.get(t, "/", as(w.token)...); resp.StatusCode != 200 || !strings.Contains(body, "Log out") ||
		strings.Contains(body, w.token) {
		t.Errorf("a page in a session: status %d, or no logout, or the page has the token", resp.StatusCode)
	}
	resp, _ = w.send(t, "POST", "/logout", "", append(as(w.token), "Sec-Fetch-Site", "same-origin")...)
	if got := resp.Header.Get("Set-Cookie"); !strings.HasPrefix(got, "__Host-pawl=; Path=/; Max-Age=0") {
		t.Errorf("logging out sets the cookie %q", got)
	}
	if resp, _ := w.send(t, "POST", "/logout", "", append(as(w.token), "Sec-Fetch-Site", "cross-site")...); resp.StatusCode != 403 {
		t.Errorf("a logout from another site: status %d, want 403", resp.StatusCode)
	}
}

func TestActionsDependOnRole(t *testing.T) {
	w := startGuarded(t)
	_, err := admin.New(w.client).Queues().Put(t.Context(), "mail", admin.QueueSettings{})
	must(t, err)
	for name, c := range map[string]struct {
		roles  []admin.Role
		can    string
		status int // of the attempt to pause
	}{
		"watcher":  {[]admin.Role{admin.RoleObserve}, "observe", 403},
		"operator": {[]admin.Role{admin.RoleOperate}, "observe operate", 303},
	} {
		token := w.tokenFor(t, name, c.roles...)
		_, body := w.get(t, "/queues/mail", as(token)...)
		if !strings.Contains(body, `data-can="`+c.can+`"`) || !strings.Contains(body, ">"+name+"<") {
			t.Errorf("%s: the page does not have the rights %s: %s", name, c.can,
				body[strings.Index(body, "<body"):strings.Index(body, "<body")+
					300])
		}
		resp, body := w.send(t, "POST", "/queues/mail/pause", "reason=x", append(as(token), "Content-Type",
			"application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")...)
		if resp.StatusCode != c.status || c.status == 403 && !strings.Contains(body, "permission denied") {
			t.Errorf("%s: pausing has status %d, want %d", name, resp.StatusCode, c.status)
		}
	}
	var audited []string
	for e, err := range admin.New(w.client).Audit().List(t.Context(), admin.AuditFilter{Action: "queue.pause"}) {
		must(t, err)
		audited = append(audited, e.Actor+" over "+e.Interface)
	}
	if len(audited) != 1 || audited[0] != "operator over ui" {
		t.Errorf("the audit log has %q, want one pause, by operator over ui", audited)
	}
}

func TestRevokedTokensSeeNothing(t *testing.T) {
	w := startGuarded(t)
	token := w.tokenFor(t, "guest", admin.RoleObserve)
	if resp, _ := w.get(t, "/queues", as(token)...); resp.StatusCode != 200 {
		t.Fatalf("a valid token: status %d, want 200", resp.StatusCode)
	}
	_, err := admin.New(w.client).Access().RevokeToken(t.Context(), admin.TokenName{Name: "guest"})
	must(t, err)
	if resp, _ := w.get(t, "/queues", as(token)...); resp.StatusCode != 303 {
		t.Errorf("after the token was revoked: status %d, want 303", resp.StatusCode)
	}
}

// TestSessionInABrowser: browsers keep the session, and pages don't offer actions that a visitor may not use.
func TestSessionInABrowser(t *testing.T) {
	b := startBrowser(t)
	w := startGuarded(t)
	_, err := admin.New(w.client).Queues().Put(t.Context(), "mail", admin.QueueSettings{})
	must(t, err)
	watcher := w.tokenFor(t, "watcher", admin.RoleObserve)
	b.visit(w.url + "/queues/mail")
	b.until(`location.pathname === "/login"`)
	b.shoot("login")
	b.fill("token", "nonsense")
	b.click("#live .buttons button")
	b.until(`document.querySelector(".wrong-says") !== null`)
	b.fill("token", watcher)
	b.loading(func() { b.click("#live .buttons button") })
	b.until(`location.pathname === "/queues/mail"`)
	b.click(".title .pop summary")
	if got := b.eval(`[...document.querySelectorAll(".title .actions a")].filter((a) => a.checkVisibility()).map((a) => ` +
		`a.textContent).join()`); got != "Tasks,Dead letters" {
		t.Errorf("an observer is offered %q", got)
	}
	if got := b.eval(`document.cookie.includes("__Host-pawl")`); got != "false" {
		t.Error("scripts can read the session cookie")
	}
	b.shoot("watcher")
	_, err = admin.New(w.client).Access().RevokeToken(t.Context(), admin.TokenName{Name: "watcher"})
	must(t, err)
	b.until(`location.pathname === "/login"`) // a page that is still open gets redirected
	b.check(w.url)
}

// TestSessionEndsBeforeSubmit: what was typed into a form outlasts the session.
func TestSessionEndsBeforeSubmit(t *testing.T) {
	b := startBrowser(t)
	w := startGuarded(t)
	_, err := admin.New(w.client).Queues().Put(t.Context(), "mail", admin.QueueSettings{})
	must(t, err)
	logIn := func() { // as in another tab
		t.Helper()
		b.eval(`fetch("/login", {method: "POST", body: new URLSearchParams({token: ` + jsString(w.tokenFor(t, "alice", admin.RoleOperate)) +
			`})}).then((r) => { window.loggedIn = r.ok })`)
		b.until(`window.loggedIn`)
	}
	logOut := func() {
		t.Helper()
		_, err := admin.New(w.client).Access().RevokeToken(t.Context(), admin.TokenName{Name: "alice"})
		must(t, err)
	}
	reason := func() string {
		t.Helper()
		q, err := admin.New(w.client).Queues().Get(t.Context(), "mail")
		must(t, err)
		return q.PausedReason
	}
	b.visit(w.url + "/login")
	logIn()
	b.visit(w.url + "/queues/mail/pause")
	b.fill("reason", "it burns")
	logOut()
	b.refused(`document.querySelector(".refused a") !== null`)
	b.shoot("form-session-ended")
	logIn()
	b.loading(func() { b.click(sendForm) })
	if got := reason(); got != "it burns" {
		t.Errorf("after logging in again the form paused with reason %q", got)
	}
	b.visit(w.url + "/queues/mail/pause")
	b.fill("reason", "still")
	logOut()
	b.loading(func() { b.eval(`HTMLFormElement.prototype.submit.call(document.querySelector("#live form"))`) }) // as without scripts
	b.until(`document.body.innerText.includes("reload this page")`)
	b.shoot("session-ended")
	logIn()
	b.loading(func() { b.call("Page.reload", nil, nil) })
	if got := reason(); got != "still" {
		t.Errorf("the request that a reload repeats paused with reason %q, at %s", got, b.eval("location.href"))
	}
}

// TestFormsOfOtherVisitors: nobody sends by accident what somebody else has typed.
func TestFormsOfOtherVisitors(t *testing.T) {
	w := startGuarded(t)
	_, err := admin.New(w.client).Queues().Put(t.Context(), "mail", admin.QueueSettings{})
	must(t, err)
	alice, bob := as(w.tokenFor(t, "alice", admin.RoleOperate)), as(w.tokenFor(t, "bob", admin.RoleOperate))
	for _, dialog := range [][]string{nil, {"HX-Request", "true", "HX-Target", "dialog"}} {
		_, body := w.get(t, "/queues/mail/pause", append(dialog, alice...)...)
		send := func(path string, form url.Values) (*http.Response, string) {
			t.Helper()
			return w.send(t, "POST", path, form.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded",
				"Sec-Fetch-Site", "same-origin"}, bob...)...)
		}
		form := filled(body)
		form.Set("reason", "it burns")
		resp, body := send("/queues/mail/pause", form)
		if q, err := admin.New(w.client).Queues().Get(t.Context(), "mail"); err != nil || q.Paused || resp.StatusCode < 400 ||
			!strings.Contains(body, "you are logged in as &#34;bob&#34;") {
			t.Fatalf("another visitor's form: status %d, paused %t, %v: %s", resp.StatusCode, q.Paused, err, body)
		}
		if resp, body := send("/queues/mail/pause", filled(body)); resp.StatusCode != 303 {
			t.Errorf("the same form, sent as shown to its new visitor: status %d: %s", resp.StatusCode, body)
		}
		_, err = admin.New(w.client).Queues().Resume(t.Context(), "mail")
		must(t, err)
		_, body = w.get(t, "/queues/mail/settings", append(dialog, alice...)...)
		if _, body = send("/queues/mail/settings", filled(body)); !strings.Contains(body, "you are logged in as &#34;bob&#34;") ||
			strings.Contains(body, "someone else has changed this") {
			t.Errorf("another visitor's form that edits something does not say whose it is: %s",
				regexp.MustCompile(`class="refused".*`).FindString(body))
		}
	}
}

// TestStartPageDependsOnRights: no visitor starts at a page that refuses them, or has such pages in the menu.
func TestStartPageDependsOnRights(t *testing.T) {
	w := startGuarded(t)
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	some, err := admin.New(w.client).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "some", Roles: []admin.Role{admin.RoleObserve},
		Queues: []string{"mail*"}})
	must(t, err)
	for _, c := range []struct {
		token, begins, menu string
	}{
		{w.tokenFor(t, "producer", admin.RoleProduce), "/enqueue", "/settings"},
		{w.tokenFor(t, "observer", admin.RoleObserve), "",
			"/ /queues /tasks /types /dead /poison /schedules /groups /workers /operations /webhooks /settings"},
		{some.Secret, "/queues", "/queues /tasks /types /dead /poison /schedules /groups /workers /operations /settings"},
		{w.token, "", "/ /queues /tasks /types /dead /poison /schedules /groups /workers /operations /audit /cluster /webhooks " +
			"/namespaces /tokens /settings"},
	} {
		if resp, _ := w.get(t, "/", as(c.token)...); resp.Header.Get("Location") != c.begins {
			t.Errorf("the start page redirects to %q, want %q", resp.Header.Get("Location"), c.begins)
		}
		_, body := w.get(t, "/settings", as(c.token)...)
		var menu []string
		for _, m := range regexp.MustCompile(`<a href="([^"]*)" data-key=`).FindAllStringSubmatch(body, -1) {
			menu = append(menu, m[1])
			if resp, _ := w.get(t, m[1], as(c.token)...); resp.StatusCode != 200 {
				t.Errorf("%s is in the menu, but has status %d", m[1], resp.StatusCode)
			}
		}
		if got := strings.Join(menu, " "); got != c.menu {
			t.Errorf("the menu is %s, want %s", got, c.menu)
		}
	}
	producer := w.tokenFor(t, "another", admin.RoleProduce)
	if resp, body := w.get(t, "/queues", as(producer)...); resp.StatusCode != 403 ||
		!strings.Contains(body, `You can open <a href="/settings">`) || strings.Contains(body, `href="/workers"`) {
		t.Errorf("a page without permission: status %d, or it does not link to a permitted one", resp.StatusCode)
	}
	if _, body := w.get(t, "/queues?like=nothing", as(w.token)...); !strings.Contains(body, "No queue matches") {
		t.Error("a search without results does not say so")
	}
}

// TestCommandsNameThisServer: the commands for newcomers work on this server, whatever its address.
func TestCommandsNameThisServer(t *testing.T) {
	host := func(w *world) string { return strings.TrimPrefix(w.url, "http://") }
	open, guarded := startWorld(t, "/ops"), startGuarded(t)
	_, err := admin.New(guarded.client).Namespaces().Create(t.Context(), "team-a", admin.QuotaChange{})
	must(t, err)
	cookie := as(guarded.token)
	for _, path := range []string{"/", "/tasks", "/queues"} {
		_, body := open.get(t, "/ops"+path)
		for _, want := range []string{"pawl enqueue mail.welcome", "--queue=mail --server=" + host(open), open.url + "/ops/api/v1/tasks<",
			"pawl work"} {
			if !strings.Contains(html.UnescapeString(body), want) {
				t.Errorf("%s of an open server lacks the command %s", path, want)
			}
		}
		_, body = guarded.get(t, "/in/team-a"+path, append(cookie, "X-Forwarded-Proto", "https")...)
		for _, want := range []string{`curl -H "Authorization: Bearer $PAWL_TOKEN" -H 'Pawl-Namespace: team-a' -d`, "--server=https://" +
			host(guarded) + " --namespace=team-a", "https://" + host(guarded) + "/api/v1/tasks<", "PAWL_TOKEN; export"} {
			if !strings.Contains(html.UnescapeString(body), want) {
				t.Errorf("%s of a guarded server lacks the command %s", path, want)
			}
		}
	}
}
