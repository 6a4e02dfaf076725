//go:build pawl_previous_level

package node

// maxLevel is that of the release before: the tests of mixed versions take such a binary for one. In all else it is this
// release, so they show that levels are kept, and not that the older code reads what is written.
const maxLevel = newestLevel - 1
