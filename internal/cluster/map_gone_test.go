package cluster

import (
	"testing"

	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// An answer in flight when a queue was deleted does not bring it back, and a new queue with the same name is found.
func TestLateAnswerAboutDroppedQueue(t *testing.T) {
	c := NewCopy(nil)
	at := func(version uint64) queues.Queue {
		return queues.Queue{Namespace: "default", Name: "q", Config: task.QueueConfig{Version: version}}
	}
	has := func(want bool) {
		t.Helper()
		if _, ok := c.Queue("default", "q"); ok != want {
			t.Errorf("the copy has the queue: %v, want %v", ok, want)
		}
	}
	c.Learned(at(3))
	has(true)
	c.Dropped("default", "q")
	c.Apply(Delta{Version: 1, Queues: []queues.Queue{at(3)}})
	c.Learned(at(2))
	has(false)
	c.Learned(at(4)) // created again
	has(true)
	c.Dropped("default", "q")
	c.Apply(Delta{Version: 2, Dropped: []system.Name{{Namespace: "default", Name: "q"}}})
	c.Apply(Delta{Version: 3, Queues: []queues.Queue{at(5)}})
	has(true)
	c.Dropped("default", "q")
	c.Apply(Delta{Version: 4, All: true}) // from a leader that does not have the queue
	c.Learned(at(5))
	has(true)
}

// A copy takes a newer map from another node, but no older one, and is complete only once the leader has answered.
func TestCopyLearns(t *testing.T) {
	c := NewCopy(nil)
	c.Apply(Delta{Version: 7, All: true, Map: &Map{Version: 7}})
	changed := c.Changed()
	for _, version := range []uint64{6, 7} {
		if c.Learn(&Map{Version: version}) || c.Map().Version != 7 || c.Version() != 7 {
			t.Errorf("it learned version %d: the map is %d, the copy %d", version, c.Map().Version, c.Version())
		}
	}
	if !c.Learn(&Map{Version: 8}) || c.Map().Version != 8 || c.Version() != 0 {
		t.Errorf("it did not learn version 8: the map is %d, the copy %d", c.Map().Version, c.Version())
	}
	select {
	case <-changed:
	default:
		t.Error("the change was not announced")
	}
}
