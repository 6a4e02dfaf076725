//go:build !race

package engine

// modelSteps is how long a random run is.
const modelSteps = 1500
