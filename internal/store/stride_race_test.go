//go:build race

package store

// stride is wider under the race detector, which has nothing to find in damage.
const stride = 64 * 16
