package node

import "github.com/pawlq/pawl/internal/cluster"

// The feature levels that this release can work at. A cluster's level is raised when all its nodes know the next one; what
// nodes of the older release would not understand is written from then on only.
const (
	minLevel    = 1
	newestLevel = 3 // 2: queues can be shared out over shards; 3: limits
)

// checkLevel refuses to work in a cluster, as far as it is known, whose level was raised beyond what this release knows.
func (n *Node) checkLevel(m *cluster.Map) error {
	if m == nil || m.Settings.Level == 0 {
		return nil
	}
	return cluster.CheckLevel(m.Settings, n.cfg.Name, minLevel, maxLevel)
}
