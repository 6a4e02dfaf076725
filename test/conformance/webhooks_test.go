package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/webhook"
)

// hook creates a webhook for a path of the receiver, which gets its secret. Its name is the path.
func (w *world) hook(s hookSpec) newHook {
	w.Helper()
	s.URL = hookURL("/" + s.Name)
	made := ok[newHook](w)(w.hooks().AddHook(w.ctx(), s))
	w.testNode.receiver.requireSignatures("/"+s.Name, made.Secret)
	return made
}

func (w *world) hookInfo(name string) hookInfo {
	w.Helper()
	return ok[hookInfo](w)(w.hooks().Hook(w.ctx(), name))
}

func (w *world) hookNames() string {
	w.Helper()
	list, _, err := w.hooks().Hooks(w.ctx(), part{})
	must(w.T, err)
	var names []string
	for _, h := range list {
		names = append(names, h.Name)
	}
	return strings.Join(names, " ")
}

// posts describes the latest deliveries, newest first: "webhook.test: failed after 1 with 500".
func (w *world) posts(name string) (all []string) {
	w.Helper()
	for _, p := range ok[[]posted](w)(w.hooks().Posted(w.ctx(), name)) {
		all = append(all, fmt.Sprintf("%s: %s after %d with %d", p.Event, p.Outcome, p.Attempts, p.Status))
	}
	return all
}

