package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A row that can't be read fails every call that needs it, with its key; none goes on without it, and none writes before it fails.
func TestRowsThatCantBeRead(t *testing.T) {
	const ns, team = "default", "team"
	calls := map[string]func(c *Control) error{
		"changes": func(c *Control) error {
			_, err := c.Copies.Changes(bg, 0, Report{Node: 1}, 0)
			return err
		},
		"queue":  func(c *Control) error { _, err := c.Queues.Queue(bg, ns, "q"); return err },
		"queues": func(c *Control) error { _, err := c.Queues.Queues(bg, ns, QueueQuery{Limit: 10}); return err },
		"named": func(c *Control) error {
			_, err := c.Queues.Queues(bg, ns, QueueQuery{Limit: 9, Names: []string{"q"}})
			return err
		},
		"place": func(c *Control) error { _, err := c.Queues.Place(bg, ns, "q"); return err },
		"put": func(c *Control) error {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, ns, "q", setLength(5))
			return err
		},
		"put limited": func(c *Control) error {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, ns, "q", strictly)
			return err
		},
		"copy":         func(c *Control) error { return c.Queues.copyAll(bg) },
		"drop":         func(c *Control) error { return c.Queues.DropQueue(bg, boss, ns, "q") },
		"add token":    func(c *Control) error { _, err := c.Tokens.Add(bg, newToken(ns, "new")); return err },
		"rotate token": func(c *Control) error { _, err := c.Tokens.Rotate(bg, newToken(team, "ci")); return err },
		"revoke token": func(c *Control) error { _, err := c.Tokens.Revoke(bg, newToken(team, "ci")); return err },
		"tokens":       func(c *Control) error { _, err := c.Tokens.List(bg, auth.Everything); return err },
		"add team": func(c *Control) error {
			_, err := c.Namespaces.Add(bg, NamespaceCall{By: boss, Name: team})
			return err
		},
		"add namespace": func(c *Control) error {
			_, err := c.Namespaces.Add(bg, NamespaceCall{By: boss, Name: "new"})
			return err
		},
		"namespaces": func(c *Control) error { _, err := c.Namespaces.List(bg); return err },
		"quotas": func(c *Control) error {
			_, err := c.Quotas.SetQuotas(bg, boss, team, task.QuotaChange{task.QuotaQueues: 7})
			return err
		},
		"schedule":       func(c *Control) error { _, err := c.Schedules.ScheduleHome(bg, ns, "s"); return err },
		"name":           func(c *Control) error { _, err := c.Schedules.NameSchedule(bg, ns, "s", 1); return err },
		"name new":       func(c *Control) error { _, err := c.Schedules.NameSchedule(bg, team, "new", 1); return err },
		"forget":         func(c *Control) error { return c.Schedules.ForgetSchedule(bg, ns, "s", 77) },
		"webhook":        func(c *Control) error { _, err := c.Webhooks.Get(bg, ns, "h"); return err },
		"webhooks":       func(c *Control) error { _, err := c.Webhooks.List(bg, ns); return err },
		"pause webhook":  func(c *Control) error { _, err := c.Webhooks.Pause(bg, hookCall("h")); return err },
		"resume webhook": func(c *Control) error { _, err := c.Webhooks.Resume(bg, hookCall("h")); return err },
		"remove webhook": func(c *Control) error { return c.Webhooks.Remove(bg, hookCall("h")) },
		"add webhook": func(c *Control) error {
			_, err := c.Webhooks.Add(bg, WebhookCall{Hook: Webhook{Namespace: ns, Name: "h2", URL: "https://h2", Events: []task.NotificationKind{task.NotifyDead}}, By: operator})
			return err
		},
		"attempt": func(c *Control) error { _, err := c.Webhooks.nextAttempt(bg, ns, "h"); return err },
		"news": func(c *Control) error {
			return c.Webhooks.TakeNotifications(bg, ns, []*task.Notification{deaths("q", 1, 100)})
		},
		"crossed":     func(c *Control) error { return c.Webhooks.cross(1000) },
		"markers":     func(c *Control) error { _, err := c.Markers.List(bg, MarkerQuery{Namespace: ns, Limit: 5}); return err },
		"map":         func(c *Control) error { _, err := c.Placement.Map(bg); return err },
		"overview":    func(c *Control) error { _, err := c.Placement.Overview(bg); return err },
		"away":        func(c *Control) error { _, err := c.Placement.AwayNodes(bg); return err },
		"drain":       func(c *Control) error { return c.Placement.Drain(bg, boss, "n1") },
		"transfer":    func(c *Control) error { return c.Placement.Transfer(bg, boss, 1, "n1") },
		"move":        func(c *Control) error { return c.Placement.Move(bg, boss, 1, "n1", "n2") },
		"replication": func(c *Control) error { return c.Placement.SetReplication(bg, boss, 5) },
		"raise":       func(c *Control) error { _, err := c.Placement.RaiseLevel(bg, boss); return err },
		"shards":      func(c *Control) error { return c.Placement.AddShards(bg, boss, 4) },
		"has shard":   func(c *Control) error { _, err := c.Placement.HasShard(bg, 1); return err },
		"hello": func(c *Control) error {
			_, err := c.Placement.Hello(bg, Presence{Number: 1, Version: "v1", MinLevel: 1, MaxLevel: system.PolicyLevel})
			return err
		},
		"resume worker": func(c *Control) error { _, err := c.Workers.ResumeWorker(bg, boss, WorkerName{ns, "w"}); return err },
	}
	limits := "put limited, add token, add team, add namespace, quotas, name, name new"
	for _, c := range []struct {
		key   []byte
		fails string
	}{
		{system.SettingsKey, "changes, " + limits + ", rotate token, revoke token, pause webhook, remove webhook, add webhook, map, overview, away, drain, transfer, move, replication, raise, shards, has shard, hello"},
		{nodeKey(1), "changes, map, overview, away, drain, transfer, move, raise, shards, hello, has shard"},
		{shardKey(1), "changes, map, overview, drain, transfer, move"},
		{queueKey(ns, "q"), "changes, queue, queues, named, place, put, put limited, copy, drop"},
		{tokenKey(auth.TokenName{Namespace: team, Name: "ci"}), "changes, add token, rotate token, revoke token, tokens"},
		{namespaceKey(team), "changes, add team, add namespace, namespaces, quotas, name new"},
		{scheduleKey(ns, "s"), "schedule, name, forget"},
		{hookKey(ns, "h"), "webhook, webhooks, pause webhook, resume webhook, remove webhook, add webhook, attempt, news, crossed"},
		{statusKey(ns, "h"), "webhook, webhooks, pause webhook, resume webhook, remove webhook, attempt"},
		{seenKey(deaths("q", 1, 1)), "news"},
		{[]byte{system.PendingTable}, "attempt"},
		{[]byte{system.MarkerTable}, "markers"},
		{[]byte{system.OverTable}, "crossed"},
		{[]byte{system.QuietTable}, "changes, resume worker"},
	} {
		for _, name := range strings.Split(c.fails, ", ") {
			inBubble(t, func(t *testing.T, w *world) {
				control := w.furnish(t)
				key := w.damage(t, c.key)
				before := w.state.Applied().Index
				err := calls[name](control)
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %q of the system shard", key)) {
					t.Errorf("%s, with the row %q damaged: %v", name, key, err)
				}
				if after := w.state.Applied().Index; after != before && name != "copy" {
					t.Errorf("%s, with the row %q damaged, has written", name, key)
				}
			})
		}
	}
}

