package ui_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// tab is the event stream of an open page.
type tab struct {
	t      *testing.T
	status int
	header http.Header
	events chan string // kinds of events. Closed at the end
	cut    context.CancelFunc
}

// follow opens a stream, and reads its hello if it is a stream.
func (w *world) follow(t *testing.T, path string, headers ...string) *tab {
	t.Helper()
	s := w.listen(t, path, headers...)
	if s.status == http.StatusOK {
		s.expect("hello")
	}
	return s
}

// listen opens a stream.
func (w *world) listen(t *testing.T, path string, headers ...string) *tab {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", w.url+path, nil)
	must(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	s := &tab{t: t, status: resp.StatusCode, header: resp.Header, events: make(chan string, 100), cut: cut}
	go func() {
		defer close(s.events)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				s.events <- kind
			}
		}
	}()
	return s
}

func (s *tab) expect(want string) {
	s.t.Helper()
	select {
	case got := <-s.events:
		if got != want {
			s.t.Errorf("the stream sent %q, want %q", got, want)
		}
	case <-time.After(browserTime):
		s.t.Fatalf("the stream did not send %q", want)
	}
}

// until repeats an action until the stream reports a change, since nothing indicates when a stream has begun.
func (s *tab) until(do func()) {
	s.t.Helper()
	for end := time.After(browserTime); ; {
		do()
		select {
		case got := <-s.events:
			if got != "changed" {
				s.t.Errorf("the stream sent %q, want changed", got)
			}
			return
		case <-end:
			s.t.Fatal("the stream sent no event")
		default:
		}
	}
}

func TestStreamsReportRelevantChanges(t *testing.T) {
	w := startWorld(t, "/ops")
	mail := w.follow(t, "/ops/live?queue=mail&kind=task.enqueued", "Sec-Fetch-Site", "same-origin")
	if got := mail.header.Get("Content-Type") + mail.header.Get("Cache-Control"); got != "text/event-streamno-store" {
		t.Errorf("the stream's Content-Type and Cache-Control are %q", got)
	}
	all := w.follow(t, "/live?", "Accept-Encoding", "gzip")
	if got := all.header.Get("Content-Encoding"); got != "" {
		t.Errorf("the stream is delayed by Content-Encoding %s", got)
	}
	task := w.follow(t, "/live?task=0199f3c2-0000-7001-8000-000000000000")
	mail.until(func() { w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) }) })
	all.expect("changed")
	other := w.follow(t, "/live?queue=other")
	all.until(func() { w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("other")) }) })
	other.expect("changed")
	for _, quiet := range []*tab{task} {
		quiet.cut()
		if kind, more := <-quiet.events; more {
			t.Errorf("a stream of an unrelated task sent %q", kind)
		}
	}
	wrong := w.follow(t, "/live?kind=nonsense") // it ends with an event, so that the page reloads and shows the error
	wrong.expect("gone")
	if s := w.follow(t, "/live?", "Sec-Fetch-Site", "cross-site"); s.status != http.StatusForbidden {
		t.Errorf("a stream for a page of another site: status %d, want 403", s.status)
	}
}

func TestStreamsEndWithTheirToken(t *testing.T) {
	w := startGuarded(t)
	w.listen(t, "/live?").expect("gone")
	s := w.follow(t, "/live?queue=mail", as(w.tokenFor(t, "guest", admin.RoleObserve))...)
	_, err := admin.New(w.client).Access().RevokeToken(t.Context(), admin.TokenName{Name: "guest"})
	must(t, err)
	s.expect("gone")
	if kind, more := <-s.events; more {
		t.Errorf("after the event gone, the stream sent %q", kind)
	}
}

// A token limited to some queues receives no events of others.
func TestStreamsRespectScope(t *testing.T) {
	w := startGuarded(t)
	made, err := admin.New(w.client).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "narrow",
		Roles: []admin.Role{admin.RoleObserve}, Queues: []string{"mine"}})
	must(t, err)
	narrow, wide := w.follow(t, "/live?", as(made.Secret)...), w.follow(t, "/live?queue=theirs", as(w.token)...)
	narrow.until(func() { w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mine")) }) })
	for range 2 { // what happened in mine may be reported once more
		wide.until(func() { w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("theirs")) }) })
	}
	narrow.cut()
	told := 0
	for range narrow.events {
		told++
	}
	if told > 1 {
		t.Errorf("the stream of a token for one queue got %d events, some of another queue, want at most 1", told)
	}
}

