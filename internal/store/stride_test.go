//go:build !race

package store

// stride is the distance between the bits that the damage tests flip.
const stride = 64
