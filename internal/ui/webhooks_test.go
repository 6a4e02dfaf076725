package ui_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/node"
)

// TestWebhooksShowReasons: pages describe webhooks like the API and the command line, shorten long reasons, and
// announce no attempt that will not be made.
func TestWebhooksShowReasons(t *testing.T) {
	b := startBrowser(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		code := http.StatusInternalServerError
		if r.URL.Path == "/gone" {
			code = http.StatusGone
		}
		http.Error(rw, "no", code)
	}))
	t.Cleanup(receiver.Close)
	networks, err := node.ParseNetworks([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	w := startNode(t, node.Config{WebhookNetworks: networks}, "")
	operator := admin.New(w.client)
	for _, name := range []string{"down", "gone", "well"} {
		spec := admin.WebhookSpec{Name: name, URL: receiver.URL + "/" + name}
		if name == "well" {
			spec.Queues = []string{"nothing"}
		}
		_, err := operator.Webhooks().Create(t.Context(), spec)
		must(t, err)
	}
	w.enqueue(t, 1, func(int) pawl.Item { return job("welcome", `{}`, pawl.Queue("mail")) })
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 1,
		Worker: "w", Lease: time.Hour, Wait: time.Minute})
	must(t, err)
	_, err = claims.New(w.client).Fail(t.Context(), claimed[0], pawl.DeadLetter(errors.New("no such mailbox")))
	must(t, err)

	const states = `String([...document.querySelectorAll("tbody tr")].map((e) => e.id + " " + e.querySelector(".state").textContent))`
	b.size(1280, 900, false)
	b.visit(w.url + "/webhooks")
	b.until(states + ` === "wh-down failing,wh-gone disabled,wh-well active" || (document.body.dispatchEvent(new ` +
		`CustomEvent("pawl:refresh")), false)`)
	if got := b.eval(`String([...document.querySelectorAll("td.line .sub")].map((e) => (e.scrollWidth > e.clientWidth || ` +
		`e.scrollHeight > e.clientHeight + 1 ? "cut: " : "") + e.textContent))`); got != "the receiver answered 500 Internal Server "+
		"Error,the receiver answered 410 Gone" {
		t.Errorf("the list shows the reasons %q", got)
	}
	if bad := b.eval(cutOff); bad != "" {
		t.Error(bad)
	}
	b.shoot("webhooks-states")
	for name, want := range map[string]string{"down": "failing, retrying, true", "gone": "disabled, held, false"} {
		b.visit(w.url + "/webhooks/" + name)
		got := b.eval(`[document.querySelector("#live .state").textContent, document.querySelector("tbody .state").textContent, ` +
			`document.querySelector(".figures").textContent.includes("next attempt")].join(", ")`)
		if got != want {
			t.Errorf("%s: the page shows %q, want %q", name, got, want)
		}
		if bad := b.eval(`String([...document.querySelectorAll("td.line .clip")].filter((e) => e.scrollHeight > e.clientHeight + ` +
			`1).map((e) => e.textContent))`); bad != "" {
			t.Errorf("%s: the page cuts off the text %s", name, bad)
		}
		b.shoot("webhook-" + name)
	}
	b.visit(w.url + "/")
	b.until(`document.body.textContent.includes("webhook gone has been disabled for ")`)
	if got := b.eval(`document.querySelector('.alarm a[href="/webhooks/gone"]').ariaLabel`); got != "View: webhook, gone" {
		t.Errorf("the link on the overview is labeled %q", got)
	}
	b.check(w.url)
	h, err := operator.Webhooks().Get(t.Context(), "gone")
	if err != nil || h.State != admin.WebhookDisabled || !h.NextAttemptAt.IsZero() {
		t.Errorf("the webhook is %+v, %v, want it disabled without a next attempt", h, err)
	}
}
