package cluster

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/cluster/system"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// What operators do to queues and to the cluster is recorded in the round that changes the rows: see package audit. What changes nothing
// leaves no entry, nor does a change without an author.

// AuditedAction is an action and its author, who may be nobody.
type AuditedAction struct {
	By     task.Author
	Action task.Action
}

// record adds a change to the audit log: before and after are structs, or nil. Leaders of an older level would not expire the entries, so
// none are written while there may be one.
func record(tx *store.Tx, e audit.Entry, before, after any) error {
	if e.By.IsZero() {
		return nil
	}
	if e.Before, e.After = audit.Changed(before, after); e.Before == nil && e.After == nil {
		return nil
	}
	settings, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
	if err != nil || settings.Level < system.PolicyLevel {
		return err
	}
	log, err := audit.Open(tx, settings.AuditKeep())
	if err == nil {
		log.Append(e) // nothing needs to be scheduled: see Expire
	}
	return err
}

func (d AuditedAction) onQueue(tx *store.Tx, q Queue, before, after any) error {
	return record(tx, audit.Entry{By: d.By, Action: d.Action, Namespace: q.Namespace, Target: task.Target{Kind: task.OnQueue, Name: q.Name}, Queue: q.Name}, before, after)
}

// recordOn is record for an author, an action and a target.
func recordOn(tx *store.Tx, by task.Author, action task.Action, ns string, to task.Target, before, after any) error {
	return record(tx, audit.Entry{By: by, Action: action, Namespace: ns, Target: to}, before, after)
}

func onNode(tx *store.Tx, by task.Author, action task.Action, name string, before, after any) error {
	return recordOn(tx, by, action, "", task.Target{Kind: task.OnNode, Name: name}, before, after)
}

func onShard(tx *store.Tx, by task.Author, action task.Action, shard uint32, before, after any) error {
	return recordOn(tx, by, action, "", task.Target{Kind: task.OnShard, Name: shardName(shard)}, before, after)
}

func onCluster(tx *store.Tx, by task.Author, action task.Action, before, after any) error {
	return recordOn(tx, by, action, "", task.Target{Kind: task.OnCluster}, before, after)
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
	f := &queueFacts{Settings: c.Settings, Paused: c.Paused, PausedReason: c.PausedReason, PausedTypes: map[string]string{}, PausedKeys: map[string]string{},
		Shards: q.targets(), Own: q.Own}
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

// nodeFacts is what the audit log records of a node.
type nodeFacts struct {
	State       NodeState `json:"state"`
	Number      uint32    `json:"number"`
	PeerAddress string    `json:"peer_address"`
	APIAddress  string    `json:"api_address"`
	Version     string    `json:"version"`
}

func factsOfNode(n Node) *nodeFacts {
	return &nodeFacts{State: n.State, Number: n.Number, PeerAddress: n.PeerAddress, APIAddress: n.APIAddress, Version: n.Version}
}

// replicaFacts names the node of a replica, leaderFacts the node that should lead a shard.
type (
	replicaFacts struct {
		Node string `json:"replica_on"`
	}
	leaderFacts struct {
		Node string `json:"preferred_leader"`
	}
)

// settingsFacts is what the audit log records of the cluster's settings.
type settingsFacts struct {
	DataShards  int `json:"data_shards"`
	Replication int `json:"replication"`
	Level       int `json:"level"`

	AuditRetention time.Duration `json:"audit_retention"`
}

func factsOfSettings(s system.Settings) *settingsFacts {
	return &settingsFacts{DataShards: s.DataShards, Replication: s.Replication, Level: s.Level, AuditRetention: s.AuditKeep()}
}

// CheckAuditRetention returns an error if d is not a valid retention for audit entries.
func CheckAuditRetention(field string, d time.Duration) error { return audit.CheckKeep(field, d) }

// SetAuditRetention sets how long audit entries are kept, in all shards. It takes effect within a day.
//
// Errors: wrong_state below the feature level.
func (p *Placement) SetAuditRetention(ctx context.Context, by task.Author, d time.Duration) error {
	if err := CheckAuditRetention("retention", d); err != nil {
		return err
	}
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		if err := system.RequireLevel(tx, system.PolicyLevel, "setting the audit retention needs"); err != nil {
			return err
		}
		if m.Settings.AuditKeep() == d {
			return nil
		}
		was := factsOfSettings(m.Settings)
		m.Settings.AuditRetention = d
		p.setSettings(tx, m.Settings)
		return onCluster(tx, by, task.AuditRetentionSet, was, factsOfSettings(m.Settings))
	})
}

// NoteBackup records that a backup of the cluster is being made.
func (p *Placement) NoteBackup(ctx context.Context, by task.Author) error {
	type facts struct {
		Shards int `json:"shards"`
	}
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		return onCluster(tx, by, task.BackupTaken, nil, &facts{len(m.Shards)})
	})
}

// AuditLog is the audit log of the system shard.
type AuditLog struct{ shard *system.Shard }

// NewAuditLog returns the audit log in a system shard.
func NewAuditLog(shard *system.Shard) *AuditLog { return &AuditLog{shard} }

// Audit returns a page of what operators did to queues and to the cluster, newest first, after a place; nil: from the newest.
func (l *AuditLog) Audit(ctx context.Context, q audit.Query, behind *audit.Place, limit int) (audit.Page, error) {
	return system.View(ctx, l.shard, func(r store.Reader) (audit.Page, error) { return audit.Read(r, 0, q, behind, limit) })
}

// Check returns what is wrong with the audit log of the system shard.
func (l *AuditLog) Check(ctx context.Context) ([]string, error) {
	return system.View(ctx, l.shard, func(r store.Reader) ([]string, error) { return audit.Check(r), nil })
}

// auditGrace is how long a leader waits before it removes old entries: its clock may be wrong, and the removal can't be undone.
const auditGrace = time.Hour

// Expire removes entries that have been kept long enough.
func (l *AuditLog) Expire(ctx context.Context) error {
	if term := l.shard.Term(); term == nil || time.Since(term.Began) < auditGrace {
		return nil
	}
	_, err := system.Update(ctx, l.shard, func(tx *store.Tx) (struct{}, error) {
		if due, err := audit.Due(tx); err != nil || due == 0 || due > tx.Now() {
			return struct{}{}, err
		}
		settings, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
		if err != nil {
			return struct{}{}, err
		}
		log, err := audit.Open(tx, settings.AuditKeep())
		if err == nil {
			log.Expire()
		}
		return struct{}{}, err
	})
	return err
}
