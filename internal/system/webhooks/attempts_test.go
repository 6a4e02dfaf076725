package webhooks

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

var (
	accepted = webhook.Outcome{Status: 200}
	refused  = webhook.Outcome{Status: 500, Error: "no"}
	gone     = webhook.Outcome{Status: 410, Error: "it is gone", Gone: true}
)

// attempt begins the next attempt for webhook h; nil: none is due.
func (w *Webhooks) attempt(t *testing.T) *attempt {
	t.Helper()
	a, err := w.nextAttempt(bg, "default", "h")
	must(t, err)
	return a
}

// mustAttempt begins the next attempt for webhook h, which must be due.
func (w *Webhooks) mustAttempt(t *testing.T) *attempt {
	t.Helper()
	a := w.attempt(t)
	if a == nil {
		t.Fatal("no attempt is due")
	}
	return a
}

// amend changes the state of the deliveries of webhook h.
func (w *world) amend(fn func(s *Status)) {
	w.T.Helper()
	w.Round(func(tx *store.Tx) {
		s, err := webhookStatus(tx, "default", "h")
		if err != nil {
			w.T.Error(err)
		}
		fn(&s)
		setWebhookStatus(tx, "default", "h", s)
	})
}

// dueBy counts the pending notices of webhook h that are due at a time.
func (w *world) dueBy(at store.Time) (n int) {
	scanPending(w.State, "default", "h", func(k, _ []byte) bool {
		if due, _ := dueOf(k); due <= at {
			n++
		}
		return true
	})
	return n
}

// If no outcome of an attempt is recorded, another begins when its lease ends, under the same id. Then only the later one counts, once.
func TestAttemptsWithoutAnOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		c.Webhooks.takes(t, deaths("q", 1, 1))
		pass(time.Second)
		began := time.Now()
		first := c.Webhooks.mustAttempt(t)
		c.Webhooks.takes(t, deaths("q", 5, 2)) // too late for the one that is being sent
		second := c.Webhooks.mustAttempt(t)
		if first.id == second.id || first.notice.Attempts != 1 || second.notice.Notification.Count != 5 || w.status("h").Pending != 2 {
			t.Errorf("attempts %+v and %+v, %d pending", first.notice, second.notice, w.status("h").Pending)
		}
		if due, _ := dueOf(first.key); due != store.TimeOf(began.Add(attemptLease)) {
			t.Errorf("the first is due again at %d", due)
		}
		must(t, c.Webhooks.settle(bg, second, accepted))
		pass(time.Until(began.Add(attemptLease - time.Microsecond)))
		if a := c.Webhooks.attempt(t); a != nil {
			t.Errorf("within the lease: attempt %+v", a)
		}
		pass(time.Microsecond)
		again := c.Webhooks.mustAttempt(t)
		if again.id != first.id || again.notice.Attempts != 2 || again.request().ID != first.request().ID {
			t.Errorf("after the lease: attempt %+v, want the second of %s", again, first.id)
		}
		w.writesNothing("an outcome that is late", func() { must(t, c.Webhooks.settle(bg, first, refused)) })
		must(t, c.Webhooks.settle(bg, again, accepted))
		w.writesNothing("an outcome that is recorded", func() {
			must(t, c.Webhooks.settle(bg, again, accepted))
			must(t, c.Webhooks.settle(bg, again, gone))
		})
		if s := w.status("h"); s.Pending != 0 || s.Delivered != 2 || s.Failed != 0 || system.GetNumber(w.State, system.PendingsKey) != 0 {
			t.Errorf("in the end the deliveries are %+v", s)
		}
		if n := rowsOf(w.State, []byte{system.PendingTable}) + rowsOf(w.State, []byte{system.UntriedTable}); n != 0 {
			t.Errorf("%d rows of notices are left", n)
		}
	})
}

