package ui_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// walkAChart moves over the steps of a chart by pointer and by keys while the page is refreshed, and over a marker. A
// step is a minute: if one ends meanwhile, it tries again with a new chart.
func (w *world) walkAChart(t *testing.T, b *browser) {
	t.Helper()
	_, err := admin.New(w.client).Markers().Add(t.Context(), admin.MarkerSpec{Kind: admin.MarkerDeploy, Title: "web 1.4.2",
		At: time.Now().Add(-10 * time.Minute)})
	must(t, err)
	minute := func() time.Time { return time.Now().Truncate(time.Minute) }
	for try := 0; ; try++ {
		queue := fmt.Sprint("chart-", try)
		began := minute()
		w.enqueue(t, 3, func(int) pawl.Item { return job("a", `{}`, pawl.Queue(queue)) })
		b.visit(w.url + "/ops/queues/" + queue)
		wrong := walkSteps(b)
		if minute().Equal(began) {
			for _, what := range wrong {
				t.Error(what)
			}
			break
		}
		if try == 9 {
			t.Fatal("a minute ended during each of ten tries")
		}
	}
	over(b, ".flag .hit")
	b.until(`document.querySelector(".tip").textContent.includes("deploy: web 1.4.2")`)
	over(b, "h1")
	b.until(`document.querySelector(".tip").hidden`)
	b.visit(w.url + "/ops/queues")
}

// walkSteps moves over the steps of a chart with three tasks in the last one, and returns what it found wrong.
func walkSteps(b *browser) (wrong []string) {
	no := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	told := func() string {
		return b.eval(`(() => { const t = document.querySelector(".tip"); return t.hidden ? "" : [...t.children].slice(1).map((r) => ` +
			`r.textContent).join(" "); })()`)
	}
	now := func() string { return b.eval(`document.querySelector("svg.bars").getAttribute("aria-valuenow")`) }
	b.eval(`document.querySelector("svg.bars").focus()`)
	last := now()
	if got := told(); got != "enqueued3 succeeded0" {
		no("the last step tells %q", got)
	}
	b.key("ArrowLeft")
	b.eval(`document.body.dispatchEvent(new CustomEvent("pawl:refresh"))`)
	b.until(`document.querySelectorAll(".told title").length === 0 && document.querySelectorAll("[data-step] title").length > 50`)
	if got, at := told(), now(); got != "enqueued0 succeeded0" || at == last {
		no("one step back, at %s of %s, and after a refresh it tells %q", at, last, got)
	}
	if got := b.eval(`[document.activeElement.matches("svg.bars[role=slider]"), /: |, ` +
		`/.test(document.querySelector("svg.bars").getAttribute("aria-valuetext"))].join()`); got != "true,true" {
		no("after a refresh the chart has the focus, and says what it tells: %s", got)
	}
	b.key("Home")
	if got := now(); got != "0" {
		no("Home leads to step %s", got)
	}
	b.key("End")
	b.key("ArrowRight")
	if got := now(); got != last {
		no("behind the last step comes %s, want %s", got, last)
	}
	b.key("Escape")
	if got := told(); got != "" {
		no("after Escape the chart tells %q", got)
	}
	over(b, ".bars [data-step] .hit")
	b.until(`!document.querySelector(".tip").hidden`)
	if got := told(); got != "enqueued3 succeeded0" {
		no("under the pointer is %q", got)
	}
	return wrong
}

// over moves the pointer to the center of the last element that matches a selector.
func over(b *browser, selector string) {
	at := b.eval(fmt.Sprintf(`(() => { const r = [...document.querySelectorAll(%q)].at(-1).getBoundingClientRect(); return (r.x `+
		`+ r.width / 2) + " " + (r.y + r.height / 2); })()`, selector))
	var x, y float64
	_, err := fmt.Sscan(at, &x, &y)
	must(b.t, err)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": x, "y": y}, nil)
}
