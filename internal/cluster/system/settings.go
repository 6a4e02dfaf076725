package system

import (
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
)

// Settings are the settings of the whole cluster.
type Settings struct {
	Replication int    `json:"replication"` // replicas of each shard, if there are as many nodes
	Level       int    `json:"level"`       // the feature level that all nodes work at
	NextNode    uint32 `json:"next_node"`
	DataShards  int    `json:"data_shards"` // shards 1 to this
	ClusterName string `json:"cluster_name"`
	// AuditRetention is how long audit entries are kept; 0: for audit.DefaultKeep. See AuditKeep.
	AuditRetention time.Duration `json:"audit_retention,omitempty"`
}

// AuditKeep returns how long audit entries are kept.
func (s Settings) AuditKeep() time.Duration {
	if s.AuditRetention == 0 {
		return audit.DefaultKeep
	}
	return s.AuditRetention
}

// PolicyLevel is the feature level from which there are limits, breakers, pauses of types and keys, schedules, unique keys and once keys:
// leaders below it would lose them, or would not know what to do when they end.
const PolicyLevel = 3

// RequireLevel returns an error while the cluster's feature level is lower than level. The error begins with
// what: "webhooks need".
func RequireLevel(r store.Reader, level int, what string) error {
	settings, _, err := GetRow[Settings](r, SettingsKey)
	if err == nil && settings.Level < level {
		err = WrongState("%s feature level %d, and the cluster is at %d: see `pawl cluster raise-level`", what, level, settings.Level)
	}
	return err
}

// DataShards returns the numbers of the data shards.
func DataShards(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i) + 1
	}
	return ids
}