// TestStreamsAreBounded: no namespace gets all streams, however its callers ask, and callers that get none receive an event that says so.
func TestStreamsAreBounded(t *testing.T) {
	w := startGuarded(t)
	in := func(name string) []string {
		t.Helper()
		_, err := admin.New(w.client).Namespaces().Create(t.Context(), name, admin.QuotaChange{})
		must(t, err)
		there, err := pawl.Dial(strings.TrimPrefix(w.url, "http://"), pawl.DialOptions{Token: w.token, Namespace: name})
		must(t, err)
		defer func() { must(t, there.Close()) }()
		made, err := admin.New(there).Access().CreateToken(t.Context(), admin.TokenSpec{Name: name, Queues: []string{"*"},
			Roles: []admin.Role{admin.RoleObserve}})
		must(t, err)
		return as(made.Secret)
	}
	a, b, c := in("team-a"), in("team-b"), in("team-c")
	const most = 250
	var first *tab
	for range most {
		first = w.follow(t, "/in/team-a/live?queue=a", a...)
	}
	w.listen(t, "/in/team-a/live?queue=a", a...).expect("full")
	w.listen(t, "/live?", a...).expect("full")
	w.listen(t, "/in/team-b/live?", a...).expect("gone")
	for range most {
		w.follow(t, "/in/team-b/live?queue=a", b...)
	}
	w.listen(t, "/in/team-c/live?", c...).expect("full")
	first.cut()
	for end := time.Now().Add(browserTime); ; { // nothing indicates when a slot is free
		if got := <-w.listen(t, "/in/team-c/live?", c...).events; got == "hello" {
			break
		} else if got != "full" || time.Now().After(end) {
			t.Fatalf("after another stream ended, a new one sent %q, want hello", got)
		}
	}
}

// hurry makes a page's clocks run twenty times as fast.
const hurry = `(() => { const now = Date.now, start = now(), wait = setTimeout, every = setInterval; Date.now = () => start + 20 * (now() - start);
	window.setTimeout = (f, ms) => wait(f, ms / 20); window.setInterval = (f, ms) => every(f, ms / 20); })()`

// TestPagesFollow: pages learn of changes by their stream, and by polling if streams are cut.
func TestPagesFollow(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "/ops")
	one := func() { w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) }) }
	ready := func(n string) string { return `document.querySelectorAll(".figure b")[1].textContent === "` + n + `"` }
	says := func(word string) string {
		return `document.querySelector("#live-switch span").textContent === "` + word + `"`
	}
	one()

	undo := b.inject(`window.setInterval = () => 0`) // no clock
	b.visit(w.url + "/ops/queues/mail")
	b.until(ready("1"))
	one()
	b.until(ready("2"))
	// With a form open, the page does not refresh.
	b.click(`a[data-form][href*="/pause"]`)
	b.until(`document.querySelector("dialog[open] form") !== null`)
	one()
	b.key("Escape")
	b.until(ready("3"))
	b.check(w.url)
	// A refresh without changes is short and leaves the page alone. One with changes does neither.
	refresh := `new Promise((done) => { document.body.addEventListener("htmx:afterRequest", (e) => done(e.detail.xhr.status + " " + ` +
		`document.querySelectorAll("#live .empty").length), {once: true}); document.body.dispatchEvent(new CustomEvent("pawl:refresh")); })`
	b.visit(w.url + "/ops/schedules")
	b.eval(refresh)
	if got := b.eval(refresh); got != "304 1" {
		t.Errorf("a refresh without changes has the status and number of empty states %s, want 304 1", got)
	}
	_, err := admin.New(w.client).Schedules().Create(t.Context(), admin.ScheduleSpec{Name: "s", Every: time.Hour,
		Task: pawl.RawTask{Type: "a"}})
	must(t, err)
	if got := b.eval(refresh); got != "200 0" {
		t.Errorf("a refresh with changes has the status and number of empty states %s, want 200 0", got)
	}
	b.check(w.url)
	undo()

	undo = b.inject(hurry + `; window.EventSource = class { constructor() { this.on = []; setTimeout(() => this.on.forEach((f) => f()), ` +
		`10); } addEventListener(kind, f) { if (kind === "error") this.on.push(f); } close() {} }`)
	b.visit(w.url + "/ops/queues/mail")
	b.until(says("Every 5 s"))
	one()
	b.until(ready("4"))
	b.check(w.url)
	undo()

	// If there are too many streams, the server says so, and how often to poll.
	undo = b.inject(hurry + `; window.EventSource = class { addEventListener(kind, f) { if (kind === "full") setTimeout(() => f({data: ` +
		`"30"}), 10); } close() {} }`)
	b.visit(w.url + "/ops/queues/mail")
	b.until(says("Every 30 s") + ` && document.querySelector("#live-switch").title.includes("Too many pages")`)
	one()
	b.until(ready("5"))
	b.check(w.url)
	undo()

	// A page reports that the server does not answer, and that it answers again.
	undo = b.inject(hurry)
	b.visit(w.url + "/ops/queues/mail")
	b.call("Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1,
		"uploadThroughput": -1},
		nil)
	b.until(says("Reconnecting…"))
	b.shoot("reconnecting")
	one()
	b.call("Network.emulateNetworkConditions", map[string]any{"offline": false, "latency": 0, "downloadThroughput": -1,
		"uploadThroughput": -1}, nil)
	b.until(says("Live"))
	b.until(ready("6"))
	undo()
	if _, trouble := b.noted(); len(trouble) > 0 && !strings.Contains(strings.Join(trouble, " "), "ERR_INTERNET_DISCONNECTED") {
		t.Errorf("the page logged errors: %q", trouble)
	}
}