// The last attempt, by number or by age, ends a notice. The one before it does not.
func TestTheLastAttempt(t *testing.T) {
	for _, s := range []struct {
		attempts int // before this one
		late     time.Duration
		want     Outcome
	}{{28, 0, Retrying}, {29, 0, Dropped}, {30, 0, Dropped}, {0, -1, Retrying}, {0, 0, Retrying}, {0, time.Microsecond, Dropped}} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.open(1)
			hook(t, c, Webhook{Name: "h"})
			c.Webhooks.takes(t, deaths("q", 2, 1))
			w.Round(func(tx *store.Tx) {
				scanPending(tx, "default", "h", func(k, v []byte) bool {
					n, err := system.DecodeRow[notice](k, v)
					must(t, err)
					n.Attempts = s.attempts
					tx.Set(k, system.EncodeRow(n))
					return true
				})
			})
			a := c.Webhooks.mustAttempt(t)
			if s.attempts == 0 {
				w.Sleep(time.Until(a.id.created().Add(maxNoticeAge + s.late).Time()))
			}
			must(t, c.Webhooks.settle(bg, a, refused))
			last, err := c.Webhooks.Deliveries(bg, "default", "h")
			if err != nil || len(last) != 1 || last[0].Outcome != s.want || last[0].Attempts != s.attempts+1 || last[0].Count != 2 ||
				last[0].Error != "no" || last[0].Status != 500 {
				t.Errorf("attempt %d, late by %v: %+v, %v, want %s", s.attempts+1, s.late, last, err, s.want)
			}
			n := int64(0)
			if s.want == Dropped {
				n = 1
			}
			if st := w.status("h"); st.Dropped != n || st.Pending != 1-n || (st.DroppedAt != 0) != (n == 1) ||
				c.Webhooks.dropped.Load() != uint64(n) || st.Failed != 1 || system.GetNumber(w.State, system.PendingsKey) != uint64(1-n) {
				t.Errorf("attempt %d, late by %v: deliveries %+v, %d dropped here", s.attempts+1, s.late, st, c.Webhooks.dropped.Load())
			}
		})
	}
}

// Notices that are too old are dropped, some at a time, even while the webhook is paused. What came later remains.
func TestOldNoticesAreDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		var some []*task.Notification
		for n := range 200 + 1 {
			some = append(some, deaths(fmt.Sprint("q", n), 1, 1))
		}
		c.Webhooks.takes(t, some...)
		created := oldestPending(w.State, "default", "h")
		first := c.Webhooks.mustAttempt(t)
		_, err := c.Webhooks.Pause(bg, hookCall("h"))
		must(t, err)
		w.Sleep(time.Hour)
		c.Webhooks.takes(t, deaths(first.notice.Notification.Queue, 3, 2)) // its first notice has been tried
		w.Sleep(time.Until(created.Add(maxNoticeAge).Time()) - time.Hour)
		w.writesNothing("a notice of the highest age", func() { c.Webhooks.attempt(t) })
		w.Sleep(time.Second)
		for i, left := range []int64{2, 1, 1} {
			if a := c.Webhooks.attempt(t); a != nil {
				t.Errorf("an attempt for a paused webhook: %+v", a)
			}
			if s := w.status("h"); s.Pending != left || s.Dropped != 200+2-left || s.DroppedAt == 0 ||
				c.Webhooks.dropped.Load() != uint64(200+2-left) || system.GetNumber(w.State, system.PendingsKey) != uint64(left) {
				t.Errorf("look %d: deliveries %+v, %d dropped here, want %d left", i, s, c.Webhooks.dropped.Load(), left)
			}
		}
		last, err := c.Webhooks.Deliveries(bg, "default", "h")
		if err != nil || len(last) != 20 || last[0].Outcome != Dropped || last[0].Error != "it waited too long" {
			t.Errorf("the last deliveries are %+v, %v", last, err)
		}
		if n := rowsOf(w.State, []byte{system.UntriedTable}); n != 1 {
			t.Errorf("%d notices count as untried, want 1", n)
		}
		c.Webhooks.takes(t, deaths(first.notice.Notification.Queue, 4, 3)) // is merged
		_, err = c.Webhooks.Resume(bg, hookCall("h"))
		must(t, err)
		if a := c.Webhooks.mustAttempt(t); a.notice.Notification.Count != 7 || w.status("h").Pending != 1 {
			t.Errorf("the notice that came later is %+v", a.notice)
		}
	})
}

// A success after hookDown failures in a row makes what is pending due, some at a time. After fewer, everything keeps its time.
func TestReceiverRecovers(t *testing.T) {
	for failures, want := range map[int]int{2: 0, 3: 200, 4: 200} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.open(1)
			hook(t, c, Webhook{Name: "h"})
			var some []*task.Notification
			for n := range 200 + 2 {
				some = append(some, deaths(fmt.Sprint("q", n), 1, 1))
			}
			c.Webhooks.takes(t, some...)
			a := c.Webhooks.mustAttempt(t)
			for range 200 + 1 {
				c.Webhooks.mustAttempt(t)
			}
			c.Webhooks.takes(t, deaths("untried", 1, 1))
			w.amend(func(s *Status) {
				s.Failures, s.FailsSince, s.RestUntil = failures, 5, store.TimeOf(time.Now().Add(time.Hour))
			})
			must(t, c.Webhooks.settle(bg, a, accepted))
			if n := w.dueBy(store.TimeOf(time.Now().Add(time.Second))); n != want+1 {
				t.Errorf("after %d failures, a success made %d notices due, want %d", failures, n-1, want)
			}
			if s := w.status("h"); s.Failures != 0 || s.FailsSince != 0 || s.RestUntil != 0 || s.DeliveredAt == 0 || s.Pending != 200+2 {
				t.Errorf("after %d failures and a success the deliveries are %+v", failures, s)
			}
			c.Webhooks.takes(t, deaths("untried", 1, 2))
			if s := w.status("h"); s.Pending != 200+2 {
				t.Errorf("an untried notice did not absorb another: %d are pending", s.Pending)
			}
		})
	}
}

