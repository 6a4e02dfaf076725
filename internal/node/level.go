package node

import "github.com/pawlq/pawl/internal/cluster"

// The feature levels that this release supports. A cluster's level is raised when all its nodes support the next one; only then is
// anything written that nodes of the older release would not understand.
const (
	minLevel    = 1
	newestLevel = 3 // 2: queues can be spread over shards; 3: limits
)

// checkLevel returns an error if the level of the cluster, as far as a node knows it, is beyond what this release supports.
func checkLevel(node string, m *cluster.Map) error {
	if m == nil || m.Settings.Level == 0 {
		return nil
	}
	return cluster.CheckLevel(m.Settings, node, minLevel, maxLevel)
}
