package administration

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
)

func TestPagesContinueAfterTheLast(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	for _, c := range []struct{ after, page, next string }{{"", "ab", "b"}, {"a", "bc", "c"}, {"b", "cd", ""}, {"bb", "cd", ""},
		{"c", "d", ""}, {"d", "", ""}, {"x", "", ""}} {
		page, next := pageAfter(all, c.after, 2, func(s string) string { return s })
		if strings.Join(page, "") != c.page || next != c.next {
			t.Errorf("page after %q = %v, next cursor %q", c.after, page, next)
		}
	}
	good := apiproto.EncodeCursor(apiproto.TaskCursor, []byte("x"))
	for cursor, want := range map[string]bool{good: true, "": true, apiproto.EncodeCursor(apiproto.TaskCursor,
		make([]byte, apiproto.MaxCursor/4*3-2)): true, good + "A": false, apiproto.EncodeCursor(apiproto.QueueCursor, []byte("x")): false,
		"AnR4": false, "AXQ": false, apiproto.EncodeCursor(apiproto.TaskCursor, make([]byte, apiproto.MaxCursor)): false} {
		if at, err := apiproto.DecodeCursor(apiproto.TaskCursor, cursor); (err == nil) != want || cursor == good && string(at) != "x" {
			t.Errorf("DecodeCursor(%.20q) = %q, %v", cursor, at, err)
		}
	}
}

// Nodes are returned in the order of their names. Fields that are unknown for a node are left out.
func TestClustersAreShown(t *testing.T) {
	o := cluster.Overview{Nodes: []cluster.NodeOverview{{Node: cluster.Node{Number: 1, Name: "zoe"}, Reported: true,
		Report: cluster.Report{DiskFree: 5}},
		{Node: cluster.Node{Number: 2, Name: "abe"}, Report: cluster.Report{DiskFree: 6}}},
		Shards: []cluster.ShardOverview{{Shard: cluster.Shard{ID: 1}, Leader: 1, Members: []cluster.ReplicaOverview{{Node: 1}, {Node: 2},
			{Node: 7}}}, {Shard: cluster.Shard{ID: 2}}}}
	p := (&ClusterService{}).overviewProto(o)
	if n := p.Nodes; len(n) != 2 || n[0].Name != "abe" || n[0].DiskFreeBytes != 0 || n[1].DiskFreeBytes != 5 {
		t.Errorf("nodes = %v", n)
	}
	if s := p.Shards[0]; s.Leader != "zoe" || s.Preferred != "" || len(s.Members) != 3 || s.Members[0].Node != "abe" ||
		s.Members[1].Node != "n7" || s.Members[2].Node != "zoe" {
		t.Errorf("shard 1 = %v", s)
	}
	if s := p.Shards[1]; s.Leader != "" || s.Preferred != "" {
		t.Errorf("shard without a leader = %v", s)
	}
}
