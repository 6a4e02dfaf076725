//go:build !race

package raftlog

// stride is the distance between the bits that the damage tests flip.
const stride = 64
