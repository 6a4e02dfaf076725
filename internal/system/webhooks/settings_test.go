package webhooks

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

var (
	ofDeaths     = []task.NotificationKind{task.NotifyDead}
	ofThresholds = []task.NotificationKind{task.NotifyQueueOver, task.NotifyQueueUnder}
)

// writesNothing fails the test if a call writes to the system shard.
func (w *world) writesNothing(what string, call func()) {
	w.T.Helper()
	before := w.State.Applied().Index
	if call(); w.State.Applied().Index != before {
		w.T.Errorf("%s wrote to the system shard", what)
	}
}

// row reads the row of a webhook of the namespace default.
func (w *world) row(name string) Webhook {
	w.T.Helper()
	h, ok, err := system.GetRow[Webhook](w.State, hookKey("default", name))
	if err != nil || !ok {
		w.T.Fatalf("the row of webhook %s: %t, %v", name, ok, err)
	}
	return h
}

// status reads the state of the deliveries of a webhook of the namespace default.
func (w *world) status(name string) Status {
	w.T.Helper()
	s, err := webhookStatus(w.State, "default", name)
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

func blames(t *testing.T, what string, err error, field string) {
	t.Helper()
	if e, ok := task.AsError(err); !ok || e.Code != task.CodeInvalidArgument || e.Field != field {
		t.Errorf("%s: %v, want an error about %s", what, err, field)
	}
}

// Settings at a bound are accepted and those past it refused, for new webhooks and for existing ones. The error names the field, and
// nothing changes.
func TestBoundsOfSettings(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for i, s := range []struct {
			depth  int64
			wait   time.Duration
			events []task.NotificationKind
			queues string
			field  string // "": it is accepted
		}{
			{1, 0, ofThresholds, "q", ""},
			{1, 0, ofThresholds[:1], "q", ""},
			{1, 0, ofThresholds[1:], "q", ""},
			{maxDepthOver, 0, ofThresholds, "q", ""},
			{1_000_000_001, 0, ofThresholds, "q", "depth_over"},
			{-1, 0, ofThresholds, "q", "depth_over"},
			{-1, minWaitOver, ofThresholds, "q", "depth_over"},
			{0, minWaitOver, ofThresholds, "q", ""},
			{0, maxWaitOver, ofThresholds, "q", ""},
			{5, minWaitOver, ofThresholds, "q", ""},
			{0, minWaitOver - 1, ofThresholds, "q", "wait_over"},
			{0, maxWaitOver + 1, ofThresholds, "q", "wait_over"},
			{0, -minWaitOver, ofThresholds, "q", "wait_over"},
			{0, 0, ofThresholds, "q", "events"},
			{1, 0, ofDeaths, "q", "depth_over"},
			{0, minWaitOver, ofDeaths, "q", "wait_over"},
			{0, 0, ofDeaths, "q", ""},
			{0, 0, ofDeaths, "(q)", "queues"},
		} {
			what := fmt.Sprintf("%d %v %v %s", s.depth, s.wait, s.events, s.queues)
			add := Call{Hook: Webhook{Namespace: "default", Name: fmt.Sprint("new", i), URL: "https://new", Events: s.events,
				Queues: []string{s.queues}, DepthOver: s.depth, WaitOver: s.wait}, Secret: "s", By: operator}
			hook(t, c, Webhook{Name: fmt.Sprint("old", i), Events: ofDeaths, Queues: []string{"old"}})
			set := hookCall(fmt.Sprint("old", i))
			set.Change = Change{Events: s.events, Queues: []string{s.queues}, DepthOver: &s.depth, WaitOver: &s.wait}
			calls := map[string]func(context.Context, Call) (View, error){add.Hook.Name: c.Webhooks.Add, set.Hook.Name: c.Webhooks.Set}
			for name, call := range calls {
				of := map[bool]Call{true: add, false: set}[name == add.Hook.Name]
				if s.field == "" {
					if v, err := call(bg, of); err != nil || v.DepthOver != s.depth || v.WaitOver != s.wait ||
						!slices.Equal(v.Events, s.events) || v.Queues[0] != s.queues {
						t.Errorf("%s: webhook %+v, %v", what, v, err)
					}
					continue
				}
				w.writesNothing(what, func() {
					_, err := call(bg, of)
					blames(t, what+" of "+name, err, s.field)
				})
			}
		}
	})
}

