package ui_test

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// noRedirects returns redirects instead of following them.
var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// get returns a response and its body.
func (w *world) get(t testing.TB, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	return w.send(t, "GET", path, "", headers...)
}

// post submits a form as a page of this server would.
func (w *world) post(t testing.TB, path string, form url.Values) (*http.Response, string) {
	t.Helper()
	return w.send(t, "POST", path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
}

func (w *world) send(t testing.TB, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
	must(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := noRedirects.Do(r)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	if strings.Contains(string(data), unsafeMark) {
		t.Errorf("%s contains %s: a template uses a value in a context in which it can't be escaped", path, unsafeMark)
	}
	return resp, string(data)
}

// unsafeMark is what html/template emits for a value that it can't escape in its context.
const unsafeMark = "ZgotmplZ"

// everyPage lists the paths without names in them.
var everyPage = []string{"/", "/queues", "/tasks", "/types", "/dead", "/poison", "/schedules", "/workers", "/groups", "/operations",
	"/audit", "/cluster", "/webhooks", "/markers", "/tokens", "/namespaces", "/settings", "/enqueue", "/new-queue", "/new-schedule",
	"/settings/you", "/new-token", "/new-webhook", "/new-marker", "/namespaces/default/quotas", "/new-namespace", "/namespaces/choose",
	"/operations/new?action=replay&q=state:dead"}

func TestEmptyPagesShowCommands(t *testing.T) {
	w := startWorld(t, "")
	for path, want := range map[string]string{"/": "pawl enqueue", "/queues": "pawl enqueue", "/tasks": "curl -d", "/dead": "pawl dlq",
		"/schedules": "pawl schedule add", "/operations": "pawl ", "/groups": "pawl group"} {
		if resp, body := w.get(t, path); resp.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, want 200 and a page with %q", path, resp.StatusCode, want)
		}
	}
}

func TestEveryPageHasSecurityHeaders(t *testing.T) {
	w := startWorld(t, "")
	for _, path := range append(everyPage, "/nothing-here", "/static/nothing.js", "/tasks/no-id") {
		resp, _ := w.get(t, path)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "same-origin"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		policy := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'self'", "script-src 'self'", "style-src 'self'", "object-src 'none'",
			"frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy %q allows unsafe sources", path, policy)
		}
	}
}

// inline finds what the policy forbids, and resources of other origins.
var inline = regexp.MustCompile(`(?i)<style|<script(?:>|\s[^>]*>[^<])|\sstyle=|\son[a-z]+=|javascript:|(?:src|href|action)="(?:https?:)?//`)

func TestPagesHaveNothingInlineAndFitTheBudget(t *testing.T) {
	w := startWorld(t, "")
	w.seed(t)
	id := w.newest(t, admin.Filter{Queue: "mail", States: []pawltype.State{pawltype.StateDead}})
	for _, path := range append(everyPage, "/types/mail.welcome?window=24h", "/types/mail.digest?queue=mail", "/types/none", "/queues/mail",
		"/queues/media", "/queues/mail/settings", "/tasks/"+id, "/schedules/nightly-report", "/tasks?q=state:ready") {
		resp, body := w.get(t, path)
		if resp.StatusCode != 200 || len(body) > 100<<10 {
			t.Errorf("%s: status %d, %d bytes, want 200 and at most 100 KiB", path, resp.StatusCode, len(body))
		}
		body = strings.ReplaceAll(body, `<a rel="noreferrer" href="https://`, "") // links of markers, which users provide
		if found := inline.FindString(body); found != "" {
			t.Errorf("%s contains %q", path, found)
		}
	}
	_, err := admin.New(w.client).Markers().Add(t.Context(), admin.MarkerSpec{Kind: admin.MarkerDeploy, Title: "release of the day",
		Version: "v9", Types: []string{"mail.*"}})
	must(t, err)
	for path, want := range map[string][]string{
		"/types?order=failing": {`href="/types/mail.digest"`, "Last error"},
		"/types/mail.digest": {"Since the last deploy", "release of the day", "Too early to compare", `class="histogram"`, "p95 ",
			`href="/types/mail.digest?queue=mail"`, "Slowest runs", `href="/tasks?q=type%3Amail.digest`},
	} {
		_, body := w.get(t, path)
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s lacks %q", path, text)
			}
		}
	}
	if _, body := w.get(t, "/types/card.charge"); strings.Contains(body, "release of the day") {
		t.Error("the page of a type shows a deploy that is not about it")
	}
	if _, body := w.get(t, "/workers"); !strings.Contains(body, ">and 6 more</a>") {
		t.Error("a worker that runs 9 tasks has no link to those that its row does not show")
	}
}

