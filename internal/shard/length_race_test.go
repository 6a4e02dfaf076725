//go:build race

package shard

// The size of the simulations: seeds of each, and steps per seed. The race detector makes each step ten to twenty times slower, and
// finds races in any step, whatever the seed: only the tests without it need batches that meet all troubles.
const (
	powerSeeds  = 2
	threeSeeds  = 1
	fiveSeeds   = 1
	fireSteps   = 10
	bridgeSeeds = 1
	memberSeeds = 1
	reshapes    = 8
	slowDisks   = 2 // a leader that hands over, and one that stays
	meetsAll    = false
)
