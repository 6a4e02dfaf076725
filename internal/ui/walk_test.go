package ui_test

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// nasty is sent wherever the API accepts a text. If a page treated it as anything but text, nasties would find out.
const nasty = `"'><img src=x onerror="window.xssed=1"><script>window.xssed=1</script>{{.}}</textarea></title>`

// nasties finds what nasty would have done to a page.
const nasties = `String(window.xssed) + document.querySelectorAll('img, script:not([src]), [onerror]').length`

// check checks the page's activity since the last call.
func (b *browser) check(origin string) {
	b.t.Helper()
	requests, trouble := b.noted()
	for _, r := range requests {
		if !strings.HasPrefix(r, origin+"/") && !strings.HasPrefix(r, "data:") && r != "about:blank" {
			b.t.Errorf("a page made a request to %q, which is another origin", r)
		}
	}
	for _, what := range trouble {
		b.t.Errorf("a page logged an error: %s", what)
	}
	if b.eval(`String(document.documentElement.outerHTML.includes("`+unsafeMark+`"))`) == "true" {
		b.t.Errorf("the page %s contains %s", b.eval("location.href"), unsafeMark)
	}
	if got := b.eval(nasties); got != "undefined0" {
		b.t.Errorf("the page %s did not treat a text as plain text: %s", b.eval("location.href"), got)
	}
}

// step is something that a user does on a page.
type step struct {
	name   string // also that of the screenshot
	at     string // path. Empty: where the previous step ended
	click  string // what opens the form
	fill   []string
	submit bool   // the form then leads to another page
	once   bool   // the form then shows a secret
	says   string // what the page shows in the end
}

// do performs a step.
func (b *browser) do(w *world, s step) {
	b.t.Helper()
	if s.at != "" {
		b.visit(w.url + s.at)
	}
	if s.click != "" {
		b.click(s.click)
	}
	if s.click != "" && (s.submit || s.once) {
		b.until(`document.querySelector("dialog[open] form, #live > form.form") !== null`)
	}
	for i := 0; i+1 < len(s.fill); i += 2 {
		b.fill(s.fill[i], s.fill[i+1])
	}
	if s.submit {
		b.shoot("form-" + s.name)
		b.loading(func() { b.click("dialog[open] .buttons button[type=submit], #live .buttons button[type=submit]") })
	}
	if s.once {
		b.click("dialog[open] .buttons button[type=submit]")
		b.until(`document.querySelector("dialog[open] .once code") !== null`)
		b.shoot("form-" + s.name)
		b.click("dialog .once .copy")
		b.until(`document.getElementById("tell").classList.contains("shown")`)
		b.loading(func() { b.click("dialog .once .buttons a") })
	}
	if s.says != "" {
		b.until(fmt.Sprintf(`document.body.innerText.includes(%s)`, jsString(s.says)))
	}
	b.check(w.url)
}