func TestWebhooks(t *testing.T) {
	zero, none := int64(0), span(0)
	secret := webhook.NewSecret()
	tellAll(t, []story{
		{name: "a webhook is created, shown, listed, changed, removed, and audited", tell: func(w *world) {
			made := w.hook(hookSpec{Name: "oncall", Events: []string{"task.*", "queue.over"}, Queues: []string{"mail", "shop-*"},
				DepthOver: 10, WaitOver: 90 * second})
			want := hookInfo{Name: "oncall", URL: hookURL("/oncall"), State: "active", Events: []string{"task.dead",
				"task.poisoned", "queue.over"},
				Queues: []string{"mail", "shop-*"}, DepthOver: 10, WaitOver: 90 * second, CreatedBy: actor, CreatedAt: w.now(),
				ChangedAt: w.now()}
			is(w, "what was made", made.Hook, want)
			is(w, "its secret, and which shards don't know of it", []any{webhook.CheckSecret("secret", made.Secret), len(made.Unconfirmed)},
				[]any{error(nil), 0})
			is(w, "as it is shown", w.hookInfo("oncall"), want)
			w.hook(hookSpec{Name: "all"})
			is(w, "by itself", w.hookInfo("all").Events, []string{"task.dead", "task.poisoned", "breaker.opened", "breaker.closed",
				"schedule.missed"})
			is(w, "by itself", w.hookInfo("all").Queues, []string{"*"})
			is(w, "the list", w.hookNames(), "all oncall")
			w.pass(minute)
			set := ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "oncall", hookChange{URL: hookURL("/elsewhere"), Queues: []string{"*"}}))
			want.URL, want.Queues, want.ChangedAt = hookURL("/elsewhere"), []string{"*"}, w.now()
			is(w, "what was changed", set, want)
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "oncall", hookChange{Queues: []string{"*"}})) // unchanged
			set = ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "oncall", hookChange{Events: []string{"breaker.opened"},
				DepthOver: &zero, WaitOver: &none}))
			is(w, "without thresholds", []any{set.DepthOver, set.WaitOver, set.Events}, []any{int64(0), span(0),
				[]string{"breaker.opened"}})
			w.done(w.hooks().RemoveHook(w.ctx(), "oncall"))
			is(w, "the list after", w.hookNames(), "all")
			is(w, "the audit", w.audited(), []string{"webhook.add", "webhook.add", "webhook.set", "webhook.set", "webhook.remove"})
		}},
		{name: "creating a webhook twice with the same secret returns it, and its name is taken", tell: func(w *world) {
			first := w.hook(hookSpec{Name: "oncall", Secret: secret})
			w.pass(second)
			is(w, "the repeat", ok[newHook](w)(w.hooks().AddHook(w.ctx(), hookSpec{Name: "oncall", URL: hookURL("/oncall"),
				Secret: secret})), first)
			_, err := w.hooks().AddHook(w.ctx(), hookSpec{Name: "oncall", URL: hookURL("/other")})
			w.refused("another", err, refusal{Code: "conflict"})
			is(w, "what there is", w.hookInfo("oncall").URL, hookURL("/oncall"))
			is(w, "the audit", w.audited(), []string{"webhook.add"})
		}},
		{name: "a test returns its result, which is also in the deliveries", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a"})
			p := ok[posted](w)(w.hooks().TestHook(w.ctx(), "a"))
			is(w, "a test", []any{p.Event, p.Outcome, p.Status, p.Attempts, p.Error}, []any{"webhook.test", "delivered", 204, 1, ""})
			n := only(w, "notices", w.received("/a"))
			is(w, "the notice", []any{n.Type, n.Data.Namespace, n.Data.Webhook}, []any{"webhook.test", namespace, "a"})
			w.testNode.receiver.requireSignatures("/a/500", w.rotated("a", nil).Secret)
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "a", hookChange{URL: hookURL("/a/500")}))
			w.pass(second)
			p = ok[posted](w)(w.hooks().TestHook(w.ctx(), "a"))
			is(w, "one that fails", []any{p.Outcome, p.Status, p.Attempts}, []any{"failed", 500, 1})
			is(w, "what is said of it", strings.Contains(p.Error, "500") && strings.Contains(p.Error, "no"), true)
			w.pass(minute) // it is not retried
			is(w, "the deliveries", w.posts("a"), []string{"webhook.test: failed after 1 with 500",
				"webhook.test: delivered after 1 with 204"})
			is(w, "the webhook", w.hookInfo("a").Pending, int64(0))
			is(w, "what came later", len(w.received("/a/500")), 0)
			is(w, "the audit", w.audited(), []string{"webhook.add", "webhook.test", "webhook.rotate", "webhook.set", "webhook.test"})
		}},
		{name: "after a rotation the new secret signs, and the old one during the overlap", tell: func(w *world) {
			w.receives()
			old := w.hook(hookSpec{Name: "a"}).Secret
			turned := w.rotated("a", nil)
			is(w, "how long the old one signs", turned.Hook.OldUntil.Sub(turned.Hook.RotatedAt), 24*time.Hour)
			is(w, "another secret", turned.Secret != old && webhook.CheckSecret("secret", turned.Secret) == nil, true)
			over := minute
			w.pass(second)
			again := ok[newHook](w)(w.hooks().RotateHook(w.ctx(), "a", secret, &over))
			is(w, "the secret that was given", again.Secret, secret)
			repeat := ok[newHook](w)(w.hooks().RotateHook(w.ctx(), "a", secret, &over))
			is(w, "a repeat", repeat.Hook, again.Hook)
			w.testNode.receiver.requireSignatures("/a", secret, turned.Secret, old)
			ok[posted](w)(w.hooks().TestHook(w.ctx(), "a"))
			is(w, "what all three sign", len(w.received("/a")), 1)
			w.pass(second)
			last := w.rotated("a", &none)
			is(w, "without overlap", last.Hook.OldUntil, time.Time{})
			w.testNode.receiver.requireSignatures("/a", last.Secret)
			ok[posted](w)(w.hooks().TestHook(w.ctx(), "a"))
			is(w, "what the last one signs", len(w.received("/a")), 1)
			is(w, "the audit", w.audited(), []string{"webhook.add", "webhook.rotate", "webhook.rotate", "webhook.test",
				"webhook.rotate", "webhook.test"})
		}},
		{name: "a paused webhook gets its notifications later", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a"})
			h := ok[hookInfo](w)(w.hooks().PauseHook(w.ctx(), "a", "it moves"))
			is(w, "the pause", []any{h.State, h.Paused, h.PausedReason, h.PausedBy, h.PausedAt},
				[]any{"paused", true, "it moves", actor, w.now()})
			w.enqueue(spec{})
			w.kill("default", "broken")
			w.pass(minute)
			is(w, "while it is paused", len(w.received("/a")), 0)
			h = w.hookInfo("a")
			is(w, "what waits", []any{h.Pending, h.PendingSince.IsZero()}, []any{int64(1), false})
			h = ok[hookInfo](w)(w.hooks().ResumeHook(w.ctx(), "a"))
			is(w, "then", []any{h.Paused, h.PausedReason}, []any{false, ""})
			ok[hookInfo](w)(w.hooks().ResumeHook(w.ctx(), "a")) // a repeat
			w.pass(second)
			is(w, "what came", only(w, "notices", w.received("/a")).Type, "task.dead")
			is(w, "the audit", w.audited(), []string{"webhook.add", "webhook.pause", "webhook.resume"})
		}},
	})
}