// However many notices wait for a receiver, all are due within a few successes once it is back: it was down, the
// webhook was resumed, or a test succeeded.
func TestAllNoticesAreMadeDue(t *testing.T) {
	for what, back := range map[string]func(w *world, c *control, a *attempt) error{
		"a success": func(_ *world, c *control, a *attempt) error { return c.Webhooks.settle(bg, a, accepted) },
		"a resume": func(_ *world, c *control, _ *attempt) error {
			_, err := c.Webhooks.Pause(bg, hookCall("h"))
			if err == nil {
				_, err = c.Webhooks.Resume(bg, hookCall("h"))
			}
			return err
		},
		"a test": func(w *world, _ *control, _ *attempt) (err error) {
			w.Round(func(tx *store.Tx) { err = resumeAfterTest(tx, &Webhook{Namespace: "default", Name: "h"}) })
			return err
		},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.open(1)
			hook(t, c, Webhook{Name: "h"})
			const many = 3*maxMadeDue + 1
			var some []*task.Notification
			for n := range many {
				some = append(some, deaths(fmt.Sprint("q", n), 1, 1))
			}
			c.Webhooks.takes(t, some...)
			a := c.Webhooks.mustAttempt(t)
			for range many - 1 {
				c.Webhooks.mustAttempt(t)
			}
			w.amend(func(s *Status) { s.Failures = hookDown })
			must(t, back(w, c, a))
			for range 3 {
				must(t, c.Webhooks.settle(bg, c.Webhooks.mustAttempt(t), accepted))
			}
			if due, left := w.dueBy(store.TimeOf(time.Now().Add(time.Second))), int(w.status("h").Pending); due != left || left < many-4 {
				t.Errorf("after %s and 3 deliveries, %d of %d pending notices are due, want all", what, due, left)
			}
			if s := w.status("h"); s.Reviving {
				t.Errorf("after %s, with nothing left to be made due, the deliveries are %+v", what, s)
			}
		})
	}
}

// After a failed attempt, a webhook waits until the time that is shown, and as long as its receiver asked.
func TestWebhookBacksOff(t *testing.T) {
	for _, wish := range []time.Duration{0, time.Second, time.Hour} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.open(1)
			hook(t, c, Webhook{Name: "h"})
			c.Webhooks.takes(t, deaths("q", 1, 1))
			a := c.Webhooks.mustAttempt(t)
			began := store.TimeOf(time.Now())
			o := refused
			o.RetryAfter = wish
			must(t, c.Webhooks.settle(bg, a, o))
			s := w.status("h")
			rest := s.RestUntil.Sub(s.FailedAt)
			if s.FailsSince != s.FailedAt || s.Failures != 1 || s.FailedAt < began || rest < max(wish, minBackoff*3/4) ||
				rest > max(wish, minBackoff) {
				t.Errorf("after a failure with a wish of %v: %+v, a rest of %v", wish, s, rest)
			}
			if v, err := c.Webhooks.Get(bg, "default", "h"); err != nil || v.NextAttempt != s.RestUntil {
				t.Errorf("the next attempt is shown at %d, %v, want %d", v.NextAttempt, err, s.RestUntil)
			}
			c.Webhooks.takes(t, deaths("r", 1, 1)) // is due, but the webhook rests
			pass(time.Until(s.RestUntil.Time()) - time.Microsecond)
			if a := c.Webhooks.attempt(t); a != nil {
				t.Errorf("within the rest: attempt %+v", a)
			}
			pass(time.Microsecond)
			first := c.Webhooks.mustAttempt(t)
			must(t, c.Webhooks.settle(bg, first, refused))
			if next := w.status("h"); next.Failures != 2 || next.FailsSince != s.FailsSince || next.Failed != 2 || next.LastStatus != 500 ||
				next.LastError != "no" {
				t.Errorf("after the second failure: %+v", next)
			}
		})
	}
}

// The pause grows by backoffFactor with each attempt up to a bound, of which at most a quarter is random.
func TestBackoff(t *testing.T) {
	for n, want := range []time.Duration{1: 5 * time.Second, 2: 15 * time.Second, 3: 45 * time.Second, 4: 135 * time.Second,
		5: 4 * time.Minute, 6: 4 * time.Minute, 30: 4 * time.Minute} {
		if want == 0 {
			continue
		}
		if most, least := backoff(n, 4*time.Minute, 1), backoff(n, 4*time.Minute, 0); most != want || least != want*3/4 {
			t.Errorf("the pause after attempt %d is %v to %v, want at most %v", n, least, most, want)
		}
	}
}