// TestEveryAction performs every action as a user would, in a real browser.
func TestEveryAction(t *testing.T) {
	b := startHidden(t)
	w := startWorld(t, "")
	w.seed(t)
	dead := w.newest(t, admin.Filter{Queue: "mail", States: []pawltype.State{pawltype.StateDead}})
	retrying := w.newest(t, admin.Filter{Queue: "mail", States: []pawltype.State{pawltype.StateRetrying}})
	ready := w.newest(t, admin.Filter{Queue: "media", States: []pawltype.State{pawltype.StateReady}})
	running := w.newest(t, admin.Filter{Queue: "media", States: []pawltype.State{pawltype.StateClaimed}})
	var group, open string
	for g, err := range admin.New(w.client).Groups().List(t.Context()) {
		must(t, err)
		if g.Open {
			open = g.ID
		} else {
			group = g.ID
		}
	}
	link := func(what string) string { return fmt.Sprintf(`main a[data-form][href*="%s"]`, what) }
	for _, s := range []step{
		{name: "you", at: "/settings", click: link("/settings/you"), fill: []string{"name", "carol"}, submit: true,
			says: `record you as "carol"`},
		{name: "new-queue", at: "/queues", click: link("/new-queue"), fill: []string{"queue", "exports"}, submit: true,
			says: "Created queue exports."},
		{name: "queue-settings", at: "/queues/exports/settings", fill: []string{"max_running", "3", "rate", "50/1m burst 5", "lease", "2m",
			"keys", `"tenant-1" running 1`, "breaker.window", "2m"}, submit: true, says: "50/1m burst 5"},
		{name: "queue-delete", click: link("/delete"), submit: true, says: "Deleted queue exports"},
		{name: "pause", at: "/queues/mail", click: link("/pause"), fill: []string{"reason", "the provider is down"}, submit: true,
			says: "the provider is down"},
		{name: "resume", click: link("/resume"), submit: true, says: "Resumed the queue"},
		{name: "resume-key", at: "/queues/media", click: `.notice-row a[data-form]`, submit: true, says: "Resumed key tenant-4"},
		{name: "close-breaker", at: "/queues/billing", click: link("/close-breaker"), submit: true,
			says: "Closed the breaker of card.charge"},
		{name: "purge", at: "/queues/reports", click: link("/purge"), fill: []string{"confirm", "reports"}, submit: true,
			says: "Discarded 36 tasks"},
		{name: "retry", at: "/tasks/" + dead, click: link("/retry"), submit: true, says: "Retried."},
		{name: "edit", click: link("/edit"), fill: []string{"priority", "high", "payload", `{"user": 99}`}, submit: true,
			says: `"user": 99`},
		{name: "run-now", at: "/tasks/" + retrying, click: link("/run-now"), submit: true, says: "The task is ready."},
		{name: "discard", click: link("/discard"), fill: []string{"reason", "a test"}, submit: true, says: "Discarded."},
		{name: "cancel", at: "/tasks/" + ready, click: link("/cancel"), submit: true, says: "Cancelled."},
		{name: "cancel-running", at: "/tasks/" + running, click: link("/cancel"), submit: true, says: "Cancelled."},
		{name: "enqueue", at: "/enqueue", fill: []string{"type", "mail.welcome", "queue", "mail", "payload", `{"to": "new@example.com"}`,
			"tags", "vip, de"}, submit: true, says: "Enqueued."},
		{name: "view-save", at: "/tasks?q=" + url.QueryEscape("queue:mail state:dead"), click: link("/views/save"), fill: []string{"name",
			"Failed mail"}, submit: true, says: "Saved the view Failed mail."},
		{name: "view-remove", click: link("/views/remove"), submit: true, says: "Removed the view Failed mail."},
		{name: "bulk", at: "/tasks?q=" + url.QueryEscape("queue:media state:ready key:tenant-3"), click: link("action=set_priority"),
			fill: []string{"priority", "low", "reason", "it can wait"}, submit: true, says: "Started."},
		{name: "bulk-replay", at: "/dead?queue=mail", click: link("action=replay"), fill: []string{"rate", "1", "canary", "50"},
			submit: true, says: "running"},
		{name: "operation-pause", click: link("/pause"), submit: true, says: "paused"},
		{name: "operation-resume", click: link("/resume"), submit: true, says: "running"},
		{name: "operation-abort", click: link("/abort"), submit: true, says: "aborted"},
		{name: "new-schedule", at: "/new-schedule", fill: []string{"name", "cleanup", "every", "1h", "task.type", "db.vacuum", "task.queue",
			"books"}, submit: true, says: "Created."},
		{name: "schedule-edit", at: "/schedules/digest-hourly/edit", fill: []string{"cron", "30 * * * *"}, submit: true,
			says: "30 * * * *"},
		{name: "schedule-trigger", at: "/schedules/cleanup", click: link("/trigger"), submit: true, says: "db.vacuum"},
		{name: "schedule-pause", at: "/schedules/cleanup", click: link("/pause"), submit: true, says: "Paused."},
		{name: "schedule-resume", click: link("/resume"), submit: true, says: "Resumed."},
		{name: "schedule-delete", click: link("/delete"), submit: true, says: "Deleted schedule cleanup"},
		{name: "worker-quiet", at: "/workers", click: link("/quiet"), fill: []string{"for", "2h", "reason", "a new version comes"},
			submit: true, says: "The worker takes no new tasks for 2 h"},
		{name: "worker-resume", click: link("/resume"), submit: true, says: "The worker takes tasks again."},
		{name: "group-close", at: "/groups/" + open, click: link("/close"), submit: true, says: "Closed."},
		{name: "group-cancel", at: "/groups/" + group, click: link("/cancel"), submit: true, says: "Cancelled."},
		{name: "replay-ticked", at: "/dead?queue=mail", click: `td.tick input`, says: "1 selected:"},
		{name: "replay-ticked-form", click: `.of-ticked button[value="replay"]`, submit: true, says: "Replayed 1 task."},
		{name: "replay-group", click: `tr[id^="g-"] a[href*="action=replay"]`, submit: true, says: "fingerprint:"},
		{name: "discard-dead", at: "/dead?queue=books", click: link("action=discard"), submit: true, says: "Started."},
		{name: "new-token", at: "/tokens", click: link("/new-token"), fill: []string{"name", "robot", "roles", "observe,produce", "queues",
			"mail*"}, once: true, says: "robot"},
		{name: "rotate", click: link("/tokens/robot/rotate"), fill: []string{"overlap", "1h"}, once: true, says: "the old secret expires"},
		{name: "revoke", click: link("/tokens/robot/revoke"), submit: true, says: "Revoked robot."},
		{name: "new-webhook", at: "/webhooks", click: link("/new-webhook"), fill: []string{"name", "oncall", "url",
			"https://hooks.example.com/pawl", "events", "task.dead,queue.over", "queues", "mail*", "depth_over", "100"}, once: true,
			says: "hooks.example.com"},
		{name: "webhook-edit", click: link("/webhooks/oncall/edit"), fill: []string{"wait_over", "10m"}, submit: true,
			says: "Oldest wait over"},
		{name: "webhook-pause", click: link("/webhooks/oncall/pause"), fill: []string{"reason", "it moves"},
			submit: true, says: "it moves"},
		{name: "webhook-resume", click: link("/webhooks/oncall/resume"), submit: true, says: "Resumed."},
		{name: "webhook-test", click: link("/webhooks/oncall/test"), submit: true, says: "Not delivered"},
		{name: "webhook-rotate", click: link("/webhooks/oncall/rotate"), fill: []string{"overlap", "1h"}, once: true,
			says: "Secret rotated"},
		{name: "webhook-remove", click: link("/webhooks/oncall/remove"), submit: true, says: "Removed webhook oncall."},
		{name: "new-marker", at: "/", click: link("/new-marker"), fill: []string{"kind", "incident", "title", "provider down",
			"at", "50m", "url", "https://status.example.com/42", "queues", "mail"}, submit: true, says: "incident: provider down, open"},
		{name: "marker-end", at: "/queues/mail", click: link("/end"), submit: true, says: "Ended: incident: mail provider is down"},
		{name: "marker-remove", at: "/markers?kind=incident", click: link("/remove"), fill: []string{"reason", "a test"},
			submit: true, says: "Removed."},
		{name: "quotas", at: "/namespaces", click: link("/namespaces/default/quotas"), fill: []string{"max_running", "500", "max_backlog",
			"50,000"}, submit: true, says: "Saved the quotas of default."},
		{name: "new-namespace", at: "/namespaces", click: link("/new-namespace"), fill: []string{"name", "team-a"}, submit: true,
			says: "Created namespace team-a."},
		{name: "choose", click: ".space", fill: []string{"namespace", "team-a"}, submit: true, says: "Now showing namespace team-a."},
		{name: "namespace-shown", at: "/namespaces", click: `main a[href="/in/team-a/"]`, says: "Nothing has been enqueued"},
		{name: "namespace-remove", at: "/namespaces", click: link("/namespaces/team-a/remove"), fill: []string{"confirm", "team-a"},
			submit: true, says: "Removed namespace team-a."},
		{name: "drain", at: "/cluster", click: link("/drain"), submit: true, says: "n1: draining"},
		{name: "undrain", click: link("/undrain"), submit: true, says: "takes replicas again"},
	} {
		t.Run(s.name, func(t *testing.T) {
			b.t = t
			b.do(w, s)
		})
	}
	b.t = t
	kept, err := admin.New(w.client).Schedules().Get(t.Context(), "digest-hourly")
	must(t, err)
	if kept.Task.Headers["tenant"] != "all" {
		t.Errorf("editing a schedule lost a header of its task: %v", kept.Task.Headers)
	}
	names := map[string]int{}
	for e, err := range admin.New(w.client).Audit().List(t.Context(), admin.AuditFilter{}) {
		must(t, err)
		if e.Interface == "ui" {
			names[e.Actor]++
		}
	}
	if names["carol"] < 25 || len(names) != 1 {
		t.Errorf("the audit log has the actors %v over the UI, want only carol", names)
	}
}

