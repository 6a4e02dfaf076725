//go:build race

package shard

// How much the simulations take on: seeds of each, and steps in one. The race detector makes each step ten times slower.
const (
	powerSeeds  = 15
	threeSeeds  = 4
	fiveSeeds   = 2
	fireSteps   = 10
	bridgeSeeds = 2
	memberSeeds = 5
	reshapes    = 15
	slowDisks   = 2 // a leader that goes, and one that stays
)