// rotated rotates a webhook's secret, which the server generates.
func (w *world) rotated(name string, overlap *span) newHook {
	w.Helper()
	return ok[newHook](w)(w.hooks().RotateHook(w.ctx(), name, "", overlap))
}

func TestNotices(t *testing.T) {
	tellAll(t, []story{
		{name: "a dead letter is notified once, to the webhooks of its queue", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "all"})
			w.hook(hookSpec{Name: "shop", Queues: []string{"shop-*"}})
			w.hook(hookSpec{Name: "breakers", Events: []string{"breaker.*"}})
			began := w.now()
			id := w.enqueue(spec{Type: "welcome", Queue: "mail", Payload: `{"card":"4111"}`}).ID
			w.pass(second)
			w.kill("mail", "no such mailbox\nand more")
			died := w.now()
			w.pass(10 * second)
			n := only(w, "notices", w.received("/all"))
			is(w, "the notice", []any{n.Type, n.Data.Namespace, n.Data.Webhook, n.Data.Queue, n.Data.Count, len(n.Data.Fingerprint)},
				[]any{"task.dead", namespace, "all", "mail", int64(1), 16})
			is(w, "when", []time.Time{n.Timestamp, n.Data.FirstAt, n.Data.LastAt}, []time.Time{died, died, died})
			is(w, "the task", n.Data.Tasks, []deadNotice{{id, "welcome", "not_retryable", "no such mailbox", 1, died}})
			is(w, "its group", ok[[]group](w)(w.api.DeadGroups(w.ctx(), "mail"))[0].Fingerprint, n.Data.Fingerprint)
			is(w, "who hears of others", len(w.received("/shop"))+len(w.received("/breakers")), 0)
			p := ok[[]posted](w)(w.hooks().Posted(w.ctx(), "all"))[0]
			is(w, "the delivery", []any{p.Event, p.Queue, p.Count, p.Outcome, p.Status, p.Attempts}, []any{"task.dead", "mail", int64(1),
				"delivered", 204, 1})
			h := w.hookInfo("all")
			is(w, "the webhook", []any{h.Delivered, h.Failed, h.Dropped, h.Pending, h.DeliveredAt.After(began)}, []any{int64(1), int64(0),
				int64(0), int64(0), true})
			w.pass(2 * minute)
			is(w, "what came later", len(w.received("/all")), 0)
		}},
		{name: "a refused notification is retried with the same id", tell: func(w *world) {
			w.receives()
			made := w.hook(hookSpec{Name: "a"})
			w.testNode.receiver.requireSignatures("/a/503", made.Secret)
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "a", hookChange{URL: hookURL("/a/503")}))
			w.enqueue(spec{})
			w.kill("default", "broken")
			w.pass(20 * second)
			h := w.hookInfo("a")
			is(w, "after failures", []any{h.State, h.Pending, h.Failures > 1, h.Failed == h.Failures, h.LastStatus,
				h.NextAttemptAt.After(w.now()), h.FailingSince.Before(h.FailedAt)},
				[]any{"failing", int64(1), true, true, 503, true, true})
			failed := ok[[]posted](w)(w.hooks().Posted(w.ctx(), "a"))[0]
			is(w, "the last attempt", []any{failed.Outcome, failed.Status, failed.Error != ""}, []any{"retrying", 503, true})
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "a", hookChange{URL: hookURL("/a")}))
			w.pass(2 * minute)
			is(w, "what came", only(w, "notices", w.received("/a")).Data.Count, int64(1))
			last := ok[[]posted](w)(w.hooks().Posted(w.ctx(), "a"))[0]
			is(w, "the delivery", []any{last.ID == failed.ID, last.Outcome, last.Attempts > 2}, []any{true, "delivered", true})
			h = w.hookInfo("a")
			is(w, "its failures", []any{h.State, h.Failures, h.FailingSince, h.NextAttemptAt}, []any{"active", int64(0),
				time.Time{}, time.Time{}})
		}},
		{name: "a successful test sends the pending notifications immediately", tell: func(w *world) {
			w.receives()
			w.hookTo(hookSpec{Name: "a"}, "/a/500")
			w.die("mail", 1)
			for range 5 { // the next attempts are minutes away
				w.pass(minute)
			}
			is(w, "then", w.hookInfo("a").State, "failing")
			w.testNode.receiver.requireSignatures("/a", w.rotated("a", nil).Secret)
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "a", hookChange{URL: hookURL("/a")}))
			is(w, "what says the test", ok[posted](w)(w.hooks().TestHook(w.ctx(), "a")).Outcome, "delivered")
			w.pass(second)
			is(w, "what came", len(w.received("/a")), 2)
			h := w.hookInfo("a")
			is(w, "the webhook", []any{h.State, h.Failures, h.Pending}, []any{"active", int64(0), int64(0)})
		}},
		{name: "a receiver that answers 410 gets nothing until the webhook is resumed", tell: func(w *world) {
			w.receives()
			made := w.hook(hookSpec{Name: "a"})
			w.testNode.receiver.requireSignatures("/a/410", made.Secret)
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "a", hookChange{URL: hookURL("/a/410")}))
			w.enqueue(spec{})
			w.kill("default", "broken")
			w.pass(10 * second)
			h := w.hookInfo("a")
			is(w, "then", []any{h.State, h.DisabledReason != "", h.DisabledAt.IsZero(), h.Failures, h.Pending, h.NextAttemptAt},
				[]any{"disabled", true, false, int64(1), int64(1), time.Time{}})
			is(w, "what waits", w.posts("a"), []string{"task.dead: held after 1 with 410"})
			w.pass(minute)
			is(w, "later", w.hookInfo("a").Failures, int64(1))
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "a", hookChange{URL: hookURL("/a")}))
			h = ok[hookInfo](w)(w.hooks().ResumeHook(w.ctx(), "a"))
			is(w, "resumed", []any{h.State, h.DisabledReason}, []any{"active", ""})
			w.enqueue(spec{})
			w.kill("default", "broken")
			w.pass(2 * minute)
			is(w, "what came", len(w.received("/a")) > 0, true)
		}},
		{name: "a queue that exceeds a threshold is notified, and again when it is below", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a", Events: []string{"queue.*"}, DepthOver: 3})
			w.fill(3, spec{})
			w.pass(30 * second)
			is(w, "at it", len(w.received("/a")), 0)
			w.fill(1, spec{})
			w.pass(30 * second)
			n := only(w, "notices", w.received("/a"))
			is(w, "over it", []any{n.Type, n.Data.Queue, n.Data.Depth, n.Data.DepthOver}, []any{"queue.over", "default",
				int64(4), int64(3)})
			w.pass(minute)
			is(w, "while it is", len(w.received("/a")), 0)
			for _, c := range w.claims(from("default").most(4)) {
				w.ack(c)
			}
			w.pass(30 * second)
			n = only(w, "notices", w.received("/a"))
			is(w, "under it", []any{n.Type, n.Data.Queue, n.Data.Depth, n.Data.OverSince.IsZero()},
				[]any{"queue.under", "default", int64(0), false})
		}},
		{name: "a queue whose tasks wait too long is notified", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a", Events: []string{"queue.over"}, WaitOver: 30 * second})
			w.fill(1, spec{})
			w.pass(20 * second)
			is(w, "before", len(w.received("/a")), 0)
			w.pass(30 * second)
			n := only(w, "notices", w.received("/a"))
			is(w, "then", []any{n.Type, n.Data.Depth, n.Data.WaitOver, n.Data.OldestWait > 30}, []any{"queue.over", int64(1), 30.0, true})
		}},
		ofTheGateway(story{name: "webhooks and notifications are separate for each namespace", tell: func(w *world) {
			w.receives()
			w.done(w.keys().AddSpace(w.ctx(), "team-a"))
			w.pass(second)
			team := w.within("team-a")
			w.hook(hookSpec{Name: "ours"})
			team.hook(hookSpec{Name: "theirs"})
			is(w, "what each sees", []string{w.hookNames(), team.hookNames()}, []string{"ours", "theirs"})
			gone := refusal{Code: "not_found"}
			for what, call := range hookCalls {
				w.refused(what, call(team, "ours"), gone)
			}
			is(w, "the one that is there", w.hookNames(), "ours")
			ok[newHook](w)(team.hooks().AddHook(w.ctx(), hookSpec{Name: "ours", URL: hookURL("/elsewhere")})) // of the same name
			is(w, "whose they are", []string{w.hookNames(), team.hookNames()}, []string{"ours", "ours theirs"})
			w.done(team.hooks().RemoveHook(w.ctx(), "ours"))
			w.enqueue(spec{Queue: "mail"})
			w.kill("mail", "broken")
			team.enqueue(spec{Queue: "mail"})
			team.kill("mail", "worse")
			w.pass(10 * second)
			for path, want := range map[string]string{"/ours": "broken", "/theirs": "worse"} {
				n := only(w, "notices", w.received(path))
				is(w, "what was told", []any{n.Data.Count, n.Data.Tasks[0].Error}, []any{int64(1), want})
			}
		}}),
	})
}