// TestFormsAndKeys covers what scripts do.
func TestFormsAndKeys(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "/ops")
	w.enqueue(t, 3, func(i int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	b.visit(w.url + "/ops/queues")

	// Relative times advance by themselves, with the same wording as in rendered pages.
	for _, left := range []struct {
		seconds int
		want    string
	}{{3600 - 20, "in 1 h"}, {-1500, "25 min ago"}} {
		b.eval(fmt.Sprintf(`{ const t = document.createElement("time"); t.id = "probe"; t.dateTime = new Date(Date.now() + %d * `+
			`1000).toISOString(); document.body.append(t); }`, left.seconds))
		b.until(fmt.Sprintf(`document.getElementById("probe").textContent === %q`, left.want))
		b.eval(`document.getElementById("probe").remove()`)
	}

	// A refused form says so, and keeps its input.
	b.click(`main a[data-form][href*="/new-queue"]`)
	b.until(`document.querySelector("dialog[open] form") !== null`)
	b.fill("queue", "no good")
	b.click("dialog .buttons button[type=submit]")
	b.until(`document.querySelector("dialog[open] .wrong-says") !== null`)
	if got := b.eval(`document.querySelector("dialog [name=queue]").value`); got != "no good" {
		t.Errorf("after the refusal the field has the value %q", got)
	}
	b.shoot("form-refused")
	b.click("dialog [data-close]")
	b.until(`document.querySelector("dialog[open]") === null`)

	w.walkAChart(t, b)

	// Letters open pages, / the search, and ? the list of keys.
	b.loading(func() { b.key("t") })
	b.until(`location.pathname === "/ops/tasks"`)
	b.key("/")
	b.until(`document.activeElement.id === "search"`)
	b.completes()
	b.key("Escape")
	b.until(`document.activeElement.id !== "search"`)
	b.key("?")
	b.until(`document.getElementById("help").open`)
	b.shoot("help")
	b.key("Escape")
	b.until(`!document.getElementById("help").open`)
	b.key("j")
	b.until(`document.activeElement.closest("tr[data-row]") !== null`)

	// JSON is checked while it is typed.
	b.loading(func() { b.key("n") })
	b.fill("payload", `{"a": }`)
	b.until(`document.querySelector(".json-says.bad") !== null`)
	b.fill("payload", `{"a": 1}`)
	b.until(`document.querySelector(".json-says").textContent === "valid JSON"`)
	b.click("#live .buttons button")
	b.until(`document.querySelector("#live .wrong-says") !== null && document.querySelector("#live [name=payload]").value === '{"a": 1}'`)

	// While a schedule is typed, its next runs or its errors are shown.
	b.visit(w.url + "/ops/new-schedule")
	b.fill("cron", "0 3 * * *")
	b.fill("time_zone", "Europe/Vienna")
	b.until(`document.querySelectorAll(".preview .runs li").length === 5 && /At 03:00 every day[^]*03:00:00 ` +
		`CES?T/.test(document.querySelector(".preview").innerText)`)
	b.shoot("form-preview")
	b.fill("cron", "61 3 * * *")
	b.until(`document.querySelector(".preview .wrong-says")?.textContent.includes("61")`)
	b.visit(w.url + "/ops/queues")

	// The page follows changes until it is paused. Forms that are open stay open.
	b.visit(w.url + "/ops/queues/mail")
	b.until(`document.querySelector(".figure b").parentElement.parentElement.children[1].querySelector("b").textContent === "3"`)
	w.enqueue(t, 1, func(i int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	b.until(`document.querySelectorAll(".figure b")[1].textContent === "4"`)
	b.click("#live-switch")
	b.until(`document.querySelector("#live-switch span").textContent === "Paused"`)
	w.enqueue(t, 1, func(i int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	b.eval(`new Promise((done) => { const look = async () => (await (await fetch(location.href)).text()).includes("<b>5</b>") ? done() : ` +
		`look(); look(); })`)
	if got := b.eval(`document.querySelectorAll(".figure b")[1].textContent`); got != "4" {
		t.Errorf("a paused page shows %q", got)
	}
	b.click("#live-switch")
	b.until(`document.querySelectorAll(".figure b")[1].textContent === "5"`)

	// Space scrolls as usual, and l pauses.
	b.size(1440, 400, false)
	b.eval(`document.activeElement.blur()`)
	b.key(" ")
	b.until(`scrollY > 50 && document.querySelector("#live-switch span").textContent === "Live"`)
	b.key("l")
	b.until(`document.querySelector("#live-switch span").textContent === "Paused"`)
	b.key("l")
	b.until(`document.querySelector("#live-switch span").textContent === "Live"`)
	b.size(1440, 900, false)

	// Letter shortcuts can be switched off and on again.
	keys := func(word string) {
		b.visit(w.url + "/ops/settings/you")
		b.fill("keys", word)
		b.loading(func() { b.click("#live .buttons button") })
		b.visit(w.url + "/ops/queues")
	}
	keys("off")
	for _, key := range []string{"t", "l", ".", "?", "/", "j", "x", "n"} {
		b.key(key)
	}
	if got := b.eval(`location.pathname + document.activeElement.id + String(document.getElementById("help").open) + ` +
		`document.querySelector("#live-switch span").textContent + (document.documentElement.dataset.theme ?? "")`); got !=
		"/ops/queuesfalseLive" {
		t.Errorf("shortcuts that are turned off had an effect: %s", got)
	}
	b.click("#help-switch")
	b.until(`document.getElementById("help").innerText.includes("shortcuts are off")`)
	b.key("Escape")
	keys("on")
	b.key("l")
	b.until(`document.querySelector("#live-switch span").textContent === "Paused"`)
	b.key("l")

	// The choice of light or dark is kept.
	b.dark(false)
	b.key(".")
	b.until(`document.documentElement.dataset.theme === "dark"`)
	b.visit(w.url + "/ops/queues")
	b.until(`document.documentElement.dataset.theme === "dark"`)
	b.check(w.url)
}

// completes types into the search, and accepts suggestions by keys and by a click.
func (b *browser) completes() {
	b.t.Helper()
	const value, chosen = `document.getElementById("search").value`,
		`document.getElementById("search").getAttribute("aria-activedescendant")`
	write := func(text string) {
		b.eval(fmt.Sprintf(`{ const s = document.getElementById("search"); s.setRangeText(%q, s.value.length, s.value.length, "end"); `+
			`s.dispatchEvent(new Event("input")); }`, text))
		b.until(`document.getElementById("search").getAttribute("aria-expanded") === "true"`)
	}
	write("sta")
	b.key("ArrowDown")
	b.until(chosen + ` === "search-item-0"`)
	b.shoot("search")
	b.key("Tab")
	b.until(value + ` === "state:" && document.querySelectorAll("#search-list li").length === 9`)
	b.key("ArrowUp")
	b.until(chosen + ` === "search-item-8" && document.getElementById("search-item-8").getAttribute("aria-selected") === "true"`)
	b.key("Enter")
	b.until(value + ` === "state:cancelled " && document.getElementById("search-list").hidden`)
	write("queue:m")
	b.click("#search-list li")
	b.until(value + ` === "state:cancelled queue:mail " && document.activeElement.id === "search"`)
	write("t")
	b.key("Escape")
	b.until(`document.getElementById("search-list").hidden && document.activeElement.id === "search"`)
}

// TestAgesUseServersClock: the browser's clock may be hours off, and may be changed while a page is open.
func TestAgesUseServersClock(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.In(50*time.Minute)) })
	defer b.inject(`{ const real = Date.now; window.wrong = -30 * 60 * 1000; Date.now = () => real() + window.wrong; ` +
		`localStorage.setItem("pawl-paused", "yes"); }`)()
	b.visit(w.url + "/tasks/" + w.newest(t, admin.Filter{Queue: "mail"}))
	due := fmt.Sprintf(`document.querySelector('time[title="%s"]').textContent`, b.eval(`document.querySelector(".timeline time").title`))
	b.eval(`document.querySelectorAll(".timeline time").forEach((e) => { e.textContent = ""; })`)
	const right, wrong = `/^in (4[5-9]|50) min$/`, `/^in 1[0-5] min$/` // some minutes may pass on a busy machine
	b.until(right + `.test(` + due + `)`)
	b.eval(`window.wrong = 5 * 60 * 1000`)
	b.until(wrong + `.test(` + due + `)`) // the page has not refreshed yet
	b.click("#live-switch")
	b.until(right + `.test(` + due + `)`) // corrected by the response
	b.click("#live-switch")
	b.eval(`document.querySelectorAll(".timeline time").forEach((e) => { e.textContent = ""; })`)
	b.until(due + ` !== ""`)
	if got := b.eval(due); !regexp.MustCompile(`^in (4[5-9]|50) min$`).MatchString(got) {
		t.Errorf("after a response the page shows %q", got)
	}
	b.check(w.url)
}

// TestNoNameReadsAsAnother: a change of direction within a name is visible and has no effect. Copying the name yields all of it.
func TestNoNameReadsAsAnother(t *testing.T) {
	b := startHidden(t)
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item {
		return job("refund\u202eegrahc.", "{\"note\":\"a\u202eb\"}", pawl.Queue("mail"), pawl.Key("\u05d0 7"))
	})
	for path, at := range map[string]string{"/tasks": "#live a.name", "/tasks/" + w.newest(t, admin.Filter{Queue: "mail"}): "h1"} {
		b.visit(w.url + path)
		name := `document.querySelector("` + at + `")`
		if got := b.eval(name + `.textContent`); got != "refund\u202eegrahc." {
			t.Errorf("%s: the name is %q", path, got)
		}
		// Users read what is displayed: e is to the left of g, after the mark.
		order := b.eval(`(() => { const last = [...` + name + `.childNodes].at(-1), x = (at) => { const r = document.createRange(); r.setStart(last, at); r.setEnd(last, at + 1); return r.getBoundingClientRect().left; };
			return last.textContent.trim() + (x(0) < x(1) && x(1) < x(2)); })()`)
		if order != "egrahc.true" {
			t.Errorf("%s: the letters are displayed in another order: %s", path, order)
		}
		if got := b.eval(`getComputedStyle(document.querySelector(".turn"), "::before").content`); got != `"U+202E"` {
			t.Errorf("%s: the mark is displayed as %s", path, got)
		}
		b.shoot("turned")
	}
	b.check(w.url)
}

// TestLabelsAlign: adjacent fields have aligned labels and aligned inputs.
func TestLabelsAlign(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 3, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	for _, width := range []int{1440, 820, 390} {
		b.size(width, 900, false)
		for _, path := range []string{"/operations/new?action=replay&q=queue:mail", "/operations/new?action=cancel&q=queue:mail",
			"/operations/new?action=set_priority&q=queue:mail", "/queues/mail/settings", "/enqueue", "/new-schedule",
			"/new-token", "/new-webhook", "/new-marker", "/namespaces/default/quotas"} {
			b.visit(w.url + path)
			got := b.eval(`(() => {
				for (const fold of document.querySelectorAll("details")) fold.open = true;
				const fields = [...document.querySelectorAll(".fields > .field")].map((f) => ({ box: f.getBoundingClientRect(), label: f.querySelector("label"), input: f.querySelector("input, select, textarea") }));
				const bad = [];
				for (const f of fields) for (const g of fields) {
					if (g.box.left <= f.box.left || g.box.top >= f.box.bottom || f.box.top >= g.box.bottom) continue;
					for (const part of ["label", "input"]) if (f[part].type !== "checkbox" && g[part].type !== "checkbox" && Math.abs(f[part].getBoundingClientRect().top - g[part].getBoundingClientRect().top) > 1) bad.push(f.label.innerText + " and " + g.label.innerText + ": " + part);
				}
				return bad.slice(0, 3).join("; ");
			})()`)
			if got != "" {
				t.Errorf("%s at a width of %d: labels or inputs are not aligned: %s", path, width, got)
			}
		}
	}
}

// TestTickedRows acts on single rows while the list keeps refreshing.
func TestTickedRows(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "/ops")
	one := func() {
		w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.In(time.Hour)) })
	}
	for range 4 {
		one()
	}
	b.visit(w.url + "/ops/tasks?q=queue:mail")
	b.until(`document.querySelectorAll("td.tick input").length === 4 && document.querySelector("#live-switch span").textContent === "Live"`)
	b.click("tbody tr:nth-child(2) .tick input")
	b.until(`document.querySelector("#live-switch span").textContent === "Held: 1 selected" && ` +
		`document.querySelector(".ticked-count").textContent === "1"`)
	id := b.eval(`document.querySelector("td.tick input:checked").value.split(":")[0]`)
	one() // the rows stay where they are
	b.key("j")
	b.key("x")
	b.until(`document.querySelector(".ticked-count").textContent === "2" && document.querySelector("input[data-all]").indeterminate`)
	b.key("x")
	b.until(`document.querySelector(".ticked-count").textContent === "1"`)
	b.shoot("ticked")
	if got := b.eval(`String([...document.querySelectorAll(".bulk.of-all")].some((e) => e.checkVisibility()))`); got != "false" {
		t.Error("with selected rows the page offers operations on all matching tasks")
	}
	b.click(`.of-ticked button[value="run_now"]`)
	b.until(`document.querySelector("dialog[open] form") !== null`)
	b.loading(func() { b.click("dialog .buttons button[type=submit]") })
	b.until(`document.body.innerText.includes("Made ready 1 task.") && location.pathname + location.search === ` +
		`"/ops/tasks?q=queue%3Amail" && document.querySelectorAll("td.tick input").length === 5`)
	got, err := w.client.Task(t.Context(), id)
	must(t, err)
	if got.State != pawltype.StateReady {
		t.Errorf("the selected task is %s, want ready", got.State)
	}
	_, err = admin.New(w.client).Tasks().Cancel(t.Context(), id)
	must(t, err)
	b.click("input[data-all]")
	b.until(`document.querySelector(".ticked-count").textContent === "5"`)
	b.click(`.of-ticked button[value="run_now"]`) // one task has ended
	b.until(`document.querySelector("dialog[open] form") !== null`)
	b.loading(func() { b.click("dialog .buttons button[type=submit]") })
	b.until(`document.body.innerText.includes("Made ready 4 tasks.") && document.body.innerText.includes("1 refused:")`)
	b.click("tbody tr .tick input")
	b.until(`document.querySelector("#live-switch span").textContent === "Held: 1 selected"`)
	one()
	b.click("tbody tr .tick input")
	b.until(`document.querySelector("#live-switch span").textContent === "Live" && document.querySelectorAll("td.tick input").length === 6`)
	b.check(w.url)
}

