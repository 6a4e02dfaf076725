package ui_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// widths are those of windows: desktops, laptops, half a screen, tablets, phones.
var widths = []int{1440, 1280, 1100, 1024, 820, 600, 390}

// cutOff names what is outside the visible part of its table: buttons by a pixel, most of a link, column names. It also
// names whatever makes the page wider than its window, and main actions if there are several.
const cutOff = `(() => {
	const bad = [];
	if (document.documentElement.scrollWidth > innerWidth) bad.push("the page is " + document.documentElement.scrollWidth + " wide");
	for (const table of document.querySelectorAll("#live .table")) {
		const seen = table.getBoundingClientRect();
		if (table.scrollWidth > table.clientWidth + 1) bad.push("a table is " + table.scrollWidth + " wide in " + table.clientWidth);
		for (const th of table.querySelectorAll("th")) if (th.offsetWidth > 0 && th.scrollWidth > th.clientWidth) bad.push("column " + th.textContent);
		for (const e of table.querySelectorAll("tr a, tr button, tr input")) {
			const r = e.getBoundingClientRect(), cell = e.closest("td, th").getBoundingClientRect();
			if (r.width === 0 || !e.checkVisibility()) continue;
			const whole = e.matches(".button, button, input");
			const left = Math.max(seen.left, cell.left), right = Math.min(seen.right, cell.right);
			if (whole ? r.left < left - 1 || r.right > right + 1 : Math.min(r.right, right) - r.left < Math.min(r.width, 56)) bad.push(e.textContent.slice(0, 40) + " of " + e.closest("tr").id);
		}
		for (const e of table.querySelectorAll("td.head")) if (e.getBoundingClientRect().width < 120) bad.push("the head of " + (e.closest("tr").id || e.closest("table").getAttribute("aria-label")) + " has " + e.getBoundingClientRect().width);
	}
	for (const e of document.querySelectorAll("#live td .copy")) { // an ellipsis hides what it stands for, wherever that is
		const cell = e.closest("td"), style = getComputedStyle(cell);
		if (e.checkVisibility() && e.getBoundingClientRect().right > cell.getBoundingClientRect().right - parseFloat(style.paddingRight) + 0.5) bad.push("the copy button of " + e.closest("tr").id);
	}
	const first = [...document.querySelectorAll("main :is(a, button).main")].filter((e) => e.checkVisibility());
	if (first.length > 1) bad.push(first.length + " main actions: " + first.map((e) => e.textContent).join(", "));
	const label = document.querySelector(".no-access-control")?.getBoundingClientRect();
	if (!label || label.width === 0 || label.right > innerWidth) bad.push("no access control is not seen");
	return bad.slice(0, 4).join("; ");
})()`

// TestNothingIsClipped opens every page in windows of all widths, and runs axe-core on each: light and wide, or dark and narrow, by turns.
// A run decides at random which turn is first. PAWL_LONG=1 tries all pages in both ways.
func TestNothingIsClipped(t *testing.T) {
	retire() // it takes longer than all others: what they left in Chromium must not slow it down
	b := startBrowser(t)
	w := startWorld(t, "")
	w.seed(t)
	w.longNames(t)
	pages := w.everyLook(t)
	for _, state := range []pawltype.State{pawltype.StateDead, pawltype.StateReady} {
		pages["task-longest-"+string(state)] = "/tasks/" + w.newest(t, admin.Filter{Queue: longestName, States: []pawltype.State{state}})
	}
	pages["queue-longest"], pages["tasks-longest"], pages["dead-longest"] = "/queues/"+longestName, "/tasks?q=queue:"+longestName,
		"/dead?queue="+longestName
	axe := axeCore(t)
	first := rand.IntN(2)
	t.Logf("axe-core looks at the %s page dark and narrow, at the next light and wide", []string{"second", "first"}[first])
	for i, name := range slices.Sorted(maps.Keys(pages)) {
		path := pages[name]
		b.dark(false)
		b.visit(w.url + path)
		for _, width := range widths {
			b.size(width, 900, false)
			b.until(fmt.Sprintf("innerWidth === %d", width))
			if bad := b.eval(cutOff); bad != "" {
				t.Errorf("%.60s at a width of %d: %s", path, width, bad)
			}
			b.shoot(fmt.Sprintf("w%d-%s", width, name))
			narrowest, turn := width == widths[len(widths)-1], (i+first)%2 == 1
			if (narrowest || width == widths[0]) && (narrowest == turn || os.Getenv("PAWL_LONG") != "") {
				b.dark(narrowest)
				b.accessible(axe, fmt.Sprintf("%.60s at %d", path, width))
			}
		}
	}
	b.check(w.url)
	if axe == "" {
		t.Run("axe", func(t *testing.T) {
			t.Skip("axe-core is not in .cache, so the pages are not checked (make tools fetches it)")
		})
	}
}

