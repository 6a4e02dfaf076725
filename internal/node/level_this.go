//go:build !pawl_next_level

package node

const maxLevel = newestLevel