// everywhere sets every field that a caller can set to nasty, as far as the API accepts it.
func (w *world) everywhere(t testing.TB) (task, group string) {
	t.Helper()
	ctx := t.Context()
	client := w.client
	spec := func(opts ...pawl.Option) pawl.Item {
		return job(nasty, jsString(nasty), append(opts, pawl.Queue("x"), pawl.Key(nasty), pawl.Tags(nasty), pawl.Header("note", nasty),
			pawl.MaxAttempts(1))...)
	}
	after := spec()
	made, err := client.EnqueueGroup(ctx, pawl.GroupSpec{Name: nasty, Open: true, Tasks: []pawl.Item{spec(pawl.IdempotencyKey(nasty),
		pawl.Unique(pawltype.UniqueOpts{Key: nasty}))}, OnComplete: &after})
	must(t, err)
	w.enqueue(t, 3, func(i int) pawl.Item { return spec(pawl.Then(after.Args, after.Options...)) })
	claimed, err := claims.New(client).Claim(ctx, claims.Request{Queues: pawl.Strict{"x"}, Max: 4, Worker: nasty, Lease: time.Hour})
	must(t, err)
	for i, c := range claimed {
		_, err = claims.New(client).Extend(ctx, c, claims.Extension{Progress: &pawltype.Progress{Percent: 5, Message: nasty},
			Checkpoint: []byte(nasty)})
		must(t, err)
		switch i {
		case 0:
			c.SetRawResult("text/html", []byte(nasty))
			must(t, claims.New(client).Ack(ctx, c))
		case 1:
			_, err = claims.New(client).Fail(ctx, c, pawl.Poison(fmt.Errorf("%s", nasty)))
			must(t, err)
		case 2:
			_, err = claims.New(client).Fail(ctx, c, &pawltype.PanicError{Value: nasty, Stack: []byte(nasty)})
			must(t, err)
			task = c.ID
		}
	}
	operator := admin.New(client).WithActor("<script>window.xssed=1</script>").WithReason(nasty)
	_, err = operator.Schedules().Create(ctx, admin.ScheduleSpec{Name: "nasty", Every: time.Hour, Owner: nasty, Task: after.Args,
		Options: after.Options})
	must(t, err)
	_, err = operator.WithReason(nasty).Schedules().Pause(ctx, "nasty")
	must(t, err)
	_, err = operator.WithReason(nasty).Queues().PauseSubset(ctx, "x", admin.Subset{Type: nasty})
	must(t, err)
	_, err = operator.WithReason(nasty).Queues().Pause(ctx, "x")
	must(t, err)
	_, err = operator.Queues().Put(ctx, "y", admin.QueueSettings{Keys: map[string]admin.KeyLimits{nasty: {Weight: 2}},
		Breakers: map[string]admin.Breaker{nasty: {}}})
	must(t, err)
	_, err = operator.WithReason(nasty).Operations().Start(ctx, admin.OperationSpec{Action: admin.ActionReplay,
		Filter: &admin.Filter{Error: nasty, Queue: "x"}, Canary: 1})
	must(t, err)
	_, err = operator.Access().CreateToken(ctx, admin.TokenSpec{Name: "nasty", Queues: []string{"*"},
		Roles: []admin.Role{admin.RoleObserve}})
	must(t, err)
	_, err = operator.Markers().Add(ctx, admin.MarkerSpec{Kind: admin.MarkerIncident, Title: nasty, Version: nasty[:90],
		URL: "https://ci.example.com/?" + url.QueryEscape(nasty), Types: []string{nasty}})
	must(t, err)
	_, err = operator.Webhooks().Create(ctx, admin.WebhookSpec{Name: "nasty", URL: "https://hooks.example.com/?" + url.QueryEscape(nasty)})
	must(t, err)
	_, err = operator.WithReason(nasty).Webhooks().Pause(ctx, "nasty")
	must(t, err)
	return task, made.ID
}

