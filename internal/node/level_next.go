//go:build pawl_next_level

package node

// maxLevel is that of the next release, which such a binary stands in for in tests of mixed versions. In all else it is
// this release, so the tests show that levels are respected, not that this release can read what the next one writes.
const maxLevel = newestLevel + 1