// TestLongListsFitTheBudget has more of everything than fits on a page of a list.
func TestLongListsFitTheBudget(t *testing.T) {
	w := startWorld(t, "")
	long := strings.Repeat("x", 40)
	for i := range 60 {
		name := fmt.Sprintf("%s-%d", long, i)
		w.enqueue(t, 3, func(int) pawl.Item { return job(long, `{}`, pawl.Queue(name), pawl.Key(long), pawl.MaxAttempts(1)) })
	}
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{long + "-1", long + "-2"},
		Max: 5, Worker: long})
	must(t, err)
	for _, c := range claimed {
		_, err := claims.New(w.client).Fail(t.Context(), c, errors.New(long))
		must(t, err)
	}
	w.manyNames(t, 60, 60)
	w.manyOthers(t, 60, long)
	for _, path := range []string{"/", "/queues", "/tasks", "/dead", "/namespaces", "/namespaces/choose", "/tokens",
		"/schedules", "/workers", "/webhooks", "/markers", "/audit", "/operations"} {
		if _, body := w.get(t, path); len(body) > 100<<10 {
			t.Errorf("%s has %d bytes, want at most 100 KiB", path, len(body))
		} else {
			t.Logf("%s: %d bytes", path, len(body))
		}
	}
	rows := func(path string) int {
		_, body := w.get(t, path)
		return strings.Count(body, "<tr data-row")
	}
	for path, want := range map[string]int{"/namespaces": 40, "/namespaces?like=t-5": 11, "/namespaces?like=t*-5": 1,
		"/namespaces?like=default": 1, "/namespaces?like=none": 0, "/namespaces?like=a+b": 0, "/tokens": 50, "/tokens?like=t-5": 11,
		"/tokens?like=*-59": 1, "/tokens?like=none": 0, "/tokens?like=a+b": 0} {
		if got := rows(path); got != want {
			t.Errorf("%s lists %d rows, want %d", path, got, want)
		}
	}
	if _, body := w.get(t, "/tokens?like=a+b"); !strings.Contains(body, "is not a pattern of token names") {
		t.Error("an invalid search pattern is not explained")
	}
	if _, body := w.get(t, "/namespaces/choose"); strings.Contains(body, "<select") || strings.Count(body, "<option>") != 61 {
		t.Error("the form to choose one of 61 namespaces has a select element, or lacks suggestions")
	}
}

// manyNames creates namespaces and tokens with names of maximum length.
func (w *world) manyNames(t testing.TB, namespaces, tokens int) {
	t.Helper()
	operator := admin.New(w.client).WithActor("deploy-pipeline@example.com")
	for i := range namespaces {
		_, err := operator.Namespaces().Create(t.Context(), fmt.Sprintf("%s-%d", strings.Repeat("t", 58), i), admin.QuotaChange{})
		must(t, err)
	}
	for i := range tokens {
		_, err := operator.Access().CreateToken(t.Context(), admin.TokenSpec{Name: fmt.Sprintf("%s-%d", strings.Repeat("t", 58), i),
			Roles: []admin.Role{admin.RoleProduce, admin.RoleConsume, admin.RoleObserve}, Queues: []string{"mail*", "billing*"}})
		must(t, err)
	}
}

// manyOthers creates schedules, workers, webhooks and operations with long names.
func (w *world) manyOthers(t testing.TB, n int, long string) {
	t.Helper()
	operator := admin.New(w.client).WithActor("deploy-pipeline@example.com")
	for i := range n {
		name := fmt.Sprintf("%s-%d", long, i)
		_, err := operator.Schedules().Put(t.Context(), admin.ScheduleSpec{Name: name, Cron: "30 3 * * 1-5",
			TimeZone: "America/Argentina/Buenos_Aires", Owner: long, Task: pawl.RawTask{Type: long},
			Options: []pawl.Option{pawl.Queue(name)}})
		must(t, err)
		_, err = claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{name}, Max: 3, Worker: name})
		must(t, err)
		_, err = operator.Markers().Add(t.Context(), admin.MarkerSpec{Kind: admin.MarkerIncident, Title: name + strings.Repeat(" x", 70),
			URL: "https://example.com/" + long, Types: []string{name}})
		must(t, err)
		_, err = operator.Webhooks().Create(t.Context(), admin.WebhookSpec{Name: name, URL: "https://example.com/" + long,
			Events: []admin.WebhookEvent{admin.WebhookTaskDead}, Queues: []string{name}})
		must(t, err)
		op, err := operator.WithReason("it was "+long).Operations().Start(t.Context(), admin.OperationSpec{Action: admin.ActionCancel,
			Filter: &admin.Filter{Queue: name, Type: long}})
		must(t, err)
		_, err = operator.Operations().Wait(t.Context(), op.ID, nil)
		must(t, err)
	}
}

