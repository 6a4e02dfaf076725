package webhooks

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// An older secret signs until its overlap is over, and no later rotation extends that.
func TestSecretsOfRotations(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: "default", Name: "h", URL: "https://h"}, Secret: "s0", By: operator})
		must(t, err)
		began := time.Now()
		until := func(d time.Duration) store.Time { return store.TimeOf(began.Add(d)) }
		rotate := func(secret string, overlap time.Duration) View {
			t.Helper()
			a := hookCall("h")
			a.Secret, a.Overlap = secret, overlap
			v, err := c.Webhooks.Rotate(bg, a)
			must(t, err)
			return v
		}
		expect := func(what string, old store.Time, want ...Secret) {
			t.Helper()
			if h := w.row("h"); fmt.Sprint(h.Secrets) != fmt.Sprint(want) || h.OldUntil != old || h.RotatedAt != store.TimeOf(time.Now()) {
				t.Errorf("%s: secrets %v until %d, rotated at %d, want %v until %d", what, h.Secrets, h.OldUntil, h.RotatedAt, want, old)
			}
		}
		pass(time.Hour)
		if v := rotate("s1", 2*time.Hour); v.Secrets != nil || v.OldUntil != until(3*time.Hour) {
			t.Errorf("after a rotation the webhook is %+v", v)
		}
		expect("the first", until(3*time.Hour), Secret{Value: "s1"}, Secret{"s0", until(3 * time.Hour)})
		h := w.row("h")
		for at, want := range map[store.Time]string{until(3*time.Hour) - 1: "[s1 s0]", until(3 * time.Hour): "[s1]",
			until(4 * time.Hour): "[s1]"} {
			if got := fmt.Sprint(h.secrets(at)); got != want {
				t.Errorf("at %d the secrets %s sign, want %s", at, got, want)
			}
		}
		w.writesNothing("a repeated rotation", func() { rotate("s1", time.Minute) })
		pass(time.Hour)
		rotate("s2", 3*time.Hour)
		expect("a longer overlap", until(5*time.Hour), Secret{Value: "s2"}, Secret{"s1", until(5 * time.Hour)},
			Secret{"s0", until(3 * time.Hour)})
		pass(time.Hour)
		rotate("s3", 4*time.Hour)
		expect("when the oldest is past", until(7*time.Hour), Secret{Value: "s3"}, Secret{"s2", until(7 * time.Hour)},
			Secret{"s1", until(5 * time.Hour)})
		rotateAt := time.Now()
		pass(time.Minute)
		rotate("s4", 10*time.Minute)
		soon := store.TimeOf(rotateAt.Add(11 * time.Minute))
		expect("a shorter overlap", soon, Secret{Value: "s4"}, Secret{"s3", soon}, Secret{"s2", soon})
		pass(time.Minute)
		rotate("s5", 0)
		expect("no overlap", 0, Secret{Value: "s5"})
		pass(time.Minute)
		rotate("s6", time.Microsecond)
		expect("a short one", store.TimeOf(time.Now())+1, Secret{Value: "s6"}, Secret{"s5", store.TimeOf(time.Now()) + 1})
		if all := w.Audited("default"); len(all) != 7 {
			t.Errorf("the audit log is %q, want an entry for each rotation and the webhook", all)
		}
	})
}

// A pause or its end that changes nothing writes nothing. Another reason replaces the first, and the pause keeps its beginning.
func TestPausesAndResumes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		version := system.GetNumber(w.State, watchVersionKey("default"))
		w.writesNothing("resuming an active webhook", func() {
			v, err := c.Webhooks.Resume(bg, hookCall("h"))
			if must(t, err); v.State() != Active {
				t.Errorf("it is %s", v.State())
			}
		})
		call := hookCall("h")
		call.By.Reason = "noise"
		pass(time.Second)
		began := store.TimeOf(time.Now())
		v, err := c.Webhooks.Pause(bg, call)
		if must(t, err); v.State() != Paused || v.PausedAt != began || v.PausedReason != "noise" || v.PausedBy != "lena" {
			t.Errorf("after Pause the webhook is %+v", v)
		}
		pass(time.Second)
		w.writesNothing("a second pause", func() { _, err = c.Webhooks.Pause(bg, call) })
		must(t, err)
		call.By = task.Author{Name: "otto", Interface: task.InterfaceGRPC, Reason: "work"}
		v, err = c.Webhooks.Pause(bg, call)
		if must(t, err); v.PausedAt != began || v.PausedReason != "work" || v.PausedBy != "otto" {
			t.Errorf("after Pause with another reason the webhook is %+v", v)
		}
		must(t, w.leader.Update(bg, func(tx *store.Tx) error {
			setWebhookStatus(tx, "default", "h", Status{Failures: 4, FailsSince: 3, RestUntil: tx.Now().Add(time.Hour),
				Failed: 9, LastError: "no"})
			return nil
		}))
		v, err = c.Webhooks.Resume(bg, hookCall("h"))
		if must(t, err); v.State() != Active || v.PausedAt != 0 || v.PausedReason != "" || v.PausedBy != "" {
			t.Errorf("after Resume the webhook is %+v", v)
		}
		if s := w.status("h"); s != (Status{Failed: 9, LastError: "no"}) {
			t.Errorf("after Resume the deliveries are %+v", s)
		}
		if now := system.GetNumber(w.State, watchVersionKey("default")); now != version {
			t.Errorf("a pause changed what the shards are told: version %d became %d", version, now)
		}
		if all := w.Audited("default"); len(all) != 4 {
			t.Errorf("the audit log is %q", all)
		}
	})
}

