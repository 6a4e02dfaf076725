package cluster

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

func onNode(tx *store.Tx, by task.Author, action task.Action, name string, before, after any) error {
	return auditlog.RecordOn(tx, by, action, "", task.Target{Kind: task.OnNode, Name: name}, before, after)
}

func onShard(tx *store.Tx, by task.Author, action task.Action, shard uint32, before, after any) error {
	return auditlog.RecordOn(tx, by, action, "", task.Target{Kind: task.OnShard, Name: shardName(shard)}, before, after)
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
func (p *Placement) SetAuditRetention(ctx context.Context, by task.Author, d time.Duration) error {
	if err := CheckAuditRetention("retention", d); err != nil {
		return err
	}
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		if m.Settings.AuditKeep() == d {
			return nil
		}
		settings := m.Settings
		settings.AuditRetention = d
		return p.changeSettings(tx, by, task.AuditRetentionSet, m.Settings, settings)
	})
}

// changeSettings writes the cluster's settings and an audit entry.
func (p *Placement) changeSettings(tx *store.Tx, by task.Author, action task.Action, was, is system.Settings) error {
	if err := auditlog.OnCluster(tx, by, action, factsOfSettings(was), factsOfSettings(is)); err != nil {
		return err
	}
	p.setSettings(tx, is)
	return nil
}

// NoteBackup records that a backup of the cluster is being made.
func (p *Placement) NoteBackup(ctx context.Context, by task.Author) error {
	type facts struct {
		Shards int `json:"shards"`
	}
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		return auditlog.OnCluster(tx, by, task.BackupTaken, nil, &facts{len(m.Shards)})
	})
}