// TestDeadLettersOfManyQueues: the page covers all queues, links to those with the most dead letters, and is no larger than with few.
func TestDeadLettersOfManyQueues(t *testing.T) {
	w := startWorld(t, "")
	const queues = 300
	w.enqueue(t, queues, func(i int) pawl.Item {
		return job("mail.send", `{}`, pawl.Queue(fmt.Sprintf("team-%03d.mail.of.the.eastern.region", i)), pawl.MaxAttempts(1))
	})
	w.enqueue(t, 5, func(int) pawl.Item { return job("card.charge", `{}`, pawl.Queue("billing"), pawl.MaxAttempts(1)) })
	for i := 0; i <= queues; i += 60 {
		from := pawl.Strict{"billing"}
		for j := i; j < min(i+60, queues); j++ {
			from = append(from, fmt.Sprintf("team-%03d.mail.of.the.eastern.region", j))
		}
		claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: from, Max: 100, Worker: "w"})
		must(t, err)
		ends := make([]claims.Settlement, len(claimed))
		for k, c := range claimed {
			ends[k] = claims.Settlement{Claim: c, Err: fmt.Errorf("%s gave up after %d tries", c.Type, k)}
		}
		_, err = claims.New(w.client).SettleAll(t.Context(), ends)
		must(t, err)
	}
	resp, body := w.get(t, "/dead")
	if n := strings.Count(body, `<a class="chip"`); resp.StatusCode != 200 || n != 14 || len(body) > 60<<10 {
		t.Errorf("status %d, %d chips, %d bytes, want 200, 14 and at most 60 KiB", resp.StatusCode, n, len(body))
	}
	for _, want := range []string{`<span class="muted">305</span>`, "and 300 queues in all", "300 in the last hour, 300 in 24 hours",
		`href="/queues?having=dead"`, `href="/dead?queue=billing"`,
		`href="/operations/new?action=replay&amp;q=state%3Adead&#43;type%3Amail.send`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of all queues lacks %s", want)
		}
	}
	if _, body := w.get(t, "/dead?queue=billing"); !strings.Contains(body, `<span class="muted">5 in <a href="/queues/billing">`) ||
		strings.Count(body, `id="t-`) != 5 {
		t.Error("the page of one queue does not list exactly its dead letters")
	}
	names := func(path string) (found []string) {
		_, body := w.get(t, path)
		for _, m := range regexp.MustCompile(`<tr data-row id="q-([^"]*)"`).FindAllStringSubmatch(body, -1) {
			found = append(found, m[1])
		}
		return found
	}
	for path, want := range map[string]int{"/queues": 40, "/queues?like=team-1": 40, "/queues?like=team-00*": 10, "/queues?like=bill": 1,
		"/queues?like=bill&having=paused": 0, "/queues?having=dead&order=most": 40, "/queues?having=no_worker": 0} {
		if got := names(path); len(got) != want {
			t.Errorf("%s lists %d queues, want %d", path, len(got), want)
		}
	}
	if got := names("/queues?having=dead&order=most"); got[0] != "billing" {
		t.Errorf("the queue with the most dead letters is listed as %s, want billing", got[0])
	}
	if resp, body := w.get(t, "/queues?like=a%20b"); resp.StatusCode != 200 || !strings.Contains(body, "<strong>Invalid filter</strong>") {
		t.Errorf("an invalid pattern: status %d, or no error", resp.StatusCode)
	}
	if resp, _ := w.get(t, "/dead?queue=nothing"); resp.StatusCode != 404 {
		t.Errorf("the dead letters of a queue that does not exist: status %d, want 404", resp.StatusCode)
	}
}

// newest returns the id of the newest task that matches.
func (w *world) newest(t testing.TB, f admin.Filter) string {
	t.Helper()
	page, err := admin.New(w.client).Tasks().ListPage(t.Context(), f, pawltype.PageRequest{Limit: 1})
	must(t, err)
	if len(page.Items) == 0 {
		t.Fatalf("no task matches %+v", f)
	}
	return page.Items[0].ID
}

var assetAddress = regexp.MustCompile(`(?:href|src)="(/static/[^"]+)"|url\(([^)#]+)\)`)

func TestAssetsAreSmallAndImmutable(t *testing.T) {
	w := startWorld(t, "")
	_, body := w.get(t, "/")
	total, seen := 0, map[string]bool{}
	var load func(text, dir string)
	load = func(text, dir string) {
		for _, m := range assetAddress.FindAllStringSubmatch(text, -1) {
			path := m[1]
			if m[2] != "" {
				path = dir + m[2]
			}
			if seen[path] {
				continue
			}
			seen[path] = true
			resp, data := w.get(t, path, "Accept-Encoding", "gzip")
			if cache := resp.Header.Get("Cache-Control"); resp.StatusCode != 200 || !strings.Contains(cache, "immutable") {
				t.Errorf("%s: status %d, Cache-Control %q", path, resp.StatusCode, cache)
			}
			if strings.HasSuffix(path, ".js") && resp.Header.Get("Content-Encoding") != "gzip" {
				t.Errorf("%s is not compressed", path)
			}
			total += len(data)
			if strings.HasSuffix(path, ".css") {
				_, plain := w.get(t, path)
				load(plain, "/static/")
			}
		}
	}
	load(body, "")
	if len(seen) < 6 || total > 200<<10 {
		t.Errorf("got %d assets of %d bytes, want at least 6 and at most 200 KiB", len(seen), total)
	}
	t.Logf("%d assets, %d bytes", len(seen), total)
}

func TestCrossSiteFormsAreRefused(t *testing.T) {
	w := startWorld(t, "")
	form := url.Values{"type": {"a"}}.Encode()
	kind := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for _, c := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"of another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"of another host of the site", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"from another origin", []string{"Origin", "https://evil.example"}, 403},
		{"from a page without an origin", []string{"Origin", "null"}, 403},
		{"of nobody", nil, 403},
		{"of ours", []string{"Sec-Fetch-Site", "same-origin"}, 303},
		{"from our origin", []string{"Origin", w.url}, 303},
	} {
		if resp, _ := w.send(t, "POST", "/enqueue", form, append(kind, c.headers...)...); resp.StatusCode != c.status {
			t.Errorf("a form %s: status %d, want %d", c.name, resp.StatusCode, c.status)
		}
	}
	if resp, _ := w.send(t, "POST", "/enqueue", "type=a", "Content-Type", "text/plain", "Sec-Fetch-Site",
		"same-origin"); resp.StatusCode != 422 {
		t.Errorf("a form as text/plain: status %d, want 422", resp.StatusCode)
	}
	large := url.Values{"type": {"a"}, "payload": {strings.Repeat("x", 5<<20)}}
	if resp, _ := w.post(t, "/enqueue", large); resp.StatusCode != 413 {
		t.Errorf("a form of 5 MiB: status %d, want 413", resp.StatusCode)
	}
	if resp, _ := w.send(t, "DELETE", "/queues/mail", "", "Sec-Fetch-Site", "same-origin"); resp.StatusCode < 400 {
		t.Errorf("a DELETE request: status %d, want an error", resp.StatusCode)
	}
}

