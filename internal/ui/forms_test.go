package ui_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/ui"
	"github.com/pawlq/pawl/pawltype"
)

const sendForm = "dialog[open] .buttons button[type=submit], #live .buttons button[type=submit]"

// refused submits the open form, which is refused and shown again.
func (b *browser) refused(js string) {
	b.t.Helper()
	b.click(sendForm)
	b.until(`document.querySelector("form.form .refused") !== null && (` + js + `)`)
}

// TestConcurrentSettings: a user who saves settings that another user has changed meanwhile sees those changes, and
// overwrites nothing unseen.
func TestConcurrentSettings(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	operator := admin.New(w.client)
	_, err := operator.Queues().Put(t.Context(), "mail", admin.QueueSettings{QueueLimits: admin.QueueLimits{MaxRunning: 3}, MaxAttempts: 5})
	must(t, err)
	settings := func() admin.QueueSettings {
		t.Helper()
		q, err := operator.Queues().Get(t.Context(), "mail")
		must(t, err)
		return q.Settings
	}

	b.visit(w.url + "/queues/mail/settings")
	b.fill("lease", "2m")
	b.fill("max_attempts", "9")
	theirs := settings()
	theirs.MaxRunning, theirs.MaxAttempts = 7, 6
	_, err = operator.Queues().Put(t.Context(), "mail", theirs)
	must(t, err)
	b.refused(`document.querySelector("#meanwhile-max_running") !== null`)
	for js, want := range map[string]string{
		`document.querySelector("[name=max_running]").value`:                                 "7",
		`document.querySelector("#meanwhile-max_running").textContent.includes("it was: 3")`: "true",
		`document.querySelector("[name=lease]").value`:                                       "2m",
		`document.querySelector("#meanwhile-lease")`:                                         "<nil>",
		`document.querySelector("[name=max_attempts]").value`:                                "9",
		`document.querySelector("#meanwhile-max_attempts ~ .theirs").textContent`:            "6",
		`document.querySelector("[name=max_attempts]").getAttribute("aria-describedby")`: "meanwhile-max_attempts " +
			"hint-max_attempts",
		`/if_version|version \d/.test(document.body.innerText)`:                                  "false",
		`document.querySelector(".refused").innerText.includes("someone else has changed this")`: "true",
		`document.activeElement.classList.contains("refused")`:                                   "true",
		`document.querySelectorAll("[id^=meanwhile-]").length`:                                   "2",
	} {
		if got := b.eval(js); got != want {
			t.Errorf("%s is %s, want %s", js, got, want)
		}
	}
	if s := settings(); s.MaxRunning != 7 || s.MaxAttempts != 6 {
		t.Errorf("the refused form saved the settings %+v", s)
	}
	b.shoot("form-meanwhile")
	b.loading(func() { b.click(sendForm) })
	if s := settings(); s.MaxRunning != 7 || s.MaxAttempts != 9 || s.Lease != 2*time.Minute {
		t.Errorf("the saved settings are max_running %d, max_attempts %d, lease %s, want 7, 9 and 2m", s.MaxRunning, s.MaxAttempts, s.Lease)
	}
}

