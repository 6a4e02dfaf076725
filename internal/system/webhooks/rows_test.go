package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// cross checks the depth of queue q, as a dispatcher does.
func (w *Webhooks) cross(ready int64) error {
	hooks, err := system.View(bg, w.shard, func(r store.Reader) ([]Webhook, error) { return scanHooks(r, "default") })
	if err != nil {
		return err
	}
	return w.crossed(bg, "default", hooks, []Depth{{Queue: "q", Ready: ready}}, false)
}

// A row that can't be read fails every call that needs it, with its key, and none writes before it fails.
func TestUnreadableRows(t *testing.T) {
	accept := func(context.Context, webhook.Request) webhook.Outcome { return accepted }
	calls := map[string]func(c *control, a *attempt) error{
		"attempt": func(c *control, _ *attempt) error { _, err := c.Webhooks.nextAttempt(bg, "default", "h"); return err },
		"notifications": func(c *control, _ *attempt) error {
			return c.Webhooks.TakeNotifications(bg, "default", []*task.Notification{deaths("q", 1, 100)})
		},
		"more": func(c *control, _ *attempt) error { // of another queue, in another row
			return c.Webhooks.TakeNotifications(bg, "default", []*task.Notification{deaths("z", 1, 100)})
		},
		"crossed": func(c *control, _ *attempt) error { return c.Webhooks.cross(1000) },
		"back":    func(c *control, _ *attempt) error { return c.Webhooks.cross(0) },
		"record": func(c *control, _ *attempt) error {
			_, err := system.Update(bg, c.shard, func(tx *store.Tx) (bool, error) {
				return cross(tx, "default", crossing{"h", Depth{Queue: "q"}, false})
			})
			return err
		},
		"add": func(c *control, _ *attempt) error {
			_, err := c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: "default", Name: "h", URL: "https://h"},
				Secret: "other", By: operator})
			return err
		},
		"add another": func(c *control, _ *attempt) error {
			_, err := c.Webhooks.Add(bg, Call{Hook: Webhook{Namespace: "default", Name: "i", URL: "https://i"},
				Secret: "other", By: operator})
			return err
		},
		"set": func(c *control, _ *attempt) error {
			set := hookCall("h")
			set.Change.URL = "https://other"
			_, err := c.Webhooks.Set(bg, set)
			return err
		},
		"resume": func(c *control, _ *attempt) error { _, err := c.Webhooks.Resume(bg, hookCall("h")); return err },
		"remove": func(c *control, _ *attempt) error { return c.Webhooks.Remove(bg, hookCall("h")) },
		"list":   func(c *control, _ *attempt) error { _, err := c.Webhooks.List(bg, "default"); return err },
		"get":    func(c *control, _ *attempt) error { _, err := c.Webhooks.Get(bg, "default", "h"); return err },
		"deliveries": func(c *control, _ *attempt) error {
			_, err := c.Webhooks.Deliveries(bg, "default", "h")
			return err
		},
		"due": func(c *control, _ *attempt) error {
			due, err := c.Webhooks.dueHooks(bg)
			return errors.Join(err, due.damaged)
		},
		"tell": func(c *control, _ *attempt) error { _, err := c.Webhooks.TellShards(bg, ""); return err },
		"test": func(c *control, _ *attempt) error {
			_, err := NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Send: accept}).Test(bg, operator, "default", "h")
			return err
		},
		"check": func(c *control, _ *attempt) error {
			return NewDispatcher(DispatcherConfig{Webhooks: c.Webhooks, Depths: func(context.Context, string, []string,
				bool) ([]Depth, bool) {
				return nil, false
			}}).checkThresholds(bg)
		},
		"settle": func(c *control, a *attempt) error { return c.Webhooks.settle(bg, a, accepted) },
		"forget": func(c *control, _ *attempt) error { return c.Webhooks.forgetSeen(bg) },
	}
	for _, c := range []struct {
		table byte
		fails string
	}{
		{system.HookTable, "attempt, notifications, crossed, record, add, add another, set, resume, remove, list, get, " +
			"deliveries, due, tell, test, check, settle"},
		{system.WebhookStatusTable, "attempt, set, resume, remove, list, get, due, settle"},
		{system.RecentTable, "deliveries, test"},
		{system.SeenTable, "notifications, forget"},
		{system.PendingTable, "attempt"},
		{system.OverTable, "crossed, back, record, check"},
		{system.MetaTable, "add another, set, remove, tell"},
	} {
		for _, name := range strings.Split(c.fails, ", ") {
			inBubble(t, func(t *testing.T, w *world) {
				of := w.open(1)
				hook(t, of, Webhook{Name: "h", Events: []task.NotificationKind{task.NotifyDead, task.NotifyQueueOver}, DepthOver: 10})
				must(t, of.Webhooks.cross(100))
				of.Webhooks.takes(t, deaths("first", 1, 1), deaths("q", 1, 1))
				must(t, of.Webhooks.settle(bg, of.Webhooks.mustAttempt(t), accepted))
				of.Webhooks.takes(t, deaths("q", 1, 2))
				var a *attempt
				if c.table != system.PendingTable {
					a = of.Webhooks.mustAttempt(t)
				}
				if name == "resume" || name == "get" {
					_, err := of.Webhooks.Pause(bg, hookCall("h"))
					must(t, err)
				}
				var key []byte
				w.Round(func(tx *store.Tx) {
					tx.Scan([]byte{c.table}, []byte{c.table + 1}, func(k, _ []byte) bool {
						if c.table != system.MetaTable || string(k) == string(system.SettingsKey) {
							key = slices.Clone(k)
						}
						return c.table != system.PendingTable // the first of them is due
					})
				})
				w.Damage(key)
				before := w.State.Applied().Index
				err := calls[name](of, a)
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %q of the system shard", key)) {
					t.Errorf("%s with row %q damaged: %v, want an error with the row's key", name, key, err)
				}
				if w.State.Applied().Index != before {
					t.Errorf("%s with row %q damaged wrote to the system shard", name, key)
				}
			})
		}
	}
}
