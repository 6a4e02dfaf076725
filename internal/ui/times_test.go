package ui_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/pawlq/pawl"
)

// TestTimesAreLocal: with scripts, times are in the browser's zone with UTC next to them, and have a date if they are not today.
func TestTimesAreLocal(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "/ops")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	in := func(zone string) {
		b.call("Emulation.setTimezoneOverride", map[string]any{"timezoneId": zone}, nil)
		b.visit(w.url + "/ops/queues/mail")
	}
	// reads makes the page's script format a time that is some hours away from noon of today in the browser.
	reads := func(attrs string, hours float64) string {
		b.eval(fmt.Sprintf(`{ const noon = new Date(); noon.setHours(12, 0, 0, 0); const at = new Date(noon.getTime() + %v * 3600e3).toISOString();
			document.body.insertAdjacentHTML("beforeend", '<time id="probe" %s datetime="' + at + '" title="' + at + '">before</time>'); }`, hours, attrs))
		b.until(`document.getElementById("probe").textContent !== "before"`)
		return b.eval(`(() => { const p = document.getElementById("probe"), s = p.textContent + " | " + p.title; p.remove(); ` +
			`return s; })()`)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s is shown as %q, want %s", what, got, want)
		}
	}
	in("Asia/Kolkata") // UTC+5:30, all year
	const long = `[A-Z][a-z]{2} \d+ [A-Z][a-z]+ \d{4} 12:00:00\.000 \S+ · \d{4}-\d\d-\d\dT06:30:00\.000Z$`
	expect("yesterday", reads("", -24), `^\d+ [A-Z][a-z]+( 12:00| \d{4}) \| `+long)
	expect("tomorrow", reads("", 24), `^\d+ [A-Z][a-z]+( 12:00| \d{4}) \| `+long)
	expect("today", reads("", 0), `^(now|in .*|.* ago) \| `+long)
	expect("a clock of today", reads("data-clock", 0), `^12:00 \| `+long)
	expect("a clock of yesterday", reads("data-clock", -24), `^\d+ [A-Z][a-z]+( 12:00| \d{4}) \| `+long)
	expect("another year", reads("", 24*500), `^\d+ [A-Z][a-z]+ \d{4} \| `)
	both := `^(\d+ \S+ )?\d\d:\d\d:\d\d \S+ · (\d+ \S+ )?\d\d:\d\d:\d\d UTC`
	b.until(`document.querySelector("svg title[data-at]").textContent.includes(" · ")`)
	expect("a step of a chart", b.eval(`document.querySelector("svg title[data-at]").textContent`), both)
	b.eval(`document.body.insertAdjacentHTML("beforeend", '<time id="probe" datetime="2026-01-01T00:00:00Z" title="UTC"></time>')`)
	if got := b.eval(`new Promise((done) => setTimeout(() => done(String(document.getElementById("probe").title.split(" · ` +
		`").length)), 3100))`); got != "2" {
		t.Errorf("after three ticks, the title has the time %s times, want twice", got)
	}
	b.eval(`document.body.dispatchEvent(new CustomEvent("pawl:refresh"))`)
	b.until(`[...document.querySelectorAll("#live time[title], svg title[data-at]")].every((t) => (t.title || t.textContent).split(" · ` +
		`").length === 2)`)
	b.until(`[...document.querySelectorAll("#live time[title], svg title[data-at]")].every((t) => (t.title || t.textContent).split(" · ` +
		`").length === 2)`)
	expect("when the page stood so", b.eval(`document.getElementById("stood").textContent`),
		`\d\d:\d\d:\d\d \S+ · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$`)
	b.visit(w.url + "/ops/settings")
	expect("the time of the node", b.eval(`document.querySelector("[data-both]").textContent`),
		`\d{4} \d\d:\d\d:\d\d \S+ · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$`)

	in("UTC") // nothing is shown twice
	expect("where it is UTC", reads("", -24), `^\d+ [A-Z][a-z]+( 12:00| \d{4}) \| \d{4}-\d\d-\d\dT12:00:00\.000Z$`)
}
