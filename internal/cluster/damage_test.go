package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/markers"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

const ns, team = "default", "team" // of damageCalls

// damageCalls are calls on what furnish creates.
var damageCalls = map[string]func(c *Control) error{
	"changes": func(c *Control) error {
		_, err := c.Copies.Changes(bg, 0, Report{Node: 1}, 0)
		return err
	},
	"queue":  func(c *Control) error { _, err := c.Queues.Queue(bg, ns, "q"); return err },
	"queues": func(c *Control) error { _, err := c.Queues.Queues(bg, ns, queues.Query{Limit: 10}); return err },
	"named": func(c *Control) error {
		_, err := c.Queues.Queues(bg, ns, queues.Query{Limit: 9, Names: []string{"q"}})
		return err
	},
	"place": func(c *Control) error { _, err := c.Queues.Place(bg, ns, "q"); return err },
	"put": func(c *Control) error {
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, ns, "q", setLength(5))
		return err
	},
	"put limited": func(c *Control) error {
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, ns, "q", func(c *task.QueueConfig) error {
			c.Settings.KeyOrder = task.KeyOrderStrict
			return nil
		})
		return err
	},
	"drop":         func(c *Control) error { return c.Queues.DropQueue(bg, boss, ns, "q") },
	"add token":    func(c *Control) error { _, err := c.Tokens.Add(bg, newToken(ns, "new")); return err },
	"rotate token": func(c *Control) error { _, err := c.Tokens.Rotate(bg, newToken(team, "ci")); return err },
	"revoke token": func(c *Control) error { _, err := c.Tokens.Revoke(bg, newToken(team, "ci")); return err },
	"end session": func(c *Control) error {
		_, err := c.Tokens.EndSession(bg, auth.Session{Key: auth.SessionID{2}, Number: 2, Begun: time.Now().Unix()})
		return err
	},
	"tokens": func(c *Control) error { _, err := c.Tokens.List(bg, auth.Everything); return err },
	"add team": func(c *Control) error {
		_, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: team})
		return err
	},
	"add namespace": func(c *Control) error {
		_, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "new"})
		return err
	},
	"namespaces": func(c *Control) error { _, err := c.Namespaces.List(bg); return err },
	"quotas": func(c *Control) error {
		_, err := c.Namespaces.SetQuotas(bg, boss, team, task.QuotaChange{task.QuotaQueues: 7})
		return err
	},
	"schedule":       func(c *Control) error { _, err := c.Schedules.ScheduleHome(bg, ns, "s"); return err },
	"name":           func(c *Control) error { _, err := c.Schedules.NameSchedule(bg, ns, "s", 1); return err },
	"name new":       func(c *Control) error { _, err := c.Schedules.NameSchedule(bg, team, "new", 1); return err },
	"forget":         func(c *Control) error { return c.Schedules.ForgetSchedule(bg, ns, "s", 77) },
	"webhook":        func(c *Control) error { _, err := c.Webhooks.Get(bg, ns, "h"); return err },
	"webhooks":       func(c *Control) error { _, err := c.Webhooks.List(bg, ns); return err },
	"pause webhook":  func(c *Control) error { _, err := c.Webhooks.Pause(bg, hookNamed("h")); return err },
	"resume webhook": func(c *Control) error { _, err := c.Webhooks.Resume(bg, hookNamed("h")); return err },
	"remove webhook": func(c *Control) error { return c.Webhooks.Remove(bg, hookNamed("h")) },
	"add webhook": func(c *Control) error {
		_, err := c.Webhooks.Add(bg, webhooks.Call{Hook: webhooks.Webhook{Namespace: ns, Name: "h2", URL: "https://h2",
			Events: []task.NotificationKind{task.NotifyDead}}, By: boss})
		return err
	},
	"notifications": func(c *Control) error {
		return c.Webhooks.TakeNotifications(bg, ns, []*task.Notification{died(100)})
	},
	"markers": func(c *Control) error {
		_, err := c.Markers.List(bg, markers.Query{Namespace: ns, Limit: 5})
		return err
	},
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
		_, err := c.Placement.Hello(bg, Presence{Number: 1, Version: "v1", MinLevel: 1, MaxLevel: 1})
		return err
	},
	"put new": func(c *Control) error {
		_, err := c.Queues.PutQueue(bg, auditlog.Action{By: boss, Action: task.QueuePut}, ns, "new", asItIs)
		return err
	},
	"put changed": func(c *Control) error {
		_, err := c.Queues.PutQueue(bg, auditlog.Action{By: boss, Action: task.QueuePut}, ns, "q", setLength(5))
		return err
	},
	"spread": func(c *Control) error {
		_, err := c.Queues.Spread(bg, boss, ns, "q", queues.SpreadTarget{Shards: []uint32{2}})
		return err
	},
	"retention": func(c *Control) error { return c.Placement.SetAuditRetention(bg, boss, 48*time.Hour) },
	"join":      func(c *Control) error { _, err := c.Placement.Join(bg, joinOf("n3", 3)); return err },
	"end marker": func(c *Control) error {
		_, err := c.Markers.End(bg, markers.Ending{Name: markers.Name{By: boss, Namespace: ns, ID: task.NewID(0, 1, 0)}})
		return err
	},
	"add marker": func(c *Control) error {
		_, err := c.Markers.Add(bg, markers.Call{By: boss, Marker: markers.Marker{ID: task.NewID(0, 2, 0), Namespace: ns,
			Kind: markers.Deploy, Title: "v2"}})
		return err
	},
	"remove marker": func(c *Control) error {
		return c.Markers.Remove(bg, markers.Name{By: boss, Namespace: ns, ID: task.NewID(0, 1, 0)})
	},
	"quiet worker": func(c *Control) error {
		_, err := c.Workers.QuietWorker(bg, boss, workers.Name{Namespace: ns, ID: "w2"}, "w2", time.Hour)
		return err
	},
	"resume worker": func(c *Control) error {
		_, err := c.Workers.ResumeWorker(bg, boss, workers.Name{Namespace: ns, ID: "w"})
		return err
	},
}