// What an operator leaves out gets a default: all queues, and all kinds that can occur without a threshold, or with the given one.
func TestDefaultsOfAWebhook(t *testing.T) {
	plain := slices.DeleteFunc(slices.Clone(task.NotificationKinds), task.NotificationKind.OfThreshold)
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		for i, s := range []struct {
			given  Webhook
			events []task.NotificationKind
			queues []string
		}{
			{Webhook{}, plain, []string{"*"}},
			{Webhook{DepthOver: 1}, task.NotificationKinds, []string{"*"}},
			{Webhook{WaitOver: time.Second}, task.NotificationKinds, []string{"*"}},
			{Webhook{Queues: []string{"q"}, Events: ofDeaths}, ofDeaths, []string{"q"}},
		} {
			s.given.Name = fmt.Sprint("h", i)
			hook(t, c, s.given)
			if h := w.row(s.given.Name); !slices.Equal(h.Events, s.events) || !slices.Equal(h.Queues, s.queues) {
				t.Errorf("webhook %d has the events %v and queues %v, want %v and %v", i, h.Events, h.Queues, s.events, s.queues)
			}
		}
	})
}

// A change affects what it names and nothing else. Repeated, it changes nothing. Shards learn of a new version if the subscription differs.
func TestSetChangesOnlyNamedFields(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h", Events: task.NotificationKinds, Queues: []string{"q", "r"}, DepthOver: 10, WaitOver: time.Minute})
		must(t, c.Webhooks.cross(100))
		less, longer, none, never := int64(5), time.Hour, int64(0), time.Duration(0)
		for _, s := range []struct {
			name    string
			change  Change
			apply   func(h *Webhook)
			version bool // a new one
		}{
			{"url", Change{URL: "https://other/x"}, func(h *Webhook) { h.URL = "https://other/x" }, false},
			{"depth_over", Change{DepthOver: &less}, func(h *Webhook) { h.DepthOver = less }, false},
			{"wait_over", Change{WaitOver: &longer}, func(h *Webhook) { h.WaitOver = longer }, false},
			{"queues", Change{Queues: []string{"q"}}, func(h *Webhook) { h.Queues = []string{"q"} }, true},
			{"events", Change{Events: ofThresholds[:1]}, func(h *Webhook) { h.Events = ofThresholds[:1] }, true},
			{"one threshold", Change{DepthOver: &none}, func(h *Webhook) { h.DepthOver = 0 }, false},
		} {
			pass(time.Second)
			want, version, audited := w.row("h"), system.GetNumber(w.State, watchVersionKey("default")), len(w.Audited("default"))
			s.apply(&want)
			want.ChangedAt = store.TimeOf(time.Now())
			set := hookCall("h")
			set.Change = s.change
			v, err := c.Webhooks.Set(bg, set)
			if got := w.row("h"); err != nil || !reflect.DeepEqual(got, want) || v.Secrets != nil || v.ChangedAt != want.ChangedAt {
				t.Errorf("%s: the webhook is %+v, shown as %+v, %v, want %+v", s.name, got, v, err, want)
			}
			if now := system.GetNumber(w.State, watchVersionKey("default")); (now > version) != s.version {
				t.Errorf("%s: version %d of the subscriptions became %d, want a new one: %t", s.name, version, now, s.version)
			}
			if all := w.Audited("default"); len(all) != audited+1 || !strings.HasPrefix(all[audited], "lena webhook.set webhook h: {") {
				t.Errorf("%s: the audit log is %q", s.name, all)
			}
			if rowsOf(w.State, hookPrefix(system.OverTable, "default", "h")) != 1 {
				t.Errorf("%s: the queue that is over is forgotten", s.name)
			}
			pass(time.Second)
			w.writesNothing(s.name+" once more", func() {
				if v, err := c.Webhooks.Set(bg, set); err != nil || v.ChangedAt != want.ChangedAt {
					t.Errorf("%s once more: %+v, %v", s.name, v, err)
				}
			})
		}
		set := hookCall("h")
		set.Change = Change{Events: ofDeaths, WaitOver: &never}
		if _, err := c.Webhooks.Set(bg, set); err != nil || rowsOf(w.State, hookPrefix(system.OverTable, "default", "h")) != 0 {
			t.Errorf("without a threshold, the webhook still has a queue that is over it: %v", err)
		}
	})
}