// hookCalls are calls on a webhook that must exist.
var hookCalls = map[string]func(w *world, name string) error{
	"show": func(w *world, name string) error { _, err := w.hooks().Hook(w.ctx(), name); return err },
	"set": func(w *world, name string) error {
		_, err := w.hooks().SetHook(w.ctx(), name, hookChange{Queues: []string{"x"}})
		return err
	},
	"rotate":     func(w *world, name string) error { _, err := w.hooks().RotateHook(w.ctx(), name, "", nil); return err },
	"pause":      func(w *world, name string) error { _, err := w.hooks().PauseHook(w.ctx(), name, ""); return err },
	"resume":     func(w *world, name string) error { _, err := w.hooks().ResumeHook(w.ctx(), name); return err },
	"test":       func(w *world, name string) error { _, err := w.hooks().TestHook(w.ctx(), name); return err },
	"deliveries": func(w *world, name string) error { _, err := w.hooks().Posted(w.ctx(), name); return err },
	"remove":     func(w *world, name string) error { return w.hooks().RemoveHook(w.ctx(), name) },
}

// hooking is a bad call that would create a webhook.
func hooking(field, says string, h hookSpec) badCall {
	if h.Name == "" && field != "name" {
		h.Name = "a"
	}
	if h.URL == "" && says != "is required" {
		h.URL = hookURL("/x")
	}
	return bad("add: "+field, says, func(w *world) (newHook, error) { return w.hooks().AddHook(w.ctx(), h) }).of(field)
}