// TestConcurrentTasksAndSchedules: the same for other things that can be edited, and without scripts.
func TestConcurrentTasksAndSchedules(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	operator := admin.New(w.client)
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{"cents":100}`, pawl.Queue("mail"), pawl.In(time.Hour)) })
	id := w.newest(t, admin.Filter{Queue: "mail"})
	b.visit(w.url + "/tasks/" + id + "/edit")
	b.fill("payload", `{"cents":150}`)
	_, err := admin.New(w.client).Tasks().Update(t.Context(), id, admin.TaskUpdate{Payload: map[string]int{"cents": 200},
		Priority: pawltype.High})
	must(t, err)
	b.refused(`document.querySelector("#meanwhile-payload ~ .theirs").textContent.includes("200")`)
	b.shoot("form-meanwhile-task")
	if got := b.eval(`document.querySelector("[name=priority]").value + document.querySelector("[name=payload]").value`); got !=
		`high{"cents":150}` {
		t.Errorf("the form has %s, want the other user's priority and the own payload", got)
	}
	b.loading(func() { b.click(sendForm) })
	task, err := w.client.Task(t.Context(), id)
	must(t, err)
	if string(task.Payload) != `{"cents":150}` || task.Priority != pawltype.High {
		t.Errorf("the task has payload %s and priority %s", task.Payload, task.Priority)
	}

	s := admin.ScheduleSpec{Name: "s", Cron: "0 3 * * *", Task: pawl.RawTask{Type: "a"}}
	_, err = operator.Schedules().Create(t.Context(), s)
	must(t, err)
	_, body := w.get(t, "/schedules/s/edit")
	s.Cron = "30 4 * * *"
	_, err = operator.Schedules().Put(t.Context(), s)
	must(t, err)
	form := filled(body)
	form.Set("owner", "me")
	resp, body := w.post(t, "/schedules/s/edit", form)
	if resp.StatusCode != 422 || !strings.Contains(body, "it was: 0 3 * * *") || !strings.Contains(body, `value="30 4 * * *"`) {
		t.Fatalf("status %d, or the form does not show the other user's changes: %s", resp.StatusCode, body)
	}
	w.postAsFilled(t, "/schedules/s/edit", body)
	is, err := operator.Schedules().Get(t.Context(), "s")
	must(t, err)
	if is.Cron != "30 4 * * *" || is.Owner != "me" {
		t.Errorf("the schedule has cron %q and owner %q", is.Cron, is.Owner)
	}
	form.Del("version")
	if resp, body := w.post(t, "/schedules/s/edit", form); resp.StatusCode != 422 || !strings.Contains(body, "open it again") {
		t.Errorf("a form without its version: status %d, want 422", resp.StatusCode)
	}
}

// TestConcurrentQuotasAndWebhooks: for resources without an ETag, only the edited fields are submitted.
func TestConcurrentQuotasAndWebhooks(t *testing.T) {
	w := startWorld(t, "")
	operator := admin.New(w.client)
	number := func(n int64) *int64 { return &n }
	_, err := operator.Namespaces().SetQuotas(t.Context(), "default", admin.QuotaChange{MaxBacklog: number(1000),
		MaxRunning: number(50)})
	must(t, err)
	_, err = operator.Webhooks().Create(t.Context(), admin.WebhookSpec{Name: "oncall", URL: "https://hooks.example.com/a", DepthOver: 100})
	must(t, err)
	_, quotas := w.get(t, "/namespaces/default/quotas")
	_, hook := w.get(t, "/webhooks/oncall/edit")
	_, err = operator.Namespaces().SetQuotas(t.Context(), "default", admin.QuotaChange{MaxBacklog: number(2000)})
	must(t, err)
	_, err = operator.Webhooks().Update(t.Context(), "oncall", admin.WebhookChange{URL: "https://hooks.example.com/b"})
	must(t, err)
	for path, form := range map[string]url.Values{"/namespaces/default/quotas": filled(quotas), "/webhooks/oncall/edit": filled(hook)} {
		form.Set("max_running", "60")
		form.Set("depth_over", "200")
		form.Del("events")
		form["events"] = []string{"task.dead", "queue.over"}
		resp, body := w.post(t, path, form)
		if resp.StatusCode != 422 || !strings.Contains(body, "Someone else changed this in the meantime") {
			t.Errorf("%s: status %d, or the page does not mention the other user's changes", path, resp.StatusCode)
		}
		again := filled(body)
		again["events"] = form["events"]
		if resp, body := w.post(t, path, again); resp.StatusCode != 303 {
			t.Errorf("%s, submitted again: status %d %s", path, resp.StatusCode, body)
		}
	}
	n, err := operator.Namespaces().Get(t.Context(), "default")
	must(t, err)
	h, err := operator.Webhooks().Get(t.Context(), "oncall")
	must(t, err)
	if n.Quotas.MaxBacklog != 2000 || n.Quotas.MaxRunning != 60 || h.URL != "https://hooks.example.com/b" || h.DepthOver != 200 ||
		len(h.Events) != 2 {
		t.Errorf("the quotas are %+v, the webhook has URL %s, threshold %d and events %v", n.Quotas, h.URL, h.DepthOver, h.Events)
	}
}

// TestRefusedFormKeepsItsVersion: a refusal for another reason does not give the form the version of another user's changes.
func TestRefusedFormKeepsItsVersion(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	operator := admin.New(w.client)
	_, err := operator.Queues().Put(t.Context(), "mail", admin.QueueSettings{QueueLimits: admin.QueueLimits{MaxRunning: 3}})
	must(t, err)
	b.visit(w.url + "/queues/mail/settings")
	b.fill("lease", "two minutes")
	_, err = operator.Queues().Put(t.Context(), "mail", admin.QueueSettings{QueueLimits: admin.QueueLimits{MaxRunning: 7}})
	must(t, err)
	b.refused(`document.activeElement.name === "lease"`)
	if got := b.eval(`document.querySelector("[name=max_running]").value`); got != "7" {
		t.Errorf("max_running, which was not edited here, is %s, want the other user's 7", got)
	}
	if got := b.eval(
		`document.activeElement.getAttribute("aria-invalid") + " " + document.activeElement.getAttribute("aria-describedby")`); got !=
		"true wrong-lease hint-lease" {
		t.Errorf("the ARIA attributes of the invalid field are %q", got)
	}
}

// TestDestructiveFormsNeedMoreThanEnter: Enter in a field does not submit a form that ends tasks, and ending every task
// requires their count.
func TestDestructiveFormsNeedMoreThanEnter(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 3, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	b.visit(w.url + "/tasks")
	b.click(`.of-all a[href*="action=discard"]`)
	b.until(`document.querySelector("dialog[open] form") !== null && document.activeElement.matches("dialog h1")`)
	if got := b.eval(`document.querySelector("dialog [name=canary]")`); got != "<nil>" {
		t.Error("the form for a discard has a canary field")
	}
	b.eval(`{ window.sent = 0; document.addEventListener("submit", () => window.sent++, true); }`)
	for _, name := range []string{"rate", "reason", "confirm"} {
		b.eval(`document.querySelector("dialog [name=` + name + `]").focus()`)
		b.key("Enter")
	}
	if got := b.eval(`window.sent`); got != "0" {
		t.Errorf("Enter in the fields submitted the form %s times", got)
	}
	b.refused(`document.activeElement.name === "confirm" && document.querySelector("#wrong-confirm") !== null`)
	if n := operations(t, w); n != 0 {
		t.Errorf("%d operations were started without a confirmation", n)
	}
	b.fill("confirm", "3")
	b.loading(func() { b.click(sendForm) })
	if n := operations(t, w); n != 1 {
		t.Errorf("%d operations were started, want 1", n)
	}

	for form, status := range map[string]int{
		"action=discard&q=": 422, "action=discard&q=&confirm=3": 422, "action=discard&q=&counted=3&confirm=2": 422,
		"action=cancel&q=+&counted=3": 422, "action=move&q=&to_queue=b&counted=1": 422, "action=discard&q=&counted=3&confirm=3": 303,
		"action=discard&q=queue:mail": 303, "action=run_now&q=": 303,
	} {
		values, err := url.ParseQuery(form)
		must(t, err)
		if resp, _ := w.post(t, "/operations/new", values); resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d", form, resp.StatusCode, status)
		}
	}
}

func operations(t *testing.T, w *world) int {
	t.Helper()
	page, err := admin.New(w.client).Operations().ListPage(t.Context(), pawltype.PageRequest{Limit: 10})
	must(t, err)
	return len(page.Items)
}

// TestFocusReturns: closing a dialog returns the focus to the element that opened it.
func TestFocusReturns(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	b.visit(w.url + "/queues/mail")
	for _, leave := range []func(){func() { b.key("Escape") }, func() { b.click("dialog [data-close]") }} {
		b.eval(`document.querySelector('main a[data-form][href*="/pause"]').click()`) // as in browsers that don't focus what is clicked
		b.until(`document.activeElement.matches("dialog select")`)
		b.eval(`document.activeElement.blur()`)
		leave()
		b.until(`document.querySelector("dialog[open]") === null && document.activeElement.matches('main a[href*="/pause"]')`)
	}
}

// TestTypedTextIsKept: a dialog in which something was typed closes only by its Cancel button.
func TestTypedTextIsKept(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{"cents":100}`, pawl.Queue("mail"), pawl.In(time.Hour)) })
	b.visit(w.url + "/tasks/" + w.newest(t, admin.Filter{Queue: "mail"}))
	edit := `main a[data-form][href*="/edit"]`
	mouse := func(kind string, x, y int) {
		b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}, nil)
	}
	open := func() {
		t.Helper()
		b.click(edit)
		b.until(`document.querySelector("dialog[open] [name=payload]") !== null`)
	}
	closed := `document.querySelector("dialog[open]") === null`
	drag := func() { // a selection that ends outside
		t.Helper()
		var x, y int
		_, err := fmt.Sscan(b.eval(`(() => { const r = document.querySelector("dialog [name=payload]").getBoundingClientRect(); return `+
			`Math.round(r.x + 20) + " " + Math.round(r.y + 20) })()`), &x, &y)
		must(t, err)
		mouse("mousePressed", x, y)
		mouse("mouseMoved", 3, y)
		mouse("mouseReleased", 3, y)
	}
	outside := func() { mouse("mousePressed", 3, 300); mouse("mouseReleased", 3, 300) }
	escape := func() { b.key("Escape") }
	open()
	drag()
	b.until(`document.querySelector("dialog[open] [name=payload]") !== null`)
	outside()
	b.until(closed)
	open()
	b.fill("payload", `{"cents":150}`)
	for _, leave := range []func(){drag, outside, escape, escape} {
		leave()
		b.until(`document.querySelector("dialog[open] [name=payload]")?.value === '{"cents":150}'`)
	}
	b.until(`document.querySelector("dialog .buttons [role=status]").textContent.includes("Cancel discards it")`)
	b.shoot("form-kept")
	b.click("dialog [data-close]")
	b.until(closed)
	open()
	escape()
	b.until(closed)
}

