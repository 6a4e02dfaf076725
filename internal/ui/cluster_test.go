package ui

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

// A node that is not alive is shown as such, in the same words as by pawl cluster status, and for how long it has not been heard from.
func TestNodesThatAreNotAlive(t *testing.T) {
	for _, c := range []struct {
		node               admin.Node
		state, word, since string
	}{
		{admin.Node{State: "active", Alive: true, Reported: true}, "alive", "alive", ""},
		{admin.Node{State: "draining", Alive: true, Reported: true}, "draining", "draining", ""},
		{admin.Node{State: "active", Alive: true, Reported: true, Silent: 9 * time.Second}, "alive", "alive", ""},
		{admin.Node{State: "active", Answers: true, Reported: true, Silent: 12 * time.Second}, "silent", "no report", "for 12 s"},
		{admin.Node{State: "active", Silent: 2 * time.Minute}, "silent", "no answer", "for 2 min"},
		{admin.Node{State: "draining", Reported: true, Silent: 75 * time.Second}, "silent", "no answer", "for 1 min 15 s"},
	} {
		if row := nodeRowOf(c.node); row.State != c.state || row.Word != c.word || row.SilentFor != c.since {
			t.Errorf("%+v is shown as %s, %q %q, want %s, %q %q", c.node, row.State, row.Word, row.SilentFor, c.state, c.word, c.since)
		}
	}
}

// A shard names the nodes whose replicas stay and do not answer.
func TestShardsNameSilentNodes(t *testing.T) {
	row := shardRowOf(admin.ShardStatus{Leader: "n1", Members: []admin.Replica{{Node: "n1", Voter: true, Answers: true, Lag: 3},
		{Node: "n2", Voter: true}, {Node: "n3", Leaving: true}, {Node: "n4", Voter: true, Answers: true}}})
	if states := fmt.Sprint(row.Replicas[0].State, row.Replicas[1].State, row.Replicas[2].State,
		row.Replicas[3].State); row.Silent != "n2" ||
		states != "behindsilentsilentalive" {
		t.Errorf("the shard has the silent nodes %q and replicas %+v, want only n2 silent", row.Silent, row.Replicas)
	}
}

func TestDiskWarningsMatchOverview(t *testing.T) {
	for free, want := range map[int64]bool{0: true, 9: true, 10: false, 96: false} {
		if row := nodeRowOf(admin.Node{DiskFree: free, DiskTotal: 100}); row.DiskShort() != want {
			t.Errorf("with %d of 100 free, DiskShort = %t", free, row.DiskShort())
		}
	}
	if nodeRowOf(admin.Node{}).DiskShort() {
		t.Error("a disk of unknown size is shown as short")
	}
}
