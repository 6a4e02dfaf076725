//go:build !race

package shard

// The size of the simulations: seeds of each, and steps per seed. A seed of TestMembership finds most planted bugs (docs/guarantees.md) and
// takes a fifth of the time of one of TestFiveReplicas. make soak-simulator runs 200 seeds of each.
const (
	powerSeeds  = 20
	threeSeeds  = 4
	fiveSeeds   = 2
	fireSteps   = 16
	bridgeSeeds = 2
	memberSeeds = 8
	reshapes    = 40
	slowDisks   = 6
	meetsAll    = true // a batch must meet all of its troubles
)
