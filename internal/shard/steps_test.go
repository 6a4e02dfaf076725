//go:build !race

package shard

// reshapes is how many steps a simulation of membership takes.
const reshapes = 40
