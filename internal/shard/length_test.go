//go:build !race

package shard

// How much the simulations take on.
const (
	memberSeeds = 8
	reshapes    = 40 // steps of one of membership
	powerSeeds  = 30
	threeSeeds  = 12
	fiveSeeds   = 8
)