// A row that can't be read fails every call that needs it, with its key. No call continues without it, and none writes before it fails.
func TestUnreadableRows(t *testing.T) {

	for _, c := range []struct {
		key   []byte
		fails string
	}{
		{system.SettingsKey, "changes, add token, add namespace, quotas, rotate token, revoke token, pause webhook, remove webhook, add " +
			"webhook, map, overview, away, drain, transfer, move, replication, raise, shards, has shard, hello"},
		{nodeKey(1), "changes, map, overview, away, drain, transfer, move, raise, shards, hello, has shard"},
		{shardKey(1), "changes, map, overview, drain, transfer, move"},
		{system.Key(system.QueueTable, ns, "q"), "changes, queue, queues, named, place, put, put limited, drop"},
		{system.Key(system.TokenTable, team, "ci"), "changes, add token, rotate token, revoke token, tokens"},
		{[]byte{system.EndedTable}, "changes, end session"},
		{append([]byte{system.NamespaceTable}, team...), "changes, add team, add namespace, namespaces, quotas, name new"},
		{system.Key(system.CronTable, ns, "s"), "schedule, name, forget"},
		{system.Key(system.HookTable, ns, "h"), "webhook, webhooks, pause webhook, resume webhook, remove webhook, add webhook, " +
			"notifications"},
		{system.Key(system.WebhookStatusTable, ns, "h"), "webhook, webhooks, pause webhook, resume webhook, remove webhook"},
		{[]byte{system.SeenTable}, "notifications"},
		{[]byte{system.MarkerTable}, "markers"},
		{[]byte{system.QuietTable}, "changes, resume worker"},
	} {
		for _, name := range strings.Split(c.fails, ", ") {
			inBubble(t, func(t *testing.T, w *world) {
				control := w.furnish(t)
				key := w.damage(t, c.key)
				before := w.State.Applied().Index
				err := damageCalls[name](control)
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %q of the system shard", key)) {
					t.Errorf("%s with row %q damaged: %v, want an error with the row's key", name, key, err)
				}
				if after := w.State.Applied().Index; after != before {
					t.Errorf("%s with row %q damaged wrote to the system shard", name, key)
				}
			})
		}
	}
}

// Nothing is changed that can't be recorded in the audit log. (The world checks that a refused call writes nothing.)
func TestUnreadableAuditLog(t *testing.T) {
	for _, name := range []string{"put new", "put changed", "drop", "spread", "retention", "join", "shards", "replication", "drain",
		"transfer", "move", "add token", "rotate token", "revoke token", "add namespace", "quotas", "add webhook", "pause webhook",
		"remove webhook", "add marker", "end marker", "remove marker", "quiet worker", "resume worker"} {
		inBubble(t, func(t *testing.T, w *world) {
			control := w.furnish(t)
			join(t, control, "n2", 2)
			must(t, control.Placement.AddShards(bg, boss, 2))
			w.damage(t, []byte{'A', 0, 'h'})
			if err := damageCalls[name](control); err == nil || !strings.Contains(err.Error(), "audit: head") {
				t.Errorf("%s with a damaged audit log: %v", name, err)
			}
		})
	}
}

// furnish creates a cluster with one of everything.
func (w *world) furnish(t *testing.T) *Control {
	c := w.open(1)
	for _, make := range []func() error{
		func() error {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "q", asItIs)
			return err
		},
		func() error { _, err := c.Namespaces.Add(bg, namespaces.Call{By: boss, Name: "team"}); return err },
		func() error { _, err := c.Tokens.Add(bg, newToken("team", "ci")); return err },
		func() error {
			_, err := c.Tokens.EndSession(bg, auth.Session{Key: auth.SessionID{1}, Number: 1, Begun: time.Now().Unix()})
			return err
		},
		func() error { _, err := c.Schedules.NameSchedule(bg, "default", "s", 1); return err },
		func() error {
			_, err := c.Markers.Add(bg, markers.Call{By: boss, Marker: markers.Marker{ID: task.NewID(0, 1, 0), Namespace: "default",
				Kind: markers.Deploy, Title: "v1"}})
			return err
		},
		func() error {
			_, err := c.Workers.QuietWorker(bg, boss, workers.Name{Namespace: "default", ID: "w"}, "w", time.Hour)
			return err
		},
	} {
		must(t, make())
	}
	added := hookNamed("h")
	added.Hook.URL, added.Hook.Events, added.Secret = "https://h", []task.NotificationKind{task.NotifyDead}, webhook.NewSecret()
	_, err := c.Webhooks.Add(bg, added)
	must(t, err)
	must(t, c.Webhooks.TakeNotifications(bg, "default", []*task.Notification{died(1)}))
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

// died is the seq-th notification of a dead letter of queue q.
func died(seq int64) *task.Notification {
	return &task.Notification{Kind: task.NotifyDead, Namespace: "default", Queue: "q", Count: 1, First: time.Now(), Last: time.Now(),
		Shard: 1, Seq: seq}
}

func hookNamed(name string) webhooks.Call {
	return webhooks.Call{Hook: webhooks.Webhook{Namespace: "default", Name: name}, By: boss}
}
