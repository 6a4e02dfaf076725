//go:build race

package shard

// reshapes is how many steps a simulation of membership takes: the race detector makes each ten times slower.
const reshapes = 15
