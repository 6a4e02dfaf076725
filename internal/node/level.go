package node

import "github.com/pawlq/pawl/internal/cluster"

// The feature levels that this release supports. A release that writes what older ones can't read has a new level: a cluster's level is
// raised when all its nodes support the new one, and only then is any of it written.
const (
	minLevel    = 1
	newestLevel = 1
)

// nextRelease is set only by the linker, in tests of mixed versions: such a program stands in for one of the next
// release. In all else it is this release, so the tests show that levels are respected, not that this release can read
// what the next one writes.
var nextRelease string

// maxLevel is the newest level that this program supports.
var maxLevel = newestLevel + len(nextRelease)

// checkLevel returns an error if the level of the cluster, as far as a node knows it, is beyond what this release supports.
func checkLevel(node string, m *cluster.Map) error {
	if m == nil || m.Settings.Level == 0 {
		return nil
	}
	return cluster.CheckLevel(m.Settings, node, minLevel, maxLevel)
}