// TestTextIsEscaped opens every page that can show nasty.
func TestTextIsEscaped(t *testing.T) {
	b := startHidden(t)
	w := startWorld(t, "")
	task, group := w.everywhere(t)
	claimed := w.newest(t, admin.Filter{Queue: "x", States: []pawltype.State{pawltype.StateClaimed}})
	poisoned := w.newest(t, admin.Filter{Queue: "x", States: []pawltype.State{pawltype.StatePoisoned}})
	done := w.newest(t, admin.Filter{Queue: "x", States: []pawltype.State{pawltype.StateSucceeded}})
	var operation, worker string
	for o, err := range admin.New(w.client).Operations().List(t.Context()) {
		must(t, err)
		operation = o.ID
	}
	for found, err := range admin.New(w.client).Workers().List(t.Context(), admin.WorkerFilter{}) {
		must(t, err)
		worker = found.ID
	}
	var marker string
	for m, err := range admin.New(w.client).Markers().List(t.Context(), admin.MarkerFilter{}) {
		must(t, err)
		marker = m.ID
	}
	text := url.QueryEscape("type:" + `"` + strings.ReplaceAll(nasty, `"`, `\"`) + `"`)
	for _, path := range []string{
		"/", "/queues", "/queues/x", "/queues/y", "/queues/y/settings", "/queues/x/resume?what=type&name=" + url.QueryEscape(nasty),
		"/queues/x/close-breaker?type=" + url.QueryEscape(nasty), "/tasks", "/tasks?q=" + text, "/tasks?q=" + url.QueryEscape(nasty),
		"/tasks/" + task, "/tasks/" + claimed, "/tasks/" + poisoned, "/tasks/" + done, "/tasks/" + task + "/edit",
		"/tasks/" + task + "/retry", "/tasks/" + url.PathEscape(nasty), "/tasks/" + done + "/result", "/types", "/types?like=" +
			url.QueryEscape(nasty),
		"/types/" + url.PathEscape(nasty), "/types/" + url.PathEscape(nasty) + "?queue=x", "/dead", "/dead?queue=" + url.QueryEscape(nasty),
		"/poison", "/schedules", "/schedules/nasty", "/schedules/nasty/edit", "/schedule-preview?cron=" + url.QueryEscape(nasty) +
			"&time_zone=" +
			url.QueryEscape(nasty), "/workers",
		"/workers/" + url.PathEscape(worker), "/workers?queue=" + url.QueryEscape(nasty), "/groups", "/groups/" + group,
		"/groups/" + group +
			"/cancel", "/operations", "/operations/" + operation, "/operations/" + operation + "/abort",
		"/operations/new?action=cancel&q=" + text, "/operations/new?action=" + url.QueryEscape(nasty), "/audit", "/audit?actor=" +
			url.QueryEscape(nasty), "/cluster", "/webhooks",
		"/webhooks/nasty", "/webhooks/nasty/edit", "/webhooks/" + url.PathEscape(nasty), "/markers", "/markers/" + marker + "/end",
		"/new-marker?queues=" + url.QueryEscape(nasty), "/namespaces/" + url.PathEscape(nasty) + "/quotas", "/tokens", "/new-token",
		"/tokens/nasty/revoke", "/tokens/" + url.PathEscape(nasty) + "/rotate", "/namespaces", "/namespaces/" + url.PathEscape(nasty) +
			"/remove",
		"/namespaces/choose?namespace=" + url.QueryEscape(nasty), "/enqueue?queue=" + url.QueryEscape(nasty) + "&type=" +
			url.QueryEscape(nasty),
		"/settings",
	} {
		b.visit(w.url + path)
		if body := b.eval("document.body.innerText"); strings.Contains(body, "internal") &&
			strings.Contains(body, "could not be rendered") {
			t.Errorf("%s: %s", path, body)
		}
		b.check(w.url)
	}
}