// The most severe state is reported, and webhooks are counted by it, in each namespace that has some.
func TestStatesOfWebhooks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hookIn(t, c, "other", "h")
		for name, s := range map[string]struct {
			hook     Webhook
			failures int
		}{
			"a": {Webhook{}, 0}, "b": {Webhook{}, 1}, "c": {Webhook{}, 2}, "d": {Webhook{Paused: true}, 1},
			"e": {Webhook{Paused: true}, 0}, "f": {Webhook{DisabledReason: "gone", Paused: true}, 1},
			"g": {Webhook{DisabledReason: "gone"}, 0},
		} {
			must(t, w.leader.Update(bg, func(tx *store.Tx) error {
				s.hook.Namespace, s.hook.Name = "default", name
				tx.Set(hookKey("default", name), system.EncodeRow(s.hook))
				setWebhookStatus(tx, "default", name, Status{Failures: s.failures})
				return nil
			}))
		}
		for name, want := range map[string]State{"a": Active, "b": Failing, "c": Failing, "d": Paused, "e": Paused,
			"f": Disabled, "g": Disabled} {
			if v, err := c.Webhooks.Get(bg, "default", name); err != nil || v.State() != want {
				t.Errorf("webhook %s is %s, %v, want %s", name, v.State(), err, want)
			}
		}
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks})
		const want = "map[default:map[active:1 disabled:2 failing:2 paused:2] other:map[active:1 disabled:0 failing:0 paused:0]]"
		if got := p.Counts(bg); !got.Leads || got.Oldest != 0 || fmt.Sprint(got.States) != want {
			t.Errorf("the webhooks are counted as %+v, want %s", got, want)
		}
		for _, key := range [][]byte{hookKey("default", "a"), statusKey("default", "b")} {
			was := w.Get(key)
			w.Damage(key)
			if got := p.Counts(bg); got.States != nil {
				t.Errorf("with row %q damaged, the webhooks are counted as %v", key, got.States)
			}
			w.Put(key, was)
		}
		w.newReplica().lead()
		if got := p.Counts(bg); got.Leads || got.States != nil {
			t.Errorf("a node that does not lead counts %+v", got)
		}
	})
}

// What is shown of a webhook: since when a notice waits, and when it is tried again, if one has failed and it is tried at all.
func TestNextAttemptIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		c.Webhooks.takes(t, deaths("q", 1, 1))
		created := store.TimeOf(time.Now())
		view := func() View {
			v, err := c.Webhooks.Get(bg, "default", "h")
			must(t, err)
			return v
		}
		if v := view(); v.PendingSince < created || v.PendingSince > created+9 || v.NextAttempt != 0 {
			t.Errorf("before the first attempt: %+v", v)
		}
		since := view().PendingSince
		pass(time.Second)
		c.Webhooks.takes(t, deaths("r", 1, 1))
		if v := view(); v.Pending != 2 || v.PendingSince != since {
			t.Errorf("with a later notice: %+v, want one pending since %d", v, since)
		}
		c.Webhooks.mustAttempt(t) // of the older one, which is due later now
		if v := view(); v.Pending != 2 || v.PendingSince != since {
			t.Errorf("with an attempt that has begun: %+v, want one pending since %d", v, since)
		}
		due := firstDue(w.State, &Webhook{Namespace: "default", Name: "h"})
		rest := created.Add(time.Hour)
		for _, s := range []struct {
			failures int
			rest     store.Time
			want     store.Time
		}{{0, rest, 0}, {1, rest, rest}, {2, rest, rest}, {2, 0, due}} {
			must(t, w.leader.Update(bg, func(tx *store.Tx) error {
				setWebhookStatus(tx, "default", "h", Status{Pending: 2, Failures: s.failures, RestUntil: s.rest})
				return nil
			}))
			if v := view(); v.NextAttempt != s.want {
				t.Errorf("after %d failures the next attempt is at %d, want %d", s.failures, v.NextAttempt, s.want)
			}
		}
		_, err := c.Webhooks.Pause(bg, hookCall("h"))
		must(t, err)
		if v := view(); v.NextAttempt != 0 || v.PendingSince == 0 {
			t.Errorf("of a paused webhook: %+v", v)
		}
	})
}
