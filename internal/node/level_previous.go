//go:build pawl_previous_level

package node

// maxLevel is that of the previous release, which such a binary stands in for in tests of mixed versions. In all else it is this
// release, so the tests show that levels are respected, not that older code can read what is written.
const maxLevel = newestLevel - 1
