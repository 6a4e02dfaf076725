package queues

import (
	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

func onQueue(tx *store.Tx, d auditlog.Action, q Queue, before, after any) error {
	return auditlog.Record(tx, audit.Entry{By: d.By, Action: d.Action, Namespace: q.Namespace, Target: task.Target{Kind: task.OnQueue,
		Name: q.Name}, Queue: q.Name}, before, after)
}

// queueFacts is what the audit log records of a queue.
type queueFacts struct {
	task.Settings
	Paused       bool              `json:"paused"`
	PausedReason string            `json:"paused_reason"`
	PausedTypes  map[string]string `json:"paused_types"` // with the reason
	PausedKeys   map[string]string `json:"paused_keys"`
	Shards       []uint32          `json:"shards"`
	Own          bool              `json:"own"`
}

func factsOf(q Queue) *queueFacts {
	c := &q.Config
	f := &queueFacts{Settings: c.Settings, Paused: c.Paused, PausedReason: c.PausedReason, PausedTypes: map[string]string{},
		PausedKeys: map[string]string{}, Shards: q.targets(), Own: q.Own}
	for _, h := range c.Holds {
		why := "(no reason)"
		if h.Reason != "" {
			why = h.Reason
		}
		if h.Type != "" {
			f.PausedTypes[h.Type] = why
		} else {
			f.PausedKeys[h.Key] = why
		}
	}
	return f
}

// targets returns the shards that take the queue's new tasks, or will once its slots have moved.
func (q Queue) targets() (shards []uint32) {
	if !q.Spread() {
		return []uint32{q.Shard}
	}
	for _, p := range q.Parts {
		if p.Next != 0 {
			shards = append(shards, p.Shard)
		}
	}
	return shards
}
