package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/cluster/system"
)

// TestOwnView: an isolated node reports which nodes are silent and which shards have no leader. It knows what other nodes that answer lead, and a node
// that considers itself leader without a majority of a shard's replicas is not one.
func TestOwnView(t *testing.T) {
	m := &Map{Settings: system.Settings{Replication: 3, DataShards: 2}}
	for n := uint32(1); n <= 3; n++ {
		m.Nodes = append(m.Nodes, Node{Number: n, Name: fmt.Sprint("n", n), State: Active})
	}
	m.Nodes = append(m.Nodes, Node{Number: 4, Name: "n4", State: Removed})
	for id := range uint32(3) {
		s := Shard{ID: id}
		for n := uint32(1); n <= 3; n++ {
			s.Replicas = append(s.Replicas, Replica{ID: ReplicaID(1, n), Node: n})
		}
		m.Shards = append(m.Shards, s)
	}
	report := func(node uint32, leads ...bool) Report {
		r := Report{Node: node}
		for id, leader := range leads {
			r.Shards = append(r.Shards, ShardReport{Shard: uint32(id), Applied: 100 * uint64(node), Leads: leader, Term: 7}) // #nosec G115 -- a few
		}
		return r
	}
	for _, c := range []struct {
		name    string
		reports []Report
		silent  time.Duration
		leads   string // of the nodes
		want    string
	}{
		{"alone", []Report{report(1, false, false, false)}, time.Minute, "[] [] []",
			"node n2 has not responded for at least 1m0s | node n3 has not responded for at least 1m0s | shards 0-2: no leader answers"},
		{"alone, and thinks to lead", []Report{report(1, true, false, false)}, time.Minute, "[] [] []",
			"node n2 has not responded for at least 1m0s | node n3 has not responded for at least 1m0s | shards 0-2: no leader answers"},
		{"a moment ago", []Report{report(1, false, false, false)}, 0, "[] [] []",
			"node n2 has not responded for at least 10s | node n3 has not responded for at least 10s | shards 0-2: no leader answers"},
		{"two of three, one shard has a leader", []Report{report(1, false, false, false), report(3, false, true, false)}, time.Minute, "[] [] [1]",
			"node n2 has not responded for at least 1m0s | shards 0, 2: no leader answers | shard 1: 2 of 3 replicas answer; no answer from node n2"},
	} {
		reports := map[uint32]Report{}
		for _, r := range c.reports {
			reports[r.Node] = r
		}
		o := OwnView("n1", m, reports, c.silent)
		var got, leads []string
		for _, p := range o.Problems() {
			got = append(got, p.Text)
		}
		for _, n := range o.Nodes {
			leads = append(leads, fmt.Sprint(n.Leads))
		}
		if !strings.Contains(got[0], "node n1 can see by itself") || strings.Join(got[1:], " | ") != c.want || strings.Join(leads, " ") != c.leads {
			t.Errorf("%s: got %q, nodes lead %q, want %q and %q", c.name, got, leads, c.want, c.leads)
		}
		if s := o.Shards[1]; s.Leader != 0 && (s.Members[0].Lag != 200 || s.Members[2].Lag != 0 || s.Term != 7) {
			t.Errorf("%s: shard 1 has wrong lags or a wrong term: %+v", c.name, s)
		}
	}
}

// The leader of a shard is known if more than half of its replicas answer.
func TestOwnShardNeedsMajority(t *testing.T) {
	for _, c := range []struct{ replicas, answer int }{{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {4, 2}, {4, 3}, {5, 2}, {5, 3}} {
		s, reports := Shard{ID: 1}, map[uint32]Report{}
		for n := range uint32(c.replicas) { // #nosec G115 -- a few
			s.Replicas = append(s.Replicas, Replica{ID: ReplicaID(1, n+1), Node: n + 1})
			if n < uint32(c.answer) { // #nosec G115 -- a few
				reports[n+1] = Report{Node: n + 1, Shards: []ShardReport{{Shard: 1, Leads: n == 0, Term: 7}}}
			}
		}
		if v := ownShard(&Map{}, s, reports); v.Known != (c.answer > c.replicas/2) || (v.Leader != 0) != v.Known {
			t.Errorf("%d of %d replicas answer: known %v, leader %d", c.answer, c.replicas, v.Known, v.Leader)
		}
	}
}