// TestMissingResponseIsReported: a form whose response never arrives says so, keeps its input, and can be submitted again.
func TestMissingResponseIsReported(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	const said = `document.activeElement.matches(".refused") && document.activeElement.innerText === "No answer The change may have been made: check before you retry." &&
		document.querySelector("dialog [name=reason]").value === "it burns" && !document.querySelector("dialog button[type=submit]").disabled`
	for name, lose := range map[string]struct{ from, until func() }{
		"no network": {func() {
			b.call("Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1,
				"uploadThroughput": -1}, nil)
		}, func() {
			b.call("Network.emulateNetworkConditions", map[string]any{"offline": false, "latency": 0, "downloadThroughput": -1,
				"uploadThroughput": -1}, nil)
		}},
		"no answer": {func() { // the request hangs forever, and the form's timeout is short
			b.call("Fetch.enable", map[string]any{"patterns": []any{map[string]any{"urlPattern": "*/pause"}}}, nil)
			b.eval(`document.querySelector("dialog form").setAttribute("hx-request", '{"timeout":1}')`)
		}, func() { b.call("Fetch.disable", nil, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			b.visit(w.url + "/queues/mail")
			b.click(`main a[data-form][href*="/pause"]`)
			b.until(`document.querySelector("dialog[open] form") !== null`)
			if got := b.eval(`JSON.parse(document.querySelector("dialog form").getAttribute("hx-request")).timeout > 60000`); got !=
				"true" {
				t.Error("the form's timeout is no longer than a minute")
			}
			b.fill("reason", "it burns")
			lose.from()
			b.click(sendForm)
			b.until(said)
			b.shoot("form-no-answer")
			lose.until()
		})
	}
	b.until(`document.querySelector("dialog[open] .refused") !== null`)
}