// shifts sums up layout shifts as browsers measure them.
const shifts = `window.shifted = 0; window.shiftsOf = new PerformanceObserver((list) => { for (const e of list.getEntries()) ` +
	`window.shifted += e.value; }); shiftsOf.observe({type: "layout-shift", buffered: true})`

// TestNoLayoutShifts checks for layout shifts while pages load and refresh with growing numbers and changing texts.
func TestNoLayoutShifts(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.seed(t)
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"media"}, Max: 3, Lease: time.Hour,
		Worker: "encoder-2.fra/1"})
	must(t, err)
	running := w.newest(t, admin.Filter{Queue: "media", States: []pawltype.State{pawltype.StateClaimed}})
	for _, path := range []string{"/", "/queues", "/queues/mail", "/queues/media", "/tasks?q=queue:billing", "/tasks?q=state:claimed",
		"/tasks/" + running, "/dead?queue=mail", "/poison", "/workers", "/operations", "/cluster", "/schedules"} {
		b.visit(w.url + path)
		b.until(`document.fonts.status === "loaded"`)
		b.eval(shifts)
		for i := range 3 {
			for n, c := range claimed {
				_, err := claims.New(w.client).Extend(t.Context(), c, claims.Extension{Lease: time.Hour, Progress: &pawltype.Progress{
					Percent: float64(30*i + n), Message: strings.Repeat("frame of many ", 1+4*i)}})
				must(t, err)
			}
			w.enqueue(t, 400, func(int) pawl.Item { return job("video.encode", `{}`, pawl.Queue("media")) })
			b.eval(`new Promise((done) => { document.body.addEventListener("htmx:afterRequest", () => requestAnimationFrame(() => ` +
				`requestAnimationFrame(done)), {once: true}); document.body.dispatchEvent(new CustomEvent("pawl:refresh")); })`)
		}
		b.eval(`shiftsOf.takeRecords().forEach((e) => { window.shifted += e.value; })`)
		if got := b.eval(`window.shifted < 0.02`); got != "true" {
			t.Errorf("%s: the layout shift is %s, want less than 0.02", path, b.eval("window.shifted"))
		}
	}
}