// longNames adds objects with names as long as they are in practice.
func (w *world) longNames(t testing.TB) {
	t.Helper()
	w.longestNames(t)
	queue, typ := "team-checkout.invoices-of-the-whole-europe-west-region.v2", "com.example.checkout.invoices.RenderInvoiceForCustomerV2"
	spec := func(i int) pawl.Item {
		return job(typ, `{}`, pawl.Queue(queue), pawl.Key("customer-"+strings.Repeat("7", 40)), pawl.MaxAttempts(1))
	}
	w.enqueue(t, 5, spec)
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{queue}, Max: 3,
		Worker: "checkout-worker-7f9c6d5b8-x2x9q.europe-west3.internal/31337", Lease: time.Hour})
	must(t, err)
	_, err = claims.New(w.client).Fail(t.Context(), claimed[0], pawl.DeadLetter(fmt.Errorf("java.lang.IllegalStateException: %s",
		strings.Repeat("cannot render invoice ", 20))))
	must(t, err)
	_, err = claims.New(w.client).Fail(t.Context(), claimed[1],
		pawl.Poison(fmt.Errorf("%s", strings.Repeat("unexpected-end-of-input-", 20))))
	must(t, err)
	_, err = admin.New(w.client).Markers().Add(t.Context(), admin.MarkerSpec{Kind: admin.MarkerIncident, Title: strings.Repeat("w", 200),
		Version: strings.Repeat("9", 100), Queues: []string{longestName, queue}, Types: []string{typ}, URL: "https://" +
			strings.Repeat("ci.",
				60) + "example.com/runs/42"})
	must(t, err)
	_, err = admin.New(w.client).WithReason(strings.Repeat("the printer is on fire ", 8)).Queues().Pause(t.Context(), queue)
	must(t, err)
}

// longestName is of maximum length and can't be broken into lines.
var longestName = strings.Repeat("q", 256)

// longestNames adds objects with names of maximum length, many attempts and many headers.
func (w *world) longestNames(t testing.TB) {
	t.Helper()
	w.enqueue(t, 2, func(int) pawl.Item {
		return job(longestName, `{"name":"J\u00fcrgen"}`, append(manyHeaders(64), pawl.Queue(longestName), pawl.Key(longestName),
			pawl.Tags(longestName), pawl.MaxAttempts(1))...)
	})
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{longestName}, Max: 1, Worker: longestName,
		Lease: time.Hour})
	must(t, err)
	_, err = claims.New(w.client).Fail(t.Context(), claimed[0], pawl.DeadLetter(fmt.Errorf("%s", longestName)))
	must(t, err)
}

// seen returns the visible ones among the elements that match a selector.
func (b *browser) seen(selector string) string {
	b.t.Helper()
	return b.eval(fmt.Sprintf(`String([...document.querySelectorAll(%q)].filter((e) => e.checkVisibility() && e.getClientRects().length > `+
		`0).map((e) => e.id || e.className || e.tagName))`, selector))
}

// TestWithoutScripts: controls that would do nothing are absent, and a page says how old it is.
func TestWithoutScripts(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 2, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	b.visit(w.url + "/tasks")
	if got := b.seen("#live-switch, #theme-switch, #help-switch, [data-all], .stood"); got != "live-switch,theme-switch,help-switch,INPUT" {
		t.Errorf("with scripts these controls are visible: %q", got)
	}
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.visit(w.url + "/tasks")
	if got := b.seen("#live-switch, #theme-switch, #help-switch, [data-all], .copy, kbd"); got != "" {
		t.Errorf("without scripts these controls are visible, but do nothing: %q", got)
	}
	if got := b.seen(".stood a, td.tick input"); got != "A,INPUT,INPUT" {
		t.Errorf("without scripts these controls are visible: %q, want the reload link and checkboxes", got)
	}
	b.shoot("without-scripts")
	b.loading(func() { b.click(".stood a") })
	b.loading(func() { b.click("tbody a.name") })
	if got := b.eval("location.pathname"); !strings.HasPrefix(got, "/tasks/") {
		t.Errorf("the link in a row leads to %s", got)
	}
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
	b.check(w.url)
}

// TestOnPaper: the printed page has the same content.
func TestOnPaper(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.seed(t)
	for _, path := range []string{"/queues/mail", "/dead", "/tasks", "/cluster"} {
		b.visit(w.url + path)
		was := b.eval(`document.getElementById("stood").textContent`)
		b.until(`document.getElementById("stood").textContent > "` + was +
			`" || (document.body.dispatchEvent(new CustomEvent("pawl:refresh")), false)`)
		b.call("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
		if got := b.seen("button, .button, .menu a, .top, input, .tell, th.w-act1, th.w-act2, th.w-act3"); got != "" {
			t.Errorf("%s: the printed page has %q", path, got)
		}
		if got := b.seen("h1, .stood"); got != "H1,hint stood" && got != "hint stood,H1" {
			t.Errorf("%s: the printed page has %q, want the title and the time", path, got)
		}
		b.shoot("paper" + strings.ReplaceAll(path, "/", "-"))
		b.call("Emulation.setEmulatedMedia", map[string]any{"media": ""}, nil)
	}
}
