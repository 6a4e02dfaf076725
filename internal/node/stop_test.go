package node

import "testing"

// A node that is stopped before it has begun to serve has not failed.
func TestStopAtOnce(t *testing.T) {
	for range 5 {
		start(t, Config{InMemory: true}).end()
	}
}