// A change of what does not exist is refused, and so is a webhook that exists or whose namespace does not.
func TestMissingWebhooks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hook(t, c, Webhook{Name: "h"})
		hookIn(t, c, "default2", "i")
		p := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks})
		w.writesNothing("a refused call", func() {
			for name, call := range map[string]func() error{
				"set":        func() error { _, err := c.Webhooks.Set(bg, hookCall("i")); return err },
				"rotate":     func() error { _, err := c.Webhooks.Rotate(bg, hookCall("i")); return err },
				"pause":      func() error { _, err := c.Webhooks.Pause(bg, hookCall("i")); return err },
				"resume":     func() error { _, err := c.Webhooks.Resume(bg, hookCall("i")); return err },
				"remove":     func() error { return c.Webhooks.Remove(bg, hookCall("i")) },
				"get":        func() error { _, err := c.Webhooks.Get(bg, "default", "i"); return err },
				"deliveries": func() error { _, err := c.Webhooks.Deliveries(bg, "default", "i"); return err },
				"test":       func() error { _, err := p.Test(bg, operator, "default", "i"); return err },
				"add": func() error {
					_, err := c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: "nowhere", Name: "h", URL: "https://h"},
						Secret: "s", By: operator})
					return err
				},
			} {
				if err := call(); true {
					is(t, err, task.ErrNotFound, map[bool]string{true: "nowhere", false: `"i"`}[name == "add"])
				}
			}
			_, err := c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: "default", Name: "h", URL: "https://other"},
				Secret: "another", By: operator})
			is(t, err, task.ErrConflict, `"h" already exists`)
		})
		if n := p.tests.InUse(); n != 0 {
			t.Errorf("%d tests are still counted", n)
		}
	})
}

// Webhooks are listed by name, those of the namespace only, and without their secrets.
func TestWebhooksAreListed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		hookIn(t, c, "default2", "x")
		for _, name := range []string{"b", "a", "c"} {
			hook(t, c, Webhook{Name: name})
		}
		c.Webhooks.takes(t, deaths("q", 1, 1))
		all, err := c.Webhooks.List(bg, "default")
		names := ""
		for i := range all {
			names += all[i].Name
			if all[i].Secrets != nil || all[i].Pending != 1 || all[i].CreatedBy != "lena" || all[i].CreatedAt == 0 ||
				all[i].ChangedAt != all[i].CreatedAt {
				t.Errorf("webhook %+v is listed", all[i])
			}
		}
		if names != "abc" || err != nil {
			t.Errorf("the webhooks %s are listed, %v, want abc", names, err)
		}
		if all := w.Audited("default"); len(all) != 4 ||
			!strings.HasPrefix(all[1], `lena webhook.add webhook b:  → {"address":"4d50e35b",`) ||
			!strings.Contains(all[1], `"url":"https://b"`) {
			t.Errorf("the audit log is %q", all)
		}
		must(t, c.Webhooks.Remove(bg, hookCall("b")))
		if all := w.Audited("default"); len(all) != 5 || !strings.HasPrefix(all[4], `lena webhook.remove webhook b: {`) {
			t.Errorf("after a removal the audit log is %q", all)
		}
	})
}

// A namespace has room for MaxWebhooks, all namespaces together for maxAllWebhooks.
func TestRoomForWebhooks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		fill := func(ns string, n int) {
			must(t, w.leader.Update(bg, func(tx *store.Tx) error {
				for i := range n {
					h := Webhook{Namespace: ns, Name: fmt.Sprint("h", i), Secrets: []Secret{{Value: "s"}}}
					tx.Set(hookKey(ns, h.Name), system.EncodeRow(h))
				}
				return nil
			}))
		}
		for n := range 9 {
			fill(fmt.Sprint("n", n), MaxWebhooks)
		}
		fill("default", 99)
		add := func(name string) error {
			_, err := c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: "default", Name: name, URL: "https://h"},
				Secret: webhook.NewSecret(), By: operator})
			return err
		}
		must(t, add("last"))
		w.writesNothing("one too many", func() {
			err := add("over")
			blames(t, "one too many", err, "name")
			is(t, err, task.ErrInvalidArgument, "100 webhooks per namespace")
		})
		must(t, c.Webhooks.Remove(bg, hookCall("last")))
		must(t, c.Webhooks.Remove(bg, hookCall("h0")))
		fill("many", 2)
		w.writesNothing("one too many", func() {
			err := add("over")
			blames(t, "one too many in all", err, "name")
			is(t, err, task.ErrInvalidArgument, "1000 webhooks in all namespaces together")
		})
		fill("n9", 1) // a row that an older leader may have written
		is(t, add("over"), task.ErrInvalidArgument, "1000 webhooks in all namespaces together")
		fill("default", 101)
		is(t, add("over"), task.ErrInvalidArgument, "100 webhooks per namespace")
	})
}

// A name has at most MaxName bytes, and is not empty.
func TestCheckName(t *testing.T) {
	must(t, CheckName(strings.Repeat("n", 128)))
	blames(t, "a long name", CheckName(strings.Repeat("n", 129)), "name")
	blames(t, "no name", CheckName(""), "name")
	blames(t, "a blank", CheckName("a b"), "name")
}