// setting is a bad call that would change the webhook "good".
func setting(field, says string, to hookChange) badCall {
	return bad("set: "+field, says, func(w *world) (hookInfo, error) { return w.hooks().SetHook(w.ctx(), "good", to) }).of(field)
}

func TestBadWebhooks(t *testing.T) {
	negative, much := int64(-1), int64(1_000_000_001)
	short, long, never := 999*millisecond, 721*hour, 31*day
	rotating := func(field, says, secret string, overlap *span) badCall {
		return bad("rotate: "+field, says, func(w *world) (newHook, error) {
			return w.hooks().RotateHook(w.ctx(), "good", secret,
				overlap)
		}).of(field)
	}
	listing := func(field, says string, p part) badCall {
		return bad("list: "+field, says, func(w *world) (any, error) {
			_, _, err := w.hooks().Hooks(w.ctx(), p)
			return nil,
				err
		}).of(field)
	}
	calls := []badCall{
		hooking("name", "is required", hookSpec{}),
		hooking("name", `"a b" has a character other than`, hookSpec{Name: "a b"}),
		hooking("name", "129 bytes, at most 128", hookSpec{Name: strings.Repeat("x", 129)}),
		hooking("url", "is required", hookSpec{}),
		hooking("url", "at most 2048 are allowed", hookSpec{URL: "https://example.com/" + strings.Repeat("x", 2048)}),
		hooking("url", `it begins with "ftp", and must begin with https, or with http to go to a network of --webhook-allow-network`,
			hookSpec{URL: "ftp://example.com/x"}),
		hooking("url", "a user or password", hookSpec{URL: "https://lena:hidden@example.com/x"}),
		hooking("url", "a fragment after #", hookSpec{URL: "https://example.com/x#y"}),
		hooking("url", "it has no host", hookSpec{URL: "https:///x"}),
		hooking("url", `port "0" is not between 1 and 65535`, hookSpec{URL: "https://example.com:0/"}),
		hooking("url", "127.0.0.1 is not an address of the public internet", hookSpec{URL: "https://127.0.0.1/x"}),
		hooking("url", "169.254.169.254 is not an address of the public internet", hookSpec{URL: "http://[::ffff:169.254.169.254]/x"}),
		hooking("url", "8.8.8.8 is in no network of --webhook-allow-network for this namespace: only https may go there",
			hookSpec{URL: "http://8.8.8.8/x"}),
		hooking("events", `"task.made" is not one of`, hookSpec{Events: []string{"task.made"}}),
		hooking("events", "8 kinds, at most 7", hookSpec{Events: slices.Repeat([]string{"task.*"}, 8)}),
		hooking("events", "need a threshold: give depth_over or wait_over", hookSpec{Events: []string{"queue.over"}}),
		hooking("queues", "32", hookSpec{Queues: slices.Repeat([]string{"x"}, 33)}),
		hooking("queues", `"a b" is not a pattern of queue names`, hookSpec{Queues: []string{"a b"}}),
		hooking("depth_over", "-1 is not between 0 and 1000000000", hookSpec{DepthOver: -1}),
		hooking("depth_over", "1000000001 is not between 0 and 1000000000", hookSpec{DepthOver: much}),
		hooking("depth_over", "5 is given, and events has neither queue.over nor queue.under", hookSpec{DepthOver: 5,
			Events: []string{"task.*"}}),
		hooking("wait_over", "999ms is not between 1s and", hookSpec{WaitOver: short}),
		hooking("wait_over", "is not between 1s and 720h0m0s (30 days)", hookSpec{WaitOver: never}),
		hooking("wait_over", "1m0s is given, and events has neither", hookSpec{WaitOver: minute, Events: []string{"task.*"}}),
		hooking("secret", "it is not whsec_ followed by 24 to 64 bytes", hookSpec{Secret: "hidden"}),
		hooking("secret", "it has 5 bytes, 24 to 64 are allowed", hookSpec{Secret: "whsec_c2hvcnQ="}),
		setting("url", `it begins with "ftp", and must begin with https, or with http to go to a network of --webhook-allow-network`,
			hookChange{URL: "ftp://example.com/x"}),
		setting("events", `"task.made" is not one of`, hookChange{Events: []string{"task.made"}}),
		setting("events", "need a threshold", hookChange{Events: []string{"queue.under"}}),
		setting("queues", `"a b" is not a pattern of queue names`, hookChange{Queues: []string{"a b"}}),
		setting("depth_over", "-1 is not between 0 and 1000000000", hookChange{DepthOver: &negative}),
		setting("depth_over", "1000000001 is not between 0 and 1000000000", hookChange{DepthOver: &much}),
		setting("wait_over", "999ms is not between 1s and", hookChange{WaitOver: &short}),
		rotating("secret", "it is not whsec_ followed by", "hidden", nil),
		rotating("overlap", "721h0m0s is not between 0s and 720h0m0s (30 days)", "", &long),
		bad("reason", "at most", func(w *world) (hookInfo, error) {
			return w.hooks().PauseHook(w.ctx(), "good", strings.Repeat("x", 10_000))
		}),
		listing("limit", "-1", part{Limit: -1}),
		listing("limit", "1001", part{Limit: 1001}),
		listing("cursor", "", part{Cursor: "x"}),
	}
	refusing := refusedCalls("", calls).tell
	tellAll(t, []story{
		ofTheGateway(story{name: "an invalid webhook is refused with its field, value and rule, and changes nothing", tell: func(w *world) {
			good := w.hook(hookSpec{Name: "good"}).Hook
			w.pass(second)
			refusing(w)
			is(w, "what there is", w.hookNames(), "good")
			is(w, "the good one", w.hookInfo("good"), good)
			is(w, "the audit", w.audited(), []string{"webhook.add"})
		}}),
		ofTheGateway(story{name: "no refusal shows a secret", tell: func(w *world) {
			for _, c := range calls {
				if err := c.call(w); err == nil || strings.Contains(err.Error(), "hidden") {
					w.Errorf("%s: the refusal is missing or shows the secret: %v", c.name, err)
				}
			}
		}}),
		{name: "an unknown webhook is not found", tell: func(w *world) {
			for what, call := range hookCalls {
				w.refused(what, call(w, "none"), refusal{Code: "not_found"})
			}
			is(w, "the audit", len(w.audited()), 0)
		}},
		ofTheGateway(story{name: "an invalid name is refused by every call", tell: func(w *world) {
			for what, call := range hookCalls {
				w.refused(what, call(w, "a b"), refusal{Code: "invalid_argument", Field: "name"})
			}
		}}),
		ofTheGateway(story{name: "a namespace has up to 100 webhooks, listed in pages", tell: func(w *world) {
			for i := range 100 {
				ok[newHook](w)(w.hooks().AddHook(w.ctx(), hookSpec{Name: fmt.Sprintf("h%02d", i), URL: hookURL("/x")}))
			}
			_, err := w.hooks().AddHook(w.ctx(), hookSpec{Name: "one-more", URL: hookURL("/x")})
			w.refused("one more", err, refusal{Code: "invalid_argument", Field: "name"})
			var names []string
			for p := (part{Limit: 40}); ; {
				list, next, err := w.hooks().Hooks(w.ctx(), p)
				must(w.T, err)
				for _, h := range list {
					names = append(names, h.Name)
				}
				if p.Cursor = next; next == "" {
					break
				}
				is(w, "a full page", len(list), 40)
			}
			is(w, "all of them, in order", []any{len(names), slices.IsSorted(names), len(slices.Compact(names))}, []any{100, true, 100})
		}}),
	})
}
