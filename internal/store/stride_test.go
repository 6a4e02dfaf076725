//go:build !race

package store

// stride is how far apart the bits are that the damage tests flip.
const stride = 64
