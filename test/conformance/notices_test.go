package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// hookTo creates a webhook for a path of the receiver other than its name, such as one with bad answers.
func (w *world) hookTo(s hookSpec, url string) {
	w.Helper()
	s.URL = hookURL(url)
	path, _, _ := strings.Cut(url, "?")
	w.testNode.receiver.requireSignatures(path, ok[newHook](w)(w.hooks().AddHook(w.ctx(), s)).Secret)
}

// die creates n dead letters in a queue.
func (w *world) die(queue string, n int) {
	w.Helper()
	for range n {
		w.enqueue(spec{Queue: queue})
		w.kill(queue, "broken")
	}
}

// waits returns the pauses between requests.
func waits(all []webhookRequest) (pauses []time.Duration) {
	for i := 1; i < len(all); i++ {
		pauses = append(pauses, all[i].At.Sub(all[i-1].At))
	}
	return pauses
}

// The section "Events" of docs/webhooks.md.
func TestNoticeContents(t *testing.T) {
	quick := &breaker{FailureRate: 50, Window: minute, MinAttempts: 2, Hold: 30 * second, MaxHold: 30 * second, Probes: 1}
	tellAll(t, []story{
		{name: "poisoned tasks have their own notification", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "all"})
			w.hook(hookSpec{Name: "dead", Events: []string{"task.dead"}})
			w.hook(hookSpec{Name: "poisoned", Events: []string{"task.poisoned"}})
			id := w.enqueue(spec{Type: "welcome", Queue: "mail"}).ID
			w.fail(w.one(from("mail")), failing{Message: "no JSON", Outcome: "poison"})
			at := w.now()
			w.pass(10 * second)
			for _, path := range []string{"/all", "/poisoned"} {
				n := only(w, "notices", w.received(path))
				is(w, path, []any{n.Type, n.Data.Queue, n.Data.Count, n.Data.Tasks}, []any{"task.poisoned", "mail", int64(1),
					[]deadNotice{{id, "welcome", w.get(id).Reason, "no JSON", 1, at}}})
			}
			is(w, "who hears of the dead alone", len(w.received("/dead")), 0)
		}},
		{name: "many dead letters are one notification with five samples, and the next follows after a minute", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a"})
			began := time.Now()
			w.die("mail", 6)
			w.die("sms", 1)
			w.pass(2 * second)
			last := w.enqueue(spec{Type: "last", Queue: "mail"}).ID
			w.kill("mail", strings.Repeat("é", 300)+"\nsecond line")
			w.pass(10 * second)
			some := w.requestsTo("/a")
			slices.SortFunc(some, func(a, b webhookRequest) int { return strings.Compare(a.Body.Data.Queue, b.Body.Data.Queue) })
			is(w, "the notices", len(some), 2)
			for i, want := range []int64{7, 1} {
				d := some[i].Body.Data
				is(w, "of "+d.Queue, []any{d.Count, len(d.Tasks)}, []any{want, int(min(want, 5))})
				if waited := some[i].At.Sub(began); waited < 5*time.Second || waited > 7*time.Second {
					w.Errorf("the notification of %s came after %v, want 5 s", d.Queue, waited)
				}
			}
			newest := some[0].Body.Data.Tasks[4]
			is(w, "the newest", []any{newest.TaskID, newest.Type}, []any{last, "last"})
			is(w, "its error", newest.Error, strings.Repeat("é", 128)) // 256 bytes
			is(w, "different ids", some[0].ID != some[1].ID, true)

			w.die("mail", 3)
			w.pass(30 * second)
			is(w, "within the minute", len(w.requestsTo("/a")), 0)
			w.die("mail", 2)
			w.pass(40 * second)
			next := only(w, "notices", w.requestsTo("/a"))
			is(w, "what followed", []any{next.Body.Data.Queue, next.Body.Data.Count}, []any{"mail", int64(5)})
			if waited := next.At.Sub(some[0].At); waited < time.Minute {
				w.Errorf("the second notification came %v after the first, want a minute", waited)
			}
		}},
		{name: "a breaker that opens and closes is notified", tell: func(w *world) {
			w.receives()
			w.put("mail", settings{Breaker: quick})
			w.hook(hookSpec{Name: "a", Events: []string{"breaker.*"}})
			w.hook(hookSpec{Name: "opened", Events: []string{"breaker.opened"}})
			w.batch([]spec{{Type: "welcome", Queue: "mail"}, {Type: "welcome", Queue: "mail"}, {Type: "welcome", Queue: "mail"}})
			for _, c := range w.claims(from("mail").most(2)) {
				w.fail(c, failing{Message: "connection refused\nat 10.0.0.1", Outcome: "dead"})
			}
			opened := w.now()
			why := w.queue("mail").Breakers[0].Reason
			w.pass(10 * second)
			n := only(w, "notices", w.received("/a"))
			is(w, "opened", []any{n.Type, n.Data.Queue, n.Data.Count, n.Data.Breakers},
				[]any{"breaker.opened", "mail", int64(1), []heldNotice{{"welcome", why, "connection refused", opened}}})
			w.pass(20 * second)
			w.ack(w.one(from("mail")))
			closed := w.now()
			w.pass(10 * second)
			n = only(w, "notices", w.received("/a"))
			held := only(w, "breakers", n.Data.Breakers)
			is(w, "closed", []any{n.Type, n.Data.Queue, n.Data.Count, held.Type, held.Reason != "", held.At},
				[]any{"breaker.closed", "mail",
					int64(1), "welcome", true, closed})
			is(w, "who hears of openings alone", only(w, "notices", w.received("/opened")).Type, "breaker.opened")
		}},
		{name: "skipped and late ticks are notified", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a"})
			w.hook(hookSpec{Name: "mail", Queues: []string{"mail"}})
			w.schedule(schedule{Name: "nightly", Every: hour, Missed: "skip", Task: spec{Type: "report", Queue: "reports"}})
			w.pass(5*hour + 10*minute) // the machine sleeps through them
			w.pass(2 * minute)
			n := only(w, "notices", w.received("/a"))
			is(w, "the notice", []any{n.Type, n.Data.Queue}, []any{"schedule.missed", "reports"})
			missed := 0
			for _, t := range w.history("nightly") {
				if t.Outcome == "skipped" {
					missed += t.Count
				}
			}
			is(w, "how many", n.Data.Count, int64(missed))
			is(w, "more than one", missed > 1, true)
			one := only(w, "schedules", n.Data.Schedules)
			is(w, "the schedule", []any{one.Schedule, one.Type, one.Reason, one.Ticks}, []any{"nightly", "report", "missed", missed})
			is(w, "who hears of another queue", len(w.received("/mail")), 0)
		}},
		{name: "webhooks select queues by name or by pattern", tell: func(w *world) {
			w.receives()
			queues := map[string][]string{"/exact": {"mail"}, "/begins": {"mail*"}, "/one-of": {"sms", "mail-eu"},
				"/none": {"fax*"}, "/any": nil}
			for path, patterns := range queues {
				w.hook(hookSpec{Name: path[1:], Queues: patterns, Events: []string{"task.dead"}})
			}
			for _, q := range []string{"mail", "mail-eu", "sms"} {
				w.die(q, 1)
			}
			w.pass(10 * second)
			for path, want := range map[string]string{"/exact": "mail", "/begins": "mail mail-eu", "/one-of": "mail-eu sms", "/none": "",
				"/any": "mail mail-eu sms"} {
				var got []string
				for _, n := range w.received(path) {
					got = append(got, n.Data.Queue)
				}
				slices.Sort(got)
				is(w, path, strings.Join(got, " "), want)
			}
		}},
		{name: "a queue is under a threshold again at four fifths of it, and held tasks count", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a", Events: []string{"queue.*"}, Queues: []string{"mail"}, DepthOver: 10})
			w.fill(11, spec{Queue: "mail"})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "mail", pause{Reason: "holiday"}))
			began := w.now()
			w.pass(30 * second)
			n := only(w, "notices", w.received("/a"))
			is(w, "over, though it is paused", []any{n.Type, n.Data.Depth, n.Data.WaitOver}, []any{"queue.over", int64(11), 0.0})
			since := n.Data.OverSince
			is(w, "since", since.After(began) && !since.After(began.Add(11*time.Second)), true)
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "mail", pause{}))
			run := func(n int) { w.claims(claimCall{Queues: []string{"mail"}, Max: n, Lease: hour}) }
			run(2)
			w.pass(20 * second)
			is(w, "with 9", len(w.received("/a")), 0)
			run(1)
			w.pass(20 * second)
			n = only(w, "notices", w.received("/a"))
			is(w, "with 8", []any{n.Type, n.Data.Depth, n.Data.OverSince}, []any{"queue.under", int64(8), since})
		}},
		{name: "a wait threshold ends when nothing waits or the queue is deleted", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "wait", Events: []string{"queue.*"}, WaitOver: 30 * second})
			w.hook(hookSpec{Name: "gone", Events: []string{"queue.*"}, Queues: []string{"sms"}, DepthOver: 1})
			w.fill(1, spec{Queue: "mail"})
			w.fill(2, spec{Queue: "sms"})
			w.pass(20 * second)
			is(w, "over", only(w, "notices", w.received("/gone")).Type, "queue.over")
			w.pass(25 * second)
			over := w.received("/wait")
			slices.SortFunc(over, func(a, b notice) int { return strings.Compare(a.Data.Queue, b.Data.Queue) })
			is(w, "over", []any{len(over), over[0].Type, over[0].Data.Queue, over[1].Data.Queue, over[0].Data.WaitOver},
				[]any{2, "queue.over",
					"mail", "sms", 30.0})
			w.ack(w.one(from("mail")))
			ok[int64](w)(w.api.Purge(w.ctx(), "sms"))
			w.done(w.api.DeleteQueue(w.ctx(), "sms"))
			w.pass(20 * second)
			is(w, "gone", only(w, "notices", w.received("/gone")).Type, "queue.under")
			for _, n := range w.received("/wait") {
				is(w, "under", []any{n.Type, n.Data.OldestWait}, []any{"queue.under", 0.0})
			}
		}},
	})
}