// punctual records the read deadlines set for a connection.
type punctual struct {
	*httptest.ResponseRecorder
	limits []time.Time
}

func (p *punctual) SetReadDeadline(at time.Time) error {
	p.limits = append(p.limits, at)
	return nil
}

// TestFormTimeoutIsReset: after a form has been read, its action has no read deadline.
func TestFormTimeoutIsReset(t *testing.T) {
	u := ui.New(ui.Config{Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("gone") }})
	defer func() { must(t, u.Close()) }()
	for path, form := range map[string]string{"/queues/mail/pause": "reason=x", "/login": "token=x"} {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := &punctual{ResponseRecorder: httptest.NewRecorder()}
		if u.ServeHTTP(w, r); len(w.limits) != 1 || !w.limits[0].IsZero() {
			t.Errorf("%s: status %d, read deadlines %v, want one that is zero", path, w.Code, w.limits)
		}
	}
}

// TestFormsWhileServerIsUnreachable: refused forms keep their input although the server, which is unreachable, can't rebuild them.
func TestFormsWhileServerIsUnreachable(t *testing.T) {
	u := ui.New(ui.Config{Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("gone") }})
	defer func() { must(t, u.Close()) }()
	post := func(headers ...string) *httptest.ResponseRecorder {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "POST", "/queues/mail/purge", strings.NewReader(url.Values{"confirm": {"mail"},
			"reason": {"it <burns>"}, "seen": {"x"}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		u.ServeHTTP(w, r)
		return w
	}
	page := post()
	for _, want := range []string{`name="confirm" type="text" value="mail"`, `name="reason" type="text" value="it &lt;burns&gt;"`,
		`type="hidden" name="seen"`, "The change may have been made", `action="/queues/mail/purge"`, "Cancel</a>"} {
		if !strings.Contains(page.Body.String(), want) {
			t.Errorf("status %d, and the page lacks %s: %s", page.Code, want, page.Body)
		}
	}
	part := post("HX-Request", "true")
	if got := part.Header().Get("HX-Retarget"); got != "find .refusal" || !strings.HasPrefix(part.Body.String(), `<div class="refused"`) ||
		part.Code != http.StatusServiceUnavailable {
		t.Errorf("a script got, for target %q, status %d: %s", got, part.Code, part.Body)
	}
}

// TestAllFormErrorsAtOnce: all errors of a form that can be detected are shown together.
func TestAllFormErrorsAtOnce(t *testing.T) {
	w := startWorld(t, "")
	for _, c := range []struct {
		path  string
		form  url.Values
		wrong []string
	}{
		{"/new-token", url.Values{"name": {"a b"}, "queues": {"mail*, a/b"}, "expires_in": {"soon"}}, []string{"name", "roles",
			"queues", "expires_in"}},
		{"/new-webhook", url.Values{"name": {""}, "queues": {"[a]"}, "wait_over": {"soon"}, "depth_over": {"x"}}, []string{"name", "url",
			"queues", "wait_over", "depth_over"}},
		{"/enqueue", url.Values{"payload": {"{no"}, "run_at": {"soon"}, "max_attempts": {"x"}}, []string{"type", "payload",
			"run_at", "max_attempts"}},
	} {
		_, body := w.post(t, c.path, c.form)
		for _, name := range c.wrong {
			if !strings.Contains(body, `id="wrong-`+name+`"`) {
				t.Errorf("%s: no error is shown for field %s", c.path, name)
			}
		}
		if n := strings.Count(body, `aria-invalid="true"`); n != len(c.wrong) {
			t.Errorf("%s: %d fields are marked as invalid, want %d", c.path, n, len(c.wrong))
		}
	}
}

// TestOnlyPossibleActionsAreOffered: for the states in the filter, no button leads to a refusal.
func TestOnlyPossibleActionsAreOffered(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `"`+strings.Repeat("x", 70<<10)+`"`, pawl.Queue("large")) })
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 1, Worker: "w"})
	must(t, err)
	_, err = claims.New(w.client).Fail(t.Context(), claimed[0], pawl.DeadLetter(errors.New("no")))
	must(t, err)
	for filter, want := range map[string]string{"state:dead": "replay discard", "state:ready": "move set_priority cancel discard",
		"state:dead,ready": "discard", "": "replay run_now move set_priority cancel discard"} {
		_, body := w.get(t, "/tasks?q="+url.QueryEscape(filter))
		var all, ticked []string
		for _, action := range []string{"replay", "run_now", "move", "set_priority", "cancel", "discard"} {
			if strings.Contains(body, "new?action="+action+"&amp;") {
				all = append(all, action)
			}
			if strings.Contains(body, `name="action" value="`+action+`"`) || action == "move" && strings.Contains(want, action) {
				ticked = append(ticked, action)
			}
		}
		if got, gotTicked := strings.Join(all, " "), strings.Join(ticked, " "); got != want || gotTicked != want {
			t.Errorf("%q offers the actions %q for all and %q for selected tasks, want %q", filter, got, gotTicked, want)
		}
		for _, action := range all {
			if resp, body := w.get(t, "/operations/new?action="+action+"&q="+url.QueryEscape(filter)); resp.StatusCode != 200 ||
				strings.Contains(body, `class="refused"`) {
				t.Errorf("%s for %q is offered, but refused", action, filter)
			}
		}
	}
	_, body := w.get(t, "/tasks/"+w.newest(t, admin.Filter{Queue: "large"})+"/edit")
	if !strings.Contains(body, "the editor takes at most 64.0 KiB") || strings.Contains(body, `name="payload"`) {
		t.Error("the form of a task with a large payload does not say why it has no payload field")
	}
}
