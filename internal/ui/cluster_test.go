package ui

import (
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

// TestNodesThatAreAway: a node of which a new leader has not heard is waited for, for a while.
func TestNodesThatAreAway(t *testing.T) {
	for _, c := range []struct {
		node        pawl.NodeInfo
		state, word string
	}{
		{pawl.NodeInfo{State: "active", Alive: true, Heard: true}, "alive", "alive"},
		{pawl.NodeInfo{State: "draining", Alive: true, Heard: true}, "draining", "draining"},
		{pawl.NodeInfo{State: "active", Silent: 4 * time.Second}, "waited-for", "not heard yet"},
		{pawl.NodeInfo{State: "active", Silent: 2 * time.Minute}, "silent", "no answer for 2 min"},
		{pawl.NodeInfo{State: "draining", Heard: true, Silent: 75 * time.Second}, "silent", "no answer for 1 min 15 s"},
	} {
		if row := nodeRowOf(c.node); row.State != c.state || row.Word != c.word {
			t.Errorf("%+v is %s, %q; want %s, %q", c.node, row.State, row.Word, c.state, c.word)
		}
	}
}