// everyLook returns the pages of a shop in the middle of its day, by the names of their screenshots.
func (w *world) everyLook(t testing.TB) map[string]string {
	t.Helper()
	dead := w.newest(t, admin.Filter{Queue: "books", States: []pawltype.State{pawltype.StateDead}})
	running := w.newest(t, admin.Filter{Queue: "media", States: []pawltype.State{pawltype.StateClaimed}})
	var group, operation string
	for g, err := range admin.New(w.client).Groups().List(t.Context()) {
		must(t, err)
		group = g.ID
	}
	for o, err := range admin.New(w.client).Operations().List(t.Context()) {
		must(t, err)
		operation = o.ID
	}
	return map[string]string{"overview": "/?window=5m", "queues": "/queues", "queue": "/queues/mail", "queue-breaker": "/queues/billing",
		"queue-settings": "/queues/media/settings", "tasks": "/tasks", "tasks-filter": "/tasks?q=queue:mail+state:dead,retrying",
		"task-dead": "/tasks/" + dead, "task-running": "/tasks/" + running, "enqueue": "/enqueue", "dead": "/dead", "poison": "/poison",
		"schedules": "/schedules", "schedule": "/schedules/nightly-report", "groups": "/groups", "group": "/groups/" + group,
		"operations": "/operations", "operation": "/operations/" + operation, "audit": "/audit", "workers": "/workers",
		"cluster": "/cluster", "webhooks": "/webhooks", "webhook": "/webhooks/pager", "new-webhook": "/new-webhook", "markers": "/markers",
		"types": "/types?order=most", "type": "/types/push.send", "new-marker": "/new-marker", "tokens": "/tokens",
		"new-token": "/new-token", "namespaces": "/namespaces", "settings": "/settings",
		"bulk": "/operations/new?action=discard&q=queue:mail+state:dead"}
}

// TestLook takes screenshots of every page for visual review: on a desktop and on a phone, light and dark, in full and
// with the data of a busy cluster. PAWL_PAGES is a regular expression that selects some of them.
func TestLook(t *testing.T) {
	if shots() == "" {
		t.Skip("PAWL_SHOTS is not set to a directory for screenshots")
	}
	only, err := regexp.Compile(os.Getenv("PAWL_PAGES"))
	must(t, err)
	b := startBrowser(t)
	w := startWorld(t, "")
	b.visit(w.url + "/")
	b.shoot("empty")
	w.fill(t)
	w.showLost(b)
	pages := w.everyLook(t)
	w.moreLooks(t, pages)
	for _, look := range []struct {
		name   string
		dark   bool
		width  int
		height int
	}{{"desk-light", false, 1440, 900}, {"desk-dark", true, 1440, 900}, {"phone-light", false, 390, 844}, {"phone-dark", true, 390, 844}} {
		b.dark(look.dark)
		for name, path := range pages {
			if !only.MatchString(name) {
				continue
			}
			b.size(look.width, look.height, look.width < 500)
			b.visit(w.url + path)
			b.shootWhole(look.name+"-"+name, look.width)
			if got := b.eval(`document.documentElement.scrollWidth <= innerWidth`); got != "true" {
				t.Errorf("%s is wider than a %s window", path, look.name)
			}
		}
	}
	b.check(w.url)
}