func TestPrefixWhetherStrippedOrNot(t *testing.T) {
	w := startWorld(t, "/tools/pawl")
	for _, path := range []string{"/tools/pawl/queues", "/queues", "/tools/pawl/api/v1/queues", "/api/v1/queues", "/tools/pawl/healthz"} {
		if resp, _ := w.get(t, path); resp.StatusCode != 200 {
			t.Errorf("%s: status %d, want 200", path, resp.StatusCode)
		}
	}
	if resp, _ := w.get(t, "/tools/pawl"); resp.Header.Get("Location") != "/tools/pawl/" {
		t.Errorf("/tools/pawl redirects to %q", resp.Header.Get("Location"))
	}
	address := regexp.MustCompile(`(?:href|action|src|hx-get|hx-post)="([^"]*)"`)
	for _, path := range everyPage {
		_, body := w.get(t, path)
		for _, m := range address.FindAllStringSubmatch(body, -1) {
			if strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "/tools/pawl/") {
				t.Errorf("%s links to %q, outside the prefix", path, m[1])
			}
		}
	}
	resp, _ := w.post(t, "/tools/pawl/enqueue", url.Values{"type": {"a"}})
	if at := resp.Header.Get("Location"); !strings.HasPrefix(at, "/tools/pawl/tasks/") {
		t.Errorf("enqueueing redirects to %q", at)
	}
}

func TestTickedTasksAreChecked(t *testing.T) {
	w := startWorld(t, "")
	const id = "0199f3c2-0000-7001-8000-000000000000"
	for query, says := range map[string]string{"action=replay": "0 tasks are selected", "action=replay&ids=x": "is not a task id",
		"action=move&ids=" + id: "works only as an operation", "action=x&ids=" + id: "is not an action", "action=replay&ids=" +
			strings.Join(manyIDs(101), "&ids="): "101 tasks"} {
		if resp, body := w.get(t, "/tasks/selected?"+query); resp.StatusCode != 422 || !strings.Contains(body, says) {
			t.Errorf("%.60s: status %d, want 422 and %q", query, resp.StatusCode, says)
		}
	}
	if resp, body := w.get(t, "/tasks/selected?action=discard&back="+url.QueryEscape("//evil.example")+"&ids="+id+"&ids="+
		id); resp.StatusCode != 200 || !strings.Contains(body, "Discard 1 selected task") || strings.Contains(body, "evil") {
		t.Errorf("one task that is selected twice: status %d", resp.StatusCode)
	}
	if resp, body := w.post(t, "/tasks/selected", url.Values{"action": {"discard"}, "ids": {id}}); resp.StatusCode != 404 ||
		!strings.Contains(body, "not found") {
		t.Errorf("a task that does not exist: status %d, want 404", resp.StatusCode)
	}
}

// A retry and a discard go to a task that is in the state that the page showed: one that somebody has replayed stays as it is. A waiting
// task may have become due meanwhile.
func TestFormsNameTheState(t *testing.T) {
	w := startWorld(t, "")
	ref, err := w.client.Enqueue(t.Context(), pawl.RawTask{Type: "report"})
	must(t, err)
	for path, field := range map[string]string{
		"/tasks/" + ref.ID + "/discard": `name="state" value="ready"`,
		"/tasks/" + ref.ID + "/retry":   `name="state" value="ready"`,
		"/tasks":                        `name="ids" value="` + ref.ID + `:ready"`,
		"/tasks/selected?action=discard&ids=" + ref.ID + ":dead": `name="ids" value="` + ref.ID + `:dead"`,
	} {
		if _, body := w.get(t, path); !strings.Contains(body, field) {
			t.Errorf("%s lacks the field %s", path, field)
		}
	}
	for path, form := range map[string]url.Values{
		"/tasks/" + ref.ID + "/discard": {"state": {"dead"}},
		"/tasks/" + ref.ID + "/retry":   {"state": {"dead"}},
		"/tasks/selected":               {"action": {"discard"}, "ids": {ref.ID + ":dead"}},
	} {
		resp, body := w.post(t, path, form)
		if shown, err := w.client.Task(t.Context(), ref.ID); err != nil || shown.State != pawltype.StateReady || resp.StatusCode != 422 ||
			!strings.Contains(body, "the task is ready, not dead") {
			t.Errorf("%s: status %d, the task is %+v, %v, want 422 and a ready task", path, resp.StatusCode, shown, err)
		}
		if field := `name="state" value="dead"`; path != "/tasks/selected" && !strings.Contains(body, field) {
			t.Errorf("after the refusal, the form of %s lacks %s", path, field)
		}
	}
	for path, form := range map[string]url.Values{
		"/tasks/%s/discard": {"state": {"retrying"}},
		"/tasks/selected":   {"action": {"discard"}, "ids": {"%s:scheduled"}},
	} {
		ref, err := w.client.Enqueue(t.Context(), pawl.RawTask{Type: "report"})
		must(t, err)
		for _, values := range form {
			values[0] = strings.ReplaceAll(values[0], "%s", ref.ID)
		}
		w.post(t, strings.ReplaceAll(path, "%s", ref.ID), form)
		if shown, err := w.client.Task(t.Context(), ref.ID); err != nil || shown.State != pawltype.StateDiscarded {
			t.Errorf("%s with %v: the task is %+v, %v, want it discarded", path, form, shown, err)
		}
	}
}

func manyIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("0199f3c2-0000-7001-8000-%012d", i)
	}
	return ids
}

func TestErrorsAreBesideTheirField(t *testing.T) {
	w := startWorld(t, "")
	for _, c := range []struct {
		path  string
		form  url.Values
		field string
		says  string
	}{
		{"/enqueue", url.Values{"type": {""}, "payload": {"{}"}}, "type", "is required"},
		{"/enqueue", url.Values{"type": {"a"}, "payload": {"{no"}}, "payload",
			"is not JSON: line 1, column 2: invalid character &#39;n&#39; looking for beginning of object key string"},
		{"/enqueue", url.Values{"type": {"a"}, "payload": {"{\"straße\":1,\n \"ü\": 1 2}"}}, "payload",
			"is not JSON: line 2, column 9: invalid character &#39;2&#39; after object key:value pair"},
		{"/enqueue", url.Values{"type": {"a"}, "payload": {"[1,\n2"}}, "payload",
			"is not JSON: line 2, column 2: unexpected end of JSON input"},
		{"/enqueue", url.Values{"type": {"a"}, "queue": {"no/slash"}}, "queue", "no/slash"},
		{"/enqueue", url.Values{"type": {"a"}, "run_at": {"tomorrow"}}, "run_at", "tomorrow"},
		{"/new-schedule", url.Values{"name": {"s"}, "cron": {"61 * * * *"}, "task.type": {"a"}}, "cron", "61"},
		{"/new-schedule", url.Values{"name": {"s"}, "cron": {"@daily"}, "task.type": {""}}, "task.type", "is required"},
		{"/new-queue", url.Values{"queue": {"a b"}}, "queue", "a b"},
		{"/settings/you", url.Values{"name": {"Müller"}}, "name", "ASCII"},
	} {
		resp, body := w.post(t, c.path, c.form)
		beside := regexp.MustCompile(`(?s)field [a-z-]+ wrong">\s*<label for="f-` + regexp.QuoteMeta(c.field) +
			`">.*?<p class="wrong-says" id="[^"]*" role="alert">([^<]*)<`)
		m := beside.FindStringSubmatch(body)
		if resp.StatusCode != 422 || m == nil || !strings.Contains(m[1], c.says) {
			t.Errorf("%s %v: status %d, the message at field %s is %q, want it to contain %q", c.path, c.form, resp.StatusCode,
				c.field, m, c.says)
		}
		for name, values := range c.form {
			if values[0] != "" && !strings.Contains(body, htmlEscaper.Replace(values[0])) {
				t.Errorf("%s: the input for %s, %q, was lost", c.path, name, values[0])
			}
		}
	}
}

// TestARefusedOperationKeepsItsCount: after an invalid rate, the button still shows the count.
func TestARefusedOperationKeepsItsCount(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 3, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.In(time.Hour)) })
	resp, body := w.post(t, "/operations/new", url.Values{"action": {"cancel"}, "q": {"queue:mail"}, "rate": {"abc"}, "canary": {"many"}})
	if resp.StatusCode != 422 {
		t.Errorf("status %d, want 422", resp.StatusCode)
	}
	for _, want := range []string{"<dt>Matching now</dt><dd>3</dd>", "Cancel 3 tasks</button>", "Newest matching tasks",
		`<strong>Not saved</strong> <span>check “Max rate”, “Canary” below</span>`,
		`<p class="wrong-says" id="wrong-rate" role="alert">&#34;abc&#34; is not a rate such as 50/s, 30/m, 1000/h or 100/10s</p>`,
		`<p class="wrong-says" id="wrong-canary" role="alert">&#34;many&#34; is not a whole number`, `value="abc"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the form lacks %s", want)
		}
	}
	if resp, _ := w.post(t, "/operations/new", url.Values{"action": {"cancel"}, "q": {"queue:mail"},
		"rate": {"100/1m"}}); resp.StatusCode !=
		303 {
		t.Errorf("a rate of 100/1m: status %d, want 303", resp.StatusCode)
	}
}

// TestOperationsLinkToOutcomes: an operation links to the outcomes of its tasks, and to what can be done with them.
func TestOperationsLinkToOutcomes(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 3, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.In(time.Hour)) })
	o, err := admin.New(w.client).Operations().Start(t.Context(), admin.OperationSpec{Action: admin.ActionCancel,
		Filter: &admin.Filter{Queue: "mail"}})
	must(t, err)
	_, err = admin.New(w.client).Operations().Wait(t.Context(), o.ID, nil)
	must(t, err)
	_, body := w.get(t, "/operations/"+o.ID)
	links := map[string]string{}
	for _, m := range regexp.MustCompile(
		`href="([^"]*)">(?:<i[^>]*></i>)?([^<]*?) ?(?:<span class="count">[^<]*</span>)?</a>`).FindAllStringSubmatch(body, -1) {
		links[m[2]] = html.UnescapeString(m[1])
	}
	aim := regexp.MustCompile(`Selected tasks</h2><p><a href="([^"]*)">`).FindStringSubmatch(body)
	if aim == nil || !strings.HasPrefix(html.UnescapeString(aim[1]), "/tasks?q=queue%3amail") {
		t.Errorf("the link to the selected tasks is %q", aim)
	}
	for _, want := range []string{`cancelled <span class="count">3</span>`, `succeeded <span class="count">0</span>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if resp, list := w.get(t, links["cancelled"]); resp.StatusCode != 200 || strings.Count(list, `id="t-`) != 3 {
		t.Errorf("the link to cancelled tasks is %q: status %d, %d tasks, want 3", links["cancelled"], resp.StatusCode,
			strings.Count(list, `id="t-`))
	}
	if resp, list := w.get(t, links["succeeded"]); resp.StatusCode != 200 || !strings.Contains(list, "No task matches") {
		t.Errorf("the link to succeeded tasks is %q: status %d", links["succeeded"], resp.StatusCode)
	}
	if _, form := w.get(t, links["Replay the tasks that it ended…"]); !strings.Contains(form, "Replay 3 tasks</button>") {
		t.Errorf("the link to replay the cancelled tasks is %q: %.300s", links["Replay the tasks that it ended…"], form)
	}
	if links["The same once more…"] != "" {
		t.Error("a completed operation without remaining tasks can be repeated")
	}
}

