package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

// widths are those of windows: desktops, laptops, half a screen, tablets, phones.
var widths = []int{1440, 1280, 1100, 1024, 820, 600, 390}

// cutOff names what lies outside of what can be seen of its table: buttons by a pixel, links as good as whole, names of columns, and
// whatever makes the page wider than its window.
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
		for (const e of table.querySelectorAll("td.head")) if (e.getBoundingClientRect().width < 120) bad.push("the head of " + e.closest("tr").id + " has " + e.getBoundingClientRect().width);
	}
	const door = document.querySelector(".open-door")?.getBoundingClientRect();
	if (!door || door.width === 0 || door.right > innerWidth) bad.push("no access control is not seen");
	return bad.slice(0, 4).join("; ");
})()`

// TestNothingIsCutOff looks at every page in windows of all widths.
func TestNothingIsCutOff(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.seed(t)
	w.longNames(t)
	pages := w.everyLook(t)
	pages["archive"] = "/archive"
	longest := w.newest(t, pawl.Filter{Queue: longestName})
	pages["task-longest"], pages["queue-longest"], pages["tasks-longest"], pages["dead-longest"] = "/tasks/"+longest, "/queues/"+longestName, "/tasks?q=queue:"+longestName, "/dead?queue="+longestName
	for name, path := range pages {
		b.visit(w.url + path)
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": "light"}}}, nil)
		for _, width := range widths {
			b.size(width, 900, false)
			b.until(fmt.Sprintf("innerWidth === %d", width))
			if bad := b.eval(cutOff); bad != "" {
				t.Errorf("%.60s at %d: %s", path, width, bad)
			}
			b.shoot(fmt.Sprintf("w%d-%s", width, name))
		}
	}
	b.check(w.url)
}

// longNames adds what has names as long as they are in the world.
func (w *world) longNames(t testing.TB) {
	t.Helper()
	w.longestNames(t)
	queue, typ := "team-checkout.invoices-of-the-whole-europe-west-region.v2", "com.example.checkout.invoices.RenderInvoiceForCustomerV2"
	spec := func(i int) pawl.Item {
		return job(typ, `{}`, pawl.Queue(queue), pawl.Key("customer-"+strings.Repeat("7", 40)), pawl.MaxAttempts(1))
	}
	w.enqueue(t, 5, spec)
	claims, err := w.client.Claims().Claim(t.Context(), pawl.ClaimRequest{Queues: pawl.Strict{queue}, Max: 3, Worker: "checkout-worker-7f9c6d5b8-x2x9q.europe-west3.internal/31337", Lease: time.Hour})
	must(t, err)
	_, err = w.client.Claims().Fail(t.Context(), claims[0], pawl.DeadLetter(fmt.Errorf("java.lang.IllegalStateException: %s", strings.Repeat("cannot render invoice ", 20))))
	must(t, err)
	_, err = w.client.Claims().Fail(t.Context(), claims[1], pawl.Poison(fmt.Errorf("%s", strings.Repeat("unexpected-end-of-input-", 20))))
	must(t, err)
	_, err = w.client.Admin().PauseQueue(t.Context(), queue, strings.Repeat("the printer is on fire ", 8))
	must(t, err)
}

// longestName is as long as a name may be, and has nowhere to break.
var longestName = strings.Repeat("q", 256)

// longestNames adds what has names as long as they may be, many attempts and many headers.
func (w *world) longestNames(t testing.TB) {
	t.Helper()
	w.enqueue(t, 2, func(int) pawl.Item {
		return job(longestName, `{"name":"J\u00fcrgen"}`, append(manyHeaders(64), pawl.Queue(longestName), pawl.Key(longestName), pawl.Tags(longestName), pawl.MaxAttempts(1))...)
	})
	claims, err := w.client.Claims().Claim(t.Context(), pawl.ClaimRequest{Queues: pawl.Strict{longestName}, Max: 1, Worker: longestName, Lease: time.Hour})
	must(t, err)
	_, err = w.client.Claims().Fail(t.Context(), claims[0], pawl.DeadLetter(fmt.Errorf("%s", longestName)))
	must(t, err)
}
