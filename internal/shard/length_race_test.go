//go:build race

package shard

// How much the simulations take on: seeds of each, and steps in one. The race detector makes each step ten to twenty times slower, and
// looks at what goroutines do in every step, whatever the seed: that a batch meets all troubles is for the tests without it.
const (
	powerSeeds  = 4
	threeSeeds  = 2
	fiveSeeds   = 1
	fireSteps   = 10
	bridgeSeeds = 1
	memberSeeds = 2
	reshapes    = 15
	slowDisks   = 2 // a leader that goes, and one that stays
	meetsAll    = false
)
