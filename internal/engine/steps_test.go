//go:build !race

package engine_test

const (
	modelSteps = 1500 // of a random run
	shardSeeds = 20   // random runs over several shards
)
