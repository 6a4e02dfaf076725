package system

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

// TestNodesNotHeardFrom: a node from which a new leader has not heard is shown as not heard from yet for a while, before it counts as silent.
func TestNodesNotHeardFrom(t *testing.T) {
	for _, c := range []struct {
		node               admin.Node
		state, word, since string
	}{
		{admin.Node{State: "active", Alive: true, Reported: true}, "alive", "alive", ""},
		{admin.Node{State: "draining", Alive: true, Reported: true}, "draining", "draining", ""},
		{admin.Node{State: "active", Alive: true, Reported: true, Silent: 5*time.Second - 1}, "alive", "alive", ""},
		{admin.Node{State: "active", Alive: true, Reported: true, Silent: 5 * time.Second}, "alive", "alive", "silent for 5 s"},
		{admin.Node{State: "draining", Alive: true, Reported: true, Silent: 9 * time.Second}, "draining", "draining", "silent for 9 s"},
		{admin.Node{State: "active", Silent: 4 * time.Second}, "waited-for", "not heard from yet", ""},
		{admin.Node{State: "active", Silent: 2 * time.Minute}, "silent", "no answer", "for 2 min"},
		{admin.Node{State: "draining", Reported: true, Silent: 75 * time.Second}, "silent", "no answer", "for 1 min 15 s"},
	} {
		if row := nodeRowOf(c.node); row.State != c.state || row.Word != c.word || row.SilentFor != c.since {
			t.Errorf("%+v is shown as %s, %q %q, want %s, %q %q", c.node, row.State, row.Word, row.SilentFor, c.state, c.word, c.since)
		}
	}
}

// TestShardHealthIsNotOverstated: while a shard's leader still counts a dead node's replica as answering, the shard is not shown as healthy.
func TestShardHealthIsNotOverstated(t *testing.T) {
	nodes := []nodeRow{nodeRowOf(admin.Node{Name: "n1", State: "active", Alive: true, Reported: true}), nodeRowOf(admin.Node{Name: "n2", State: "active", Reported: true, Silent: 12 * time.Second})}
	row := shardRowOf(admin.ShardStatus{Leader: "n1", Members: []admin.Replica{{Node: "n1", Voter: true, Answers: true, Lag: 3}, {Node: "n2", Voter: true, Answers: true}}}, nodes)
	if row.Unheard != "n2" || row.Replicas[0].State != "behind" || row.Replicas[1].State != "silent" {
		t.Errorf("the shard has the unheard node %q and replicas %+v", row.Unheard, row.Replicas)
	}
	nodes[1].Alive = true
	if row = shardRowOf(row.ShardStatus, nodes); row.Unheard != "" || row.Replicas[1].State != "alive" {
		t.Errorf("with both nodes alive, the shard has the unheard node %q and replicas %+v", row.Unheard, row.Replicas)
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