// TestAllAttemptsCanBeSeen: a page shows ten attempts, and links to the others.
func TestAllAttemptsCanBeSeen(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item {
		return job("a", `{}`, append(manyHeaders(64), pawl.Queue("mail"), pawl.MaxAttempts(100))...)
	})
	for i := range 23 {
		claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 1, Worker: "w",
			Wait: time.Minute})
		must(t, err)
		_, err = claims.New(w.client).Fail(t.Context(), claimed[0], pawl.RetryIn(time.Millisecond, fmt.Errorf("try %d", i+1)))
		must(t, err)
	}
	at := "/tasks/" + w.newest(t, admin.Filter{Queue: "mail"})
	attempt := regexp.MustCompile(`<b>Attempt (\d+)</b>`)
	leads := regexp.MustCompile(`<a href="([^"]*)">(← newer|\d+ older)`)
	for _, want := range []struct{ first, last, links string }{{"23", "14", "13 older"}, {"13", "4", "← newer 3 older"},
		{"3", "1", "← newer"}} {
		_, body := w.get(t, at)
		shown := attempt.FindAllStringSubmatch(body, -1)
		var links []string
		for _, m := range leads.FindAllStringSubmatch(body, -1) {
			links, at = append(links, m[2]), html.UnescapeString(m[1]) // the last link leads to older attempts, or back from the oldest
		}
		if got := strings.Join(links, " "); shown[0][1] != want.first || shown[len(shown)-1][1] != want.last || got != want.links {
			t.Errorf("the page has attempts %s to %s and the links %q, want %s to %s and %q", shown[0][1], shown[len(shown)-1][1], got,
				want.first, want.last, want.links)
		}
		if !strings.Contains(body, `<details class="card more-facts"><summary><h2>64 headers</h2>`) ||
			strings.Index(body, "<h2>Payload</h2>") > strings.Index(body, "<h2>Timeline</h2>") {
			t.Error("the headers are not folded, or the payload is below the timeline")
		}
	}
	for _, bad := range []string{"0", "-1", "many", "1e3"} {
		if resp, _ := w.get(t, "/tasks/"+w.newest(t, admin.Filter{Queue: "mail"})+"?attempts="+bad); resp.StatusCode != 422 {
			t.Errorf("attempts=%s: status %d, want 422", bad, resp.StatusCode)
		}
	}
}

// manyHeaders gives a task n headers.
func manyHeaders(n int) (all []pawl.Option) {
	for i := range n {
		all = append(all, pawl.Header(fmt.Sprintf("header-%d", i), strings.Repeat("v", 40)))
	}
	return all
}

