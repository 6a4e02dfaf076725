package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// The copy of a node that waits for its own changes is current; any other is as old as the last word of the system shard's leader.
func TestAgeOfTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heartbeat
		h.heard.Store(time.Now().UnixNano())
		time.Sleep(3 * time.Second)
		if got := h.age(); got != 3*time.Second {
			t.Errorf("age = %v 3 s after the leader was heard from", got)
		}
		h.waitsForOwn.Store(true)
		if got := h.age(); got != 0 {
			t.Errorf("age = %v while the node waits for its own changes, want 0", got)
		}
	})
}
