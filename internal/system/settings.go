package system

import (
	"time"

	"github.com/pawlq/pawl/internal/audit"
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

// DataShards returns the numbers of the data shards.
func DataShards(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i) + 1
	}
	return ids
}