// TestTaskFormHasEveryOption: the form can set everything that a producer can, and preserves the options of a schedule
// that it doesn't have.
func TestTaskFormHasEveryOption(t *testing.T) {
	w := startWorld(t, "")
	form := url.Values{"type": {"a"}, "queue": {"mail"}, "retry.initial": {"5s"}, "retry.jitter": {"0"}, "retention": {"3d"},
		"unique.key": {"user-7"}, "headers": {"tenant: 7\n\nlocale:de"}}
	resp, body := w.post(t, "/enqueue", form)
	if resp.StatusCode != 303 {
		t.Fatalf("enqueueing with the form: status %d: %s", resp.StatusCode, body)
	}
	task, err := w.client.Task(t.Context(), strings.TrimPrefix(resp.Header.Get("Location"), "/tasks/"))
	must(t, err)
	if task.Headers["tenant"] != "7" || task.Headers["locale"] != "de" || task.Unique == nil || task.Unique.Key != "user-7" {
		t.Errorf("the task has the headers %v and the unique key %+v", task.Headers, task.Unique)
	}
	form.Set("unique.on_conflict", "reject")
	form.Set("headers", "tenant 7")
	if resp, body := w.post(t, "/enqueue", form); resp.StatusCode != 422 || !strings.Contains(body, "is not a name, a colon and a value") ||
		!strings.Contains(body, `<details class="fold" open>`) {
		t.Errorf("a header without a colon: status %d, or its section is folded", resp.StatusCode)
	}
	if _, body := w.get(t, "/enqueue"); !strings.Contains(body, `<details class="fold"><summary>More`) {
		t.Error("rarely used options are not folded")
	}
	keep := 36 * time.Hour
	before := admin.ScheduleSpec{Name: "s", Every: time.Hour, Task: pawl.RawTask{Type: "b"}, Options: []pawl.Option{pawl.Queue("mail"),
		pawl.Retry(pawltype.RetryPolicy{Initial: pawltype.NoWait, Factor: 3}), pawl.Retention(keep), pawl.Cost(4),
		pawl.Header("tenant", "all"), pawl.Then(pawl.RawTask{Type: "c"}),
		pawl.Unique(pawltype.UniqueOpts{Key: "k", OnConflict: pawltype.OnConflictReject,
			States: []pawltype.State{pawltype.StateScheduled, pawltype.StateReady, pawltype.StateClaimed, pawltype.StateRetrying,
				pawltype.StateDead}})}}
	_, err = admin.New(w.client).Schedules().Create(t.Context(), before)
	must(t, err)
	was, err := admin.New(w.client).Schedules().Get(t.Context(), "s")
	must(t, err)
	_, body = w.get(t, "/schedules/s/edit")
	w.postAsFilled(t, "/schedules/s/edit", body)
	is, err := admin.New(w.client).Schedules().Get(t.Context(), "s")
	must(t, err)
	if fmt.Sprintf("%+v %+v %+v", *is.Task.Retry, *is.Task.Retention, *is.Task.Unique) != fmt.Sprintf("%+v %+v %+v", *was.Task.Retry,
		*was.Task.Retention, *was.Task.Unique) ||
		is.Task.Cost != 4 || is.Task.Headers["tenant"] != "all" || len(is.Task.Then) != 1 {
		t.Errorf("saving the schedule unchanged made its task %+v, want %+v", is.Task, was.Task)
	}
	for contentType, payload := range map[string]string{"text/plain": "not JSON", "": `{"b":1, "a":"<"}`} {
		before.Task = pawl.RawTask{Type: "b", Payload: []byte(payload), ContentType: contentType}
		_, err = admin.New(w.client).Schedules().Put(t.Context(), before)
		must(t, err)
		_, body = w.get(t, "/schedules/s/edit")
		w.postAsFilled(t, "/schedules/s/edit", body)
		is, err := admin.New(w.client).Schedules().Get(t.Context(), "s")
		must(t, err)
		if string(is.Task.Payload) != payload || is.Task.ContentType != contentType {
			t.Errorf("saving the schedule unchanged made its payload %q, %s, want %q, %s", is.Task.Payload, is.Task.ContentType,
				payload, contentType)
		}
	}
}

// postAsFilled submits a form unchanged.
func (w *world) postAsFilled(t testing.TB, path, body string) {
	t.Helper()
	if resp, body := w.post(t, path, filled(body)); resp.StatusCode != 303 {
		t.Fatalf("submitting %s unchanged: status %d %s", path, resp.StatusCode, body)
	}
}

func TestEmptyFiltersSayWhy(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	for q, want := range map[string]string{"queue:mial": "Queue mial does not exist", "queue:mail state:dead": "No task matches",
		"0199f3c2-0000": "part of a task", "state:dedd": "the states are scheduled, ready"} {
		if _, body := w.get(t, "/tasks?q="+url.QueryEscape(q)); !strings.Contains(body, want) {
			t.Errorf("the page of filter %q lacks %q", q, want)
		}
	}
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "+", "&#43;")

func TestAuditNamesVisitors(t *testing.T) {
	w := startWorld(t, "")
	form := url.Values{"type": {"a"}, "queue": {"mail"}}
	w.post(t, "/enqueue", form)
	r := url.Values{"reason": {"the provider is down"}}.Encode()
	resp, body := w.send(t, "POST", "/queues/mail/pause", r, "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site",
		"same-origin", "Cookie", "pawl-name=bob%20the%20operator")
	if resp.StatusCode != 303 {
		t.Fatalf("pausing: status %d %s", resp.StatusCode, body)
	}
	for e, err := range admin.New(w.client).Audit().List(t.Context(), admin.AuditFilter{Action: "queue.pause"}) {
		must(t, err)
		if e.Actor != "bob the operator" || e.Interface != "ui" || e.Address != "127.0.0.1" || e.Reason != "the provider is down" {
			t.Errorf("the audit log has an entry over %q by %q from %q with the reason %q", e.Interface, e.Actor, e.Address, e.Reason)
		}
		return
	}
	t.Error("the audit log has no entry for the pause")
}

