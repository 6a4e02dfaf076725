//go:build race

package engine_test

// The engine is one goroutine, and ten times slower under the race detector: random runs are shorter and fewer here.
const (
	modelSteps = 150
	shardSeeds = 12
)
