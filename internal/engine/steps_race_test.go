//go:build race

package engine

// modelSteps is shorter here: the engine is one goroutine, and ten times slower under the race detector.
const modelSteps = 150
