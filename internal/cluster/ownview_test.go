package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

// TestOwnView: an isolated node reports which nodes are silent and which shards have no leader. It knows what other
// nodes that answer lead, and a node that considers itself leader without a majority of a shard's replicas is not one.
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
			of := ShardReport{Shard: uint32(id), Applied: 100 * uint64(node), Term: 7} // #nosec G115 -- a few
			if leader {
				of.Leader = ReplicaID(1, node)
			}
			r.Shards = append(r.Shards, of)
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
			"no answer from node n2 for at least 1m0s | no answer from node n3 for at least 1m0s | shards 0-2: no leader answers"},
		{"alone, and thinks to lead", []Report{report(1, true, false, false)}, time.Minute, "[] [] []",
			"no answer from node n2 for at least 1m0s | no answer from node n3 for at least 1m0s | shards 0-2: no leader answers"},
		{"a moment ago", []Report{report(1, false, false, false)}, 0, "[] [] []",
			"no answer from node n2 | no answer from node n3 | shards 0-2: no leader answers"},
		{"two of three, one shard has a leader", []Report{report(1, false, false, false), report(3, false, true, false)},
			time.Minute, "[] [] [1]", "no answer from node n2 for at least 1m0s | shards 0, 2: no leader answers | shard 1: 2 " +
				"of 3 replicas answer; no answer from node n2"},
	} {
		reports := map[uint32]Report{}
		for _, r := range c.reports {
			reports[r.Node] = r
		}
		o := OwnView("n1", m, c.silent)
		o.Look(reports)
		var got, leads []string
		for _, p := range o.Problems() {
			got = append(got, p.Text)
		}
		for _, n := range o.Nodes {
			leads = append(leads, fmt.Sprint(n.Leads))
		}
		if !strings.Contains(got[0], "node n1 can see by itself") || strings.Join(got[1:], " | ") != c.want ||
			strings.Join(leads, " ") != c.leads {
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
				reports[n+1] = Report{Node: n + 1, Shards: []ShardReport{{Shard: 1, Leader: ReplicaID(1, 1), Term: 7}}}
			}
		}
		v := ShardOverview{Shard: s}
		if v.look(reports); v.Known != (c.answer > c.replicas/2) || (v.Leader != 0) != v.Known {
			t.Errorf("%d of %d replicas answer: known %v, leader %d", c.answer, c.replicas, v.Known, v.Leader)
		}
	}
}

// What a node sees when it looks is newer than what the leader of the system shard knows: a node that has died does not
// answer at once, a shard's new leader is known at once, and a node that is well is never called silent.
func TestLookIsNewerThanTheLeader(t *testing.T) {
	replica := func(node uint32) uint64 { return ReplicaID(1, node) }
	row := Shard{ID: 1, Replicas: []Replica{{ID: replica(1), Node: 1}, {ID: replica(2), Node: 2}, {ID: replica(3), Node: 3}}}
	report := func(node, leader uint32, term uint64) Report {
		return Report{Node: node, DiskFree: 5, Shards: []ShardReport{{Shard: 1, Leader: replica(leader), Term: term,
			Applied: 90 + uint64(node)}}}
	}
	for _, c := range []struct {
		name    string
		silent  [3]time.Duration // since the leader of the system shard heard from the nodes
		active  [3]bool          // of the replicas, as node 1 saw them, which led the shard with term 7
		reports []Report
		alive   string
		leader  uint32
		answer  string // of the replicas
		want    string
	}{
		{"all is well", [3]time.Duration{}, [3]bool{true, true, true}, []Report{report(1, 1, 7), report(2, 1, 7), report(3, 1, 7)},
			"[true true true]", 1, "[true true true]", ""},
		{"a node has just died", [3]time.Duration{0, 0, time.Second}, [3]bool{true, true, true}, []Report{report(1, 1, 7), report(2, 1, 7)},
			"[true true false]", 1, "[true true false]",
			"no answer from node n3, last heard from 1s ago | shard 1: 2 of 3 replicas answer; no " +
				"answer from node n3"},
		{"the leader is new, and has heard from none", [3]time.Duration{}, [3]bool{true, false, false}, []Report{report(1, 1, 7),
			report(2, 1, 7), report(3, 1, 7)},
			"[true true true]", 1, "[true true true]", ""},
		{"a replica does not follow it", [3]time.Duration{}, [3]bool{true, false, false}, []Report{report(1, 1, 7),
			report(2, 1, 7), report(3, 1, 6)},
			"[true true true]", 1, "[true true false]", "shard 1: 2 of 3 replicas answer; no answer from node n3"},
		{"another leads since", [3]time.Duration{2 * time.Second}, [3]bool{true, true, true}, []Report{report(2, 2, 8), report(3, 2, 8)},
			"[false true true]", 2, "[false true true]",
			"no answer from node n1, last heard from 2s ago | shard 1: 2 of 3 replicas answer; no " +
				"answer from node n1"},
		{"the leader has died, and there is no other", [3]time.Duration{}, [3]bool{true, true, true},
			[]Report{report(2, 1, 7), report(3, 1, 7)}, "[false true true]", 0, "[false true true]",
			"no answer from node n1, last heard from 0s ago | shard 1: no leader answers"},
		{"a node is cut off from the leader of the system shard", [3]time.Duration{0, aliveFor, 0}, [3]bool{true, true, true},
			[]Report{report(1, 1, 7), report(2, 1, 7), report(3, 1, 7)}, "[true false true]", 1, "[true true true]",
			"no report from node n2 for 10s: it answers, but the leader of the system shard does not hear from it"},
		{"a moment before that", [3]time.Duration{0, aliveFor - 1, 0}, [3]bool{true, true, true}, []Report{report(1, 1, 7),
			report(2, 1, 7), report(3, 1, 7)},
			"[true true true]", 1, "[true true true]", ""},
	} {
		s := ShardOverview{Shard: row, Known: true, Leader: replica(1), Term: 7, Applied: 91, Problem: "", LastStep: "a step"}
		o := Overview{Settings: system.Settings{Replication: 3, DataShards: 1}}
		for i := range uint32(3) {
			o.Nodes = append(o.Nodes, NodeOverview{Node: Node{Number: i + 1, Name: fmt.Sprint("n", i+1), State: Active}, Reported: true,
				Silent: c.silent[i]})
			s.Members = append(s.Members, ReplicaOverview{ID: replica(i + 1), Node: i + 1, Voter: true, Answers: c.active[i]})
		}
		o.Shards = []ShardOverview{s}
		reports := map[uint32]Report{}
		for _, r := range c.reports {
			reports[r.Node] = r
		}
		o.Look(reports)
		var alive, answer []bool
		var got []string
		for i, n := range o.Nodes {
			alive, answer = append(alive, n.Alive), append(answer, o.Shards[0].Members[i].Answers)
			if _, answers := reports[n.Number]; n.Answers != answers || (n.Report.DiskFree == 5) != answers ||
				(len(n.Leads) > 0) != (n.Number == c.leader) {
				t.Errorf("%s: node %+v", c.name, n)
			}
		}
		for _, p := range o.Problems() {
			got = append(got, p.Text)
		}
		if fmt.Sprint(alive) != c.alive || fmt.Sprint(answer) != c.answer || NodeOf(o.Shards[0].Leader) != c.leader ||
			o.Shards[0].LastStep != "a step" || strings.Join(got, " | ") != c.want {
			t.Errorf("%s: alive %v, shard %+v, problems %q; want alive %s, leader %d, answers %s and %q", c.name, alive,
				o.Shards[0], got, c.alive, c.leader, c.answer, c.want)
		}
	}
}
