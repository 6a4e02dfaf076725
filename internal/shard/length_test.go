//go:build !race

package shard

// How much the simulations take on: seeds of each, and steps in one.
const (
	powerSeeds  = 30
	threeSeeds  = 12
	fiveSeeds   = 8
	fireSteps   = 16
	bridgeSeeds = 4
	memberSeeds = 8
	reshapes    = 40
	slowDisks   = 6
	meetsAll    = true // a batch must meet all troubles that it is for
)