// A receiver that is gone for good disables its webhook, once. What is pending is held until it is resumed.
func TestReceiverIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		hook(t, c, Webhook{Name: "h"})
		hook(t, c, Webhook{Name: "i"})
		said := &records{all: map[string]int{}}
		c.Webhooks.log = slog.New(said)
		c.Webhooks.takes(t, deaths("q", 1, 1), deaths("r", 1, 1))
		first, second := c.Webhooks.mustAttempt(t), c.Webhooks.mustAttempt(t)
		version := system.GetNumber(w.State, watchVersionKey("default"))
		pass(time.Second)
		must(t, c.Webhooks.settle(bg, first, gone))
		was, all := w.row("h"), w.Audited("default")
		if was.DisabledReason != "it is gone" || was.DisabledAt != store.TimeOf(time.Now()) || len(all) != 3 ||
			!strings.HasPrefix(all[2], "receiver of h webhook.disable webhook h: ") {
			t.Errorf("the webhook is %+v, the audit log %q", was, all)
		}
		if now := system.GetNumber(w.State, watchVersionKey("default")); now <= version {
			t.Errorf("the shards are not told: version %d became %d", version, now)
		}
		pass(time.Second)
		must(t, c.Webhooks.settle(bg, second, gone))
		if now := w.row("h"); now.DisabledAt != was.DisabledAt || len(w.Audited("default")) != 3 {
			t.Errorf("disabled twice: %+v", now)
		}
		last, err := c.Webhooks.Deliveries(bg, "default", "h")
		if err != nil || len(last) != 2 || last[0].Outcome != Held || last[1].Outcome != Held || w.status("h").Pending != 2 {
			t.Errorf("the deliveries are %+v, %v", last, err)
		}
		w.Sleep(time.Hour)
		c.Webhooks.takes(t, deaths("s", 1, 1)) // for the other one
		if a := c.Webhooks.attempt(t); a != nil || w.status("h").Pending != 2 || w.status("i").Pending != 3 {
			t.Errorf("attempt %+v, %d and %d pending", a, w.status("h").Pending, w.status("i").Pending)
		}
		v, err := c.Webhooks.Resume(bg, hookCall("h"))
		if err != nil || v.DisabledReason != "" || v.DisabledAt != 0 || v.State() != Active {
			t.Errorf("after Resume the webhook is %+v, %v", v, err)
		}
		if last, err = c.Webhooks.Deliveries(bg, "default", "h"); err != nil || last[0].Outcome != Retrying {
			t.Errorf("after Resume the deliveries are %+v, %v", last, err)
		}
		must(t, c.Webhooks.settle(bg, c.Webhooks.mustAttempt(t), accepted))
		must(t, c.Webhooks.settle(bg, c.Webhooks.mustAttempt(t), accepted))
		last, err = c.Webhooks.Deliveries(bg, "default", "h")
		if err != nil || len(last) != 2 || last[0].Outcome != Delivered || last[1].Outcome != Delivered {
			t.Errorf("in the end the deliveries are %+v, %v", last, err)
		}
		if a, b := said.count("a webhook is disabled"), said.count(""); a != 1 || b != 0 {
			t.Errorf("the log has %d messages that it is disabled and %d others, want one", a, b)
		}
	})
}

// An attempt for a webhook that is removed meanwhile leaves nothing behind, nor is it counted for one that is added under its name.
func TestRemovedDuringAnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h", DepthOver: 10})
		must(t, c.Webhooks.cross(100))
		c.Webhooks.takes(t, deaths("q", 1, 1), deaths("r", 1, 1))
		a := c.Webhooks.mustAttempt(t)
		must(t, c.Webhooks.settle(bg, c.Webhooks.mustAttempt(t), accepted))
		must(t, c.Webhooks.Remove(bg, hookCall("h")))
		for _, table := range []byte{system.HookTable, system.WebhookStatusTable, system.RecentTable, system.PendingTable,
			system.UntriedTable, system.OverTable} {
			if n := rowsOf(w.State, []byte{table}); n != 0 {
				t.Errorf("%d rows are left in table %c", n, table)
			}
		}
		if n := system.GetNumber(w.State, system.PendingsKey); n != 0 {
			t.Errorf("%d notices are counted", n)
		}
		w.writesNothing("an outcome for a webhook that is removed", func() {
			for _, o := range []webhook.Outcome{accepted, refused, gone} {
				must(t, c.Webhooks.settle(bg, a, o))
			}
			if a := c.Webhooks.attempt(t); a != nil {
				t.Errorf("attempt %+v", a)
			}
		})
		hook(t, c, Webhook{Name: "h"})
		w.writesNothing("an outcome for the webhook before", func() { must(t, c.Webhooks.settle(bg, a, gone)) })
	})
}