func TestPrioritiesAreAuditedWithTheirReason(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.In(time.Hour)) })
	id := w.newest(t, admin.Filter{Queue: "mail"})
	w.post(t, "/tasks/selected", url.Values{"action": {"set_priority"}, "ids": {id}, "priority": {"high"}, "reason": {"urgent"}})
	_, body := w.get(t, "/tasks/"+id+"/edit")
	form := filled(body)
	form.Set("priority", "low")
	form.Set("reason", "not urgent")
	w.post(t, "/tasks/"+id+"/edit", form)
	var reasons []string
	for e, err := range admin.New(w.client).Audit().List(t.Context(), admin.AuditFilter{Action: "task.edit"}) {
		must(t, err)
		reasons = append(reasons, e.Reason)
	}
	if !slices.Equal(reasons, []string{"not urgent", "urgent"}) {
		t.Errorf("the audit log has the reasons %q, want one for each change", reasons)
	}
}

// TestAuditOpens: an entry with many changes shows the first ones, and all of them when it is opened.
func TestAuditOpens(t *testing.T) {
	w := startWorld(t, "")
	_, err := admin.New(w.client).Queues().Put(t.Context(), "mail", admin.QueueSettings{MaxAttempts: 3, Lease: time.Minute, MaxLength: 50,
		QueueLimits: admin.QueueLimits{MaxRunning: 12}, PerKey: admin.QueueLimits{MaxRunning: 2}, Weights: &admin.PriorityWeights{High: 6,
			Normal: 3, Low: 1}, Retry: pawltype.RetryPolicy{Initial: time.Hour}})
	must(t, err)
	_, body := w.get(t, "/audit?kind=queue")
	link := regexp.MustCompile(`<a class="sub" href="([^"]*)#([^"]*)">and (\d+) more</a>`).FindStringSubmatch(body)
	if link == nil {
		t.Fatal("the entry has no link to more changes")
	}
	shown := func(body string) int {
		_, row, _ := strings.Cut(body, `<tr id="`+link[2]+`">`)
		row, _, _ = strings.Cut(row, "</tr>")
		return strings.Count(row, "<code>")
	}
	if n := shown(body); n != 5 {
		t.Errorf("the entry shows %d values, want 5", n)
	}
	more, err := strconv.Atoi(link[3])
	must(t, err)
	_, body = w.get(t, html.UnescapeString(link[1]))
	if n := shown(body); n != 5+more {
		t.Errorf("the opened entry shows %d values, want %d", n, 5+more)
	}
	less := regexp.MustCompile(`<a class="sub" href="([^"]*)#[^"]*">less</a>`).FindStringSubmatch(body)
	if less == nil || html.UnescapeString(less[1]) != "/audit?kind=queue" {
		t.Errorf("the link to show less is %q", less)
	}
}

// TestAuditTimes: a changed time is formatted like other times.
func TestAuditTimes(t *testing.T) {
	w := startWorld(t, "")
	_, err := admin.New(w.client).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "shop", Queues: []string{"*"},
		Roles: []admin.Role{admin.RoleProduce}})
	must(t, err)
	_, body := w.get(t, "/audit")
	if !regexp.MustCompile(`<code>expires_at</code> \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC<`).MatchString(body) {
		t.Errorf("the audit log shows %s", regexp.MustCompile(`<code>expires_at.{80}`).FindString(body))
	}
}

// TestAlarmsNameSubjects: a link's text is clear on its own.
func TestAlarmsNameSubjects(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	if _, body := w.get(t, "/"); !strings.Contains(body, `<a href="/queues/mail" aria-label="View: no worker, mail">View</a>`) {
		t.Errorf("the overview shows %s", regexp.MustCompile(`(?s)Needs attention.*?</section>`).FindString(body))
	}
}

func TestHealthyNodeNeedsNoAttention(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.In(time.Hour)) })
	if _, body := w.get(t, "/"); !strings.Contains(body, "Nothing needs attention.") {
		t.Errorf("the overview of one healthy node shows %s", regexp.MustCompile(`(?s)Needs attention.*?</section>`).FindString(body))
	}
}

// TestDeadLettersAreCountedOnce: the title, the queues, the menu and the groups of the page count the same, right after a change.
func TestDeadLettersAreCountedOnce(t *testing.T) {
	w := startWorld(t, "")
	w.get(t, "/dead") // the menu's counts are cached
	total := 0
	for queue, n := range map[string]int{"mail": 1, "billing": 2} {
		w.enqueue(t, n, func(int) pawl.Item { return job("a", `{}`, pawl.Queue(queue), pawl.MaxAttempts(1)) })
		w.finish(t, queue, n, func(*pawl.Claim, int) error { return errors.New("no") })
		total += n
		_, body := w.get(t, "/dead")
		resp, _ := w.get(t, "/dead", "HX-Request", "true", "HX-Target", "live")
		for _, want := range []string{fmt.Sprintf(`<h1>Dead letters</h1><span class="muted">%d</span>`, total),
			fmt.Sprintf(`<span>all queues</span> <span class="count">%d</span>`, total),
			fmt.Sprintf(`data-count="/dead" title="dead letters">%d</b>`, total), fmt.Sprintf(`data-l="Count">%d</td>`, total)} {
			if !strings.Contains(body, want) {
				t.Errorf("with %d dead letters the page lacks %s", total, want)
			}
		}
		if got := resp.Header.Get("Pawl-Menu"); !strings.Contains(got, fmt.Sprintf("/dead=%d", total)) {
			t.Errorf("with %d dead letters a refresh has the counts %q", total, got)
		}
	}
}