// cross checks the depth of queue q, as a dispatcher does.
func (w *Webhooks) cross(ready int64) error {
	hooks, err := system.View(bg, w.shard, func(r store.Reader) ([]Webhook, error) { return scanHooks(r, "default") })
	if err != nil {
		return err
	}
	return w.crossed(bg, "default", hooks, []Depth{{Queue: "q", Ready: ready}}, false)
}

// furnish founds a cluster with one of everything.
func (w *world) furnish(t *testing.T) *Control {
	c := w.openAt(system.PolicyLevel, 1)
	for _, make := range []func() error{
		func() error {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "q", unchanged)
			return err
		},
		func() error { _, err := c.Namespaces.Add(bg, NamespaceCall{By: boss, Name: "team"}); return err },
		func() error { _, err := c.Tokens.Add(bg, newToken("team", "ci")); return err },
		func() error { _, err := c.Schedules.NameSchedule(bg, "default", "s", 1); return err },
		func() error { return w.mark(bg, 1, time.Minute) },
		func() error {
			_, err := c.Workers.QuietWorker(bg, boss, WorkerName{"default", "w"}, "w", time.Hour)
			return err
		},
	} {
		must(t, make())
	}
	hook(t, c, Webhook{Name: "h", Events: []task.NotificationKind{task.NotifyDead, task.NotifyQueueOver}, DepthOver: 10})
	must(t, c.Webhooks.cross(100))
	c.Webhooks.takes(t, deaths("q", 1, 1))
	return c
}

// damage makes a row unreadable, or, given the letter of a table, all of its rows. It returns the key of the first.
func (w *world) damage(t *testing.T, key []byte) (first []byte) {
	must(t, w.leader.Update(context.Background(), func(tx *store.Tx) error {
		var keys [][]byte
		if _, ok := tx.Get(key); ok {
			keys = [][]byte{key}
		} else {
			tx.Scan(key, system.PrefixEnd(key), func(k, _ []byte) bool { keys = append(keys, slices.Clone(k)); return true })
		}
		for _, k := range keys {
			tx.Set(k, []byte{99})
		}
		first = keys[0]
		return nil
	}))
	return first
}
