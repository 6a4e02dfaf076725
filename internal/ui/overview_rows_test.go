package ui

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/web"
)

// TestAlarmLinks: a page can have several alarms, and each link says where it leads.
func TestAlarmLinks(t *testing.T) {
	req := &web.Request{}
	for _, c := range []struct {
		a         admin.Attention
		link, url string
	}{
		{admin.Attention{Kind: "dead_letters"}, "View: dead letters", "/dead"},
		{admin.Attention{Kind: "poisoned"}, "View: poisoned", "/poison"},
		{admin.Attention{Kind: "no_worker", Subject: "mail"}, "View: no worker, mail", "/queues/mail"},
		{admin.Attention{Kind: "no_worker", Subject: "mail", More: 13_999}, "View: no worker, mail and 13,999 more", "/queues"},
		{admin.Attention{Kind: "schedule_late", Subject: "nightly"}, "View: schedule late, nightly", "/schedules/nightly"},
		{admin.Attention{Kind: "webhook", Subject: "oncall"}, "View: webhook, oncall", "/webhooks/oncall"},
		{admin.Attention{Kind: "webhook", Subject: "oncall", More: 4}, "View: webhook, oncall and 4 more", "/webhooks"},
		{admin.Attention{Kind: "oldest_wait", Subject: strings.Repeat("q", 256)}, "View: oldest wait, " + strings.Repeat("q", 59) + "…",
			"/queues/" + strings.Repeat("q", 256)},
		{admin.Attention{Kind: "certificate", Subject: "n2"}, "View: certificate, n2", "/cluster"},
		{admin.Attention{Kind: "unknown"}, "View: unknown", ""},
	} {
		if got := alarmOf(req, c.a); got.Link != c.link || got.URL != c.url {
			t.Errorf("%+v: the link is %q to %q, want %q to %q", c.a, got.Link, got.URL, c.link, c.url)
		}
	}
}

// TestFindFailing: types and queues that are not counted separately have no name to search for.
func TestFindFailing(t *testing.T) {
	req := &web.Request{}
	for _, c := range []struct{ queue, typ, states, want string }{
		{"mail", "welcome", "", "queue%3Amail+type%3Awelcome"}, {"mail", "welcome", "dead", "queue%3Amail+type%3Awelcome+state%3Adead"},
		{"mail", "_other", "", "queue%3Amail"}, {"_other", "welcome", "", "type%3Awelcome"}, {"_other", "_other", "",
			"state%3Aretrying%2Cdead"},
	} {
		if got := failingURL(req, admin.FailingType{Queue: c.queue, Type: c.typ}, c.states); got != "/tasks?q="+c.want {
			t.Errorf("the link of type %q in queue %q with states %q is %q, want %q", c.typ, c.queue, c.states, got, c.want)
		}
	}
}

// TestWorst: the link does not lead to an empty page once the failures are fixed.
func TestWorst(t *testing.T) {
	req, f := &web.Request{}, admin.FailingType{Queue: "mail", Type: "welcome"}
	for of, want := range map[admin.QueueTotals]string{{}: "/tasks?q=queue%3Amail+type%3Awelcome",
		{Dead: 1}:     "/tasks?q=queue%3Amail+type%3Awelcome+state%3Aretrying%2Cdead",
		{Retrying: 1}: "/tasks?q=queue%3Amail+type%3Awelcome+state%3Aretrying%2Cdead"} {
		if got := worstURL(req, f, of); got != want {
			t.Errorf("worstURL with %+v = %q, want %q", of, got, want)
		}
	}
}
