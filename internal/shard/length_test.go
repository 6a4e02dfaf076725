//go:build !race

package shard

// The size of the simulations: seeds of each, and steps per seed.
const (
	powerSeeds  = 30
	threeSeeds  = 12
	fiveSeeds   = 8
	fireSteps   = 16
	bridgeSeeds = 4
	memberSeeds = 8
	reshapes    = 40
	slowDisks   = 6
	meetsAll    = true // a batch must meet all of its troubles
)