// The section "Receiving" of docs/webhooks.md.
func TestDelivery(t *testing.T) {
	tellAll(t, []story{
		{name: "a notification is retried after 5 s, 15 s, 45 s and so on, or up to a quarter sooner, with the same id and body",
			tell: func(w *world) {
				w.receives()
				w.hookTo(hookSpec{Name: "a"}, "/a/500")
				w.die("mail", 1)
				for range 6 {
					w.pass(2 * minute)
				}
				tries := w.refusedRequests("/a/500")
				is(w, "attempts", len(tries), 6)
				for i, got := range waits(tries) {
					want := []time.Duration{5, 15, 45, 135, 405}[i] * time.Second
					if got < want*3/4 || got > want+time.Second {
						w.Errorf("attempt %d came %v after the previous one, want %v or up to a quarter less", i+2, got, want)
					}
				}
				for _, l := range tries {
					is(w, "the notice", []any{l.ID, l.Body}, []any{tries[0].ID, tries[0].Body})
				}
				h := w.hookInfo("a")
				is(w, "the webhook", []any{h.Failures, h.Failed, h.Delivered, h.LastStatus}, []any{int64(6), int64(6), int64(0), 500})
				is(w, "when it goes on", h.NextAttemptAt.After(w.now()) && h.NextAttemptAt.Before(w.now().Add(time.Hour)), true)
				is(w, "what is said of it", strings.Contains(h.LastError, "500 Internal Server Error: no"), true)
				p := only(w, "deliveries", ok[[]posted](w)(w.hooks().Posted(w.ctx(), "a")))
				is(w, "the delivery", []any{p.ID, p.Event, p.Outcome, p.Attempts}, []any{tries[0].ID, "task.dead", "retrying", 6})
			}},
		{name: "notifications for an unreachable receiver are merged and sent when it is back", tell: func(w *world) {
			w.receives()
			w.hookTo(hookSpec{Name: "a"}, "/a/502")
			for range 4 {
				w.die("mail", 2)
				w.pass(80 * second)
			}
			is(w, "what waits", w.hookInfo("a").Pending <= 3, true)
			w.testNode.receiver.requireSignatures("/a", w.rotated("a", nil).Secret)
			ok[hookInfo](w)(w.hooks().SetHook(w.ctx(), "a", hookChange{URL: hookURL("/a")}))
			for range 3 {
				w.pass(2 * minute)
			}
			count, seen := int64(0), map[string]bool{}
			for _, l := range w.requestsTo("/a") {
				count += l.Body.Data.Count
				is(w, "that a notice came twice", seen[l.ID], false)
				seen[l.ID] = true
			}
			is(w, "all of it", count, int64(8))
			h := w.hookInfo("a")
			is(w, "then", []any{h.Pending, h.Failures, h.PendingSince, h.NextAttemptAt, h.Delivered}, []any{int64(0), int64(0), time.Time{},
				time.Time{}, int64(len(seen))})
		}},
		{name: "Retry-After delays the next attempt, by an hour at most", tell: func(w *world) {
			w.receives()
			for _, c := range []struct {
				status string
				after  string
				rest   time.Duration
			}{{"429", "90", 90 * time.Second}, {"503", "60", time.Minute}, {"503", "7200", time.Hour}, {"500", "600", 5 * time.Second},
				{"429", "soon", 5 * time.Second}} {
				name := "s" + c.status + "-" + c.after
				w.hookTo(hookSpec{Name: name}, "/"+name+"/"+c.status+"?after="+c.after)
			}
			w.die("mail", 1)
			w.pass(6 * second)
			for name, rest := range map[string]time.Duration{"s429-90": 90 * time.Second, "s503-60": time.Minute, "s503-7200": time.Hour,
				"s500-600": 5 * time.Second, "s429-soon": 5 * time.Second} {
				h := w.hookInfo(name)
				next := h.NextAttemptAt.Sub(h.FailedAt)
				is(w, name, []any{h.Failures, next <= rest && (next == rest || strings.HasPrefix(name, "s500") ||
					strings.HasSuffix(name, "soon")) &&
					next >= rest*3/4}, []any{int64(1), true})
			}
			w.pass(2 * minute)
			is(w, "who said nothing of a minute", len(w.refusedRequests("/s500-600/500")) > 2, true)
			is(w, "who said 90 s", waits(w.refusedRequests("/s429-90/429"))[0] >= 90*time.Second, true)
			is(w, "who said two hours", len(w.refusedRequests("/s503-7200/503")), 1)
		}},
		{name: "any 2xx is a success, redirects are not followed, and the timeout is 10 s", tell: func(w *world) {
			w.receives()
			w.hookTo(hookSpec{Name: "ok"}, "/ok/202")
			w.hookTo(hookSpec{Name: "moved"}, "/moved/307")
			w.hookTo(hookSpec{Name: "slow"}, "/hangs")
			is(w, "202", ok[posted](w)(w.hooks().TestHook(w.ctx(), "ok")).Outcome, "delivered")
			moved := ok[posted](w)(w.hooks().TestHook(w.ctx(), "moved"))
			is(w, "307", []any{moved.Outcome, moved.Status, strings.Contains(moved.Error, "redirects are not followed")},
				[]any{"failed", 307, true})
			is(w, "what came where it led", len(w.received("/elsewhere")), 0)
			slow := ok[posted](w)(w.hooks().TestHook(w.ctx(), "slow"))
			is(w, "who never answers", []any{slow.Outcome, slow.Status, slow.Took}, []any{"failed", 0, 10 * second})
			w.die("mail", 1) // the one that hangs delays no other
			w.pass(7 * second)
			is(w, "the other", len(w.received("/ok/202")), 2)
			w.pass(20 * second)
			h := w.hookInfo("slow")
			is(w, "the one that hangs", []any{h.Failures > 0, h.LastStatus, h.Pending}, []any{true, 0, int64(1)})
		}},
		{name: "the last 20 deliveries are listed, newest first", tell: func(w *world) {
			w.receives()
			w.hook(hookSpec{Name: "a"})
			w.die("mail", 1)
			w.pass(10 * second)
			is(w, "the first", w.posts("a"), []string{"task.dead: delivered after 1 with 204"})
			var want []string
			for range 21 {
				want = append([]string{ok[posted](w)(w.hooks().TestHook(w.ctx(), "a")).ID}, want...)
				w.pass(second)
			}
			var got []string
			all := ok[[]posted](w)(w.hooks().Posted(w.ctx(), "a"))
			for _, p := range all {
				got = append(got, p.ID)
			}
			is(w, "the last", got, want[:20])
			is(w, "by time", slices.IsSortedFunc(all, func(a, b posted) int { return b.At.Compare(a.At) }), true)
			is(w, "tests are no deliveries of the webhook", w.hookInfo("a").Delivered, int64(1))
		}},
		{name: "an old secret signs until its overlap ends, and at most three secrets sign", tell: func(w *world) {
			w.receives()
			secrets := []string{w.hook(hookSpec{Name: "a"}).Secret}
			signed := func(want ...string) {
				w.Helper()
				w.testNode.receiver.requireSignatures("/a", want...)
				ok[posted](w)(w.hooks().TestHook(w.ctx(), "a"))
				is(w, "signatures", only(w, "notices", w.requestsTo("/a")).Signatures, len(want))
			}
			signed(secrets[0])
			over := hour
			for range 3 {
				w.pass(second)
				secrets = append([]string{w.rotated("a", &over).Secret}, secrets...)
			}
			signed(secrets[:3]...)
			w.pass(hour)
			signed(secrets[0])
			short, long := minute, day
			middle := w.rotated("a", &short).Secret
			last := w.rotated("a", &long)
			is(w, "until when one before the last signs", last.Hook.OldUntil.Sub(w.now()), day.std())
			signed(last.Secret, middle, secrets[0])
			w.pass(2 * minute)
			signed(last.Secret, middle) // the overlap given for the oldest is over
			w.rotated("a", nil)
			w.pass(23 * hour)
			is(w, "a day before it ends", w.hookInfo("a").OldUntil.After(w.now()), true)
			w.pass(hour)
			is(w, "a day later", w.hookInfo("a").OldUntil.After(w.now()), false)
		}},
		{name: "a paused webhook can be tested, and a removed one gets nothing, nor does its successor of the same name",
			tell: func(w *world) {
				w.receives()
				w.hook(hookSpec{Name: "a"})
				ok[hookInfo](w)(w.hooks().PauseHook(w.ctx(), "a", "it moves"))
				w.die("mail", 1)
				w.pass(10 * second)
				is(w, "a test", ok[posted](w)(w.hooks().TestHook(w.ctx(), "a")).Outcome, "delivered")
				is(w, "what came", only(w, "notices", w.received("/a")).Type, "webhook.test")
				is(w, "what waits", w.hookInfo("a").Pending, int64(1))
				w.done(w.hooks().RemoveHook(w.ctx(), "a"))
				w.pass(minute)
				w.hook(hookSpec{Name: "a"})
				is(w, "its deliveries", len(w.posts("a")), 0)
				is(w, "how it is doing", []any{w.hookInfo("a").Pending, w.hookInfo("a").Paused}, []any{int64(0), false})
				w.pass(2 * minute)
				is(w, "what came", len(w.received("/a")), 0)
				w.die("mail", 1)
				w.pass(2 * minute)
				is(w, "what it is told then", only(w, "notices", w.received("/a")).Data.Count, int64(1))
			}},
		{name: "events of other kinds, or from before the webhook, are not sent", tell: func(w *world) {
			w.receives()
			w.die("mail", 1)
			w.pass(minute)
			w.hook(hookSpec{Name: "a"})
			for i, how := range []failing{{Outcome: "discard"}, {Outcome: "retry", RetryIn: hour}} {
				w.enqueue(spec{Type: fmt.Sprint(i)})
				w.fail(w.claim(), how)
			}
			id := w.enqueue(spec{}).ID
			ok[view](w)(w.api.Cancel(w.ctx(), id))
			w.enqueue(spec{})
			w.ack(w.claim())
			w.pass(2 * minute)
			is(w, "what came", len(w.received("/a")), 0)
		}},
	})
}
