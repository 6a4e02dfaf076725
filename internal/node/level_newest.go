//go:build !pawl_previous_level

package node

const maxLevel = newestLevel