// moreLooks adds pages that only fill creates, and those that look different with a menu open.
func (w *world) moreLooks(t testing.TB, pages map[string]string) {
	t.Helper()
	for name, f := range map[string]admin.Filter{
		"task-ready": {Queue: "search", States: []pawltype.State{pawltype.StateReady}}, "task-retrying": {Queue: "push",
			States: []pawltype.State{pawltype.StateRetrying}},
		"task-succeeded": {Queue: "exports", States: []pawltype.State{pawltype.StateSucceeded}}, "task-held": {Queue: "billing",
			States: []pawltype.State{pawltype.StateReady}},
		"task-scheduled": {Queue: "imports", States: []pawltype.State{pawltype.StateScheduled}}, "task-poisoned": {Queue: "push",
			States: []pawltype.State{pawltype.StatePoisoned}},
	} {
		pages[name] = "/tasks/" + w.newest(t, f)
	}
	for _, lost := range []bool{true, false} {
		page, err := admin.New(w.client).Workers().ListPage(t.Context(), admin.WorkerFilter{Lost: new(lost)},
			pawltype.PageRequest{Limit: 1})
		must(t, err)
		pages[map[bool]string{true: "worker-lost", false: "worker"}[lost]] = "/workers/" + url.PathEscape(page.Items[0].ID)
	}
	pages["queue-open"], pages["queue-paused"], pages["new-schedule"], pages["api"] = "/queues/thumbnails", "/queues/reports",
		"/new-schedule", "/docs/api"
	pages["quotas"], pages["you"], pages["pause-form"], pages["purge-form"], pages["not-found"] = "/namespaces/default/quotas",
		"/settings/you", "/queues/mail/pause", "/queues/mail/purge", "/nothing-here"
	pages["tasks-none"], pages["bulk-replay"] = "/tasks?q=queue:mail+type:none", "/operations/new?action=replay&q=queue:push+state:dead"
}

// TestKeyboardActsOnRow: x, j, k and Enter act on the selected row, wherever refreshes have moved it, and on none if it is gone.
func TestKeyboardActsOnRow(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "/ops")
	one := func() {
		w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.In(time.Hour)) })
	}
	rows := func(n int) { b.until(fmt.Sprintf(`document.querySelectorAll("tbody tr").length === %d`, n)) }
	focused := `(document.activeElement.closest("[data-row]")?.id ?? "")`
	ticked := `String([...document.querySelectorAll("td.tick input:checked")].map((e) => "t-" + e.value.split(":")[0]))`
	says := func(text string) {
		b.until(`document.getElementById("tell").classList.contains("shown") && document.getElementById("tell").textContent.includes("` +
			text +
			`")`)
	}
	for range 5 {
		one()
	}
	b.visit(w.url + "/ops/tasks?q=queue:mail+state:scheduled")
	b.until(`document.querySelector("#live-switch span").textContent === "Live"`)
	b.key("x")
	says("No row is selected")
	ids := strings.Split(b.eval(`String([...document.querySelectorAll("tbody tr")].map((r) => r.id))`), ",")
	for range 3 {
		b.key("j")
	}
	b.until(focused + ` === "` + ids[2] + `"`)
	one()
	one() // they come first: the selected row is now two rows below
	rows(7)
	b.key("x")
	if got := b.eval(ticked); got != ids[2] {
		t.Errorf("after a refresh, x selected %s, but the focus was on %s", got, ids[2])
	}
	b.key("x")
	b.until(`document.querySelector("#live-switch span").textContent === "Live"`)
	one()
	rows(8)
	b.key("j")
	b.until(focused + ` === "` + ids[3] + `"`)
	b.key("k")
	b.key("k")
	b.until(focused + ` === "` + ids[1] + `"`)
	one()
	rows(9)
	if got := b.eval(`document.activeElement.textContent + " " + ` + focused); got != "a "+ids[1] {
		t.Errorf("after a refresh the focus is on %q, want the task of row %s", got, ids[1])
	}
	b.eval(`document.activeElement.blur()`)
	b.loading(func() { b.key("Enter") })
	if got := b.eval("location.pathname"); got != "/ops/tasks/"+ids[1][2:] {
		t.Errorf("Enter opened %s, but the row was %s", got, ids[1])
	}

	for _, key := range []string{"x", "j", "k", "Enter"} {
		b.visit(w.url + "/ops/tasks?q=queue:mail+state:scheduled")
		b.until(`document.querySelector("#live-switch span").textContent === "Live"`)
		b.key("j")
		b.key("j")
		gone := b.eval(focused)
		before := b.eval(`document.querySelectorAll("tbody tr").length`)
		_, err := admin.New(w.client).Tasks().Cancel(t.Context(), gone[2:])
		must(t, err)
		b.until(`document.querySelectorAll("tbody tr").length < ` + before)
		b.key(key)
		says("no longer here")
		if got := b.eval(ticked + ` + ` + focused + ` + location.pathname`); got != "/ops/tasks" {
			t.Errorf("after its row was gone, the key %s caused %q", key, got)
		}
		b.key("j") // continue with the row that took its place
		b.until(focused + ` === document.querySelectorAll("tbody tr")[1].id`)
	}
	b.check(w.url)
}
