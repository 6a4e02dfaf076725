//go:build race

package shard

// How much the simulations take on: the race detector makes each ten times slower.
const (
	memberSeeds = 8
	reshapes    = 15 // steps of one of membership
	powerSeeds  = 15
	threeSeeds  = 6
	fiveSeeds   = 4
)
