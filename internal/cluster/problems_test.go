package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

// TestProblems: problems are described with the names of nodes, one line for all shards with the same problem. No
// replica is said to be under construction while a node is merely unreachable.
func TestProblems(t *testing.T) {
	node := func(number uint32, name string, alive, heard bool, silent time.Duration) NodeOverview {
		return NodeOverview{Node: Node{Number: number, Name: name, State: Active}, Alive: alive, Reported: heard, Silent: silent}
	}
	n1, n2, n3 := node(1, "n1", true, true, 0), node(2, "n2", true, true, 0), node(3, "n3", true, true, 0)
	shard := func(id uint32, answer ...bool) ShardOverview {
		s := ShardOverview{Shard: Shard{ID: id}, Known: true, Leader: 1}
		for i, a := range answer {
			s.Members = append(s.Members, ReplicaOverview{ID: uint64(i + 1), Node: uint32(i + 1), Voter: true,
				Answers: a}) // #nosec G115 -- a few
			s.Under = s.Under || !a
		}
		return s
	}
	with := func(s ShardOverview, change func(*ShardOverview)) ShardOverview { change(&s); return s }
	learner := func(id uint64, node uint32) func(*ShardOverview) {
		return func(s *ShardOverview) {
			s.Members = append(s.Members, ReplicaOverview{ID: id, Node: node, Answers: true, Lag: 900})
		}
	}
	for _, c := range []struct {
		name   string
		nodes  []NodeOverview
		shards []ShardOverview
		want   string
	}{
		{"all is well", []NodeOverview{n1, n2, n3}, []ShardOverview{shard(0, true, true, true)}, ""},
		{"a node was killed", []NodeOverview{n1, node(2, "n2", false, true, 75*time.Second+9), n3},
			[]ShardOverview{shard(0, true, false, true), shard(1, true, false, true), shard(2, true, false, true),
				shard(5, true, false, true)},
			"no answer from node n2, last heard from 1m15s ago | shards 0-2, 5: 2 of 3 replicas answer; no answer from node n2"},
		{"the leader is new", []NodeOverview{n1, node(2, "n2", false, false, time.Second-1), n3}, nil, "no answer from node n2"},
		{"and did not hear of a node since", []NodeOverview{n1, node(2, "n2", false, false, 2*time.Minute), n3}, nil,
			"no answer from node n2 for at least 2m0s"},
		{"a node answers, but does not report", []NodeOverview{n1, {Node: n2.Node, Answers: true, Reported: true, Silent: 12 * time.Second},
			n3},
			nil, "no report from node n2 for 12s: it answers, but the leader of the system shard does not hear from it"},
		{"leadership was to be moved to it", []NodeOverview{n1, n2, n3},
			[]ShardOverview{with(shard(1, true, false, true), func(s *ShardOverview) {
				s.Problem = "node n2 should lead: not done yet, " +
					"will be retried"
			})},
			"shard 1: 2 of 3 replicas answer; no answer from node n2"},
		{"a node joined anew, and is being filled", []NodeOverview{n1, n2, node(4, "n3", true, true, 0)},
			[]ShardOverview{with(shard(1, true, true, false), learner(4, 4))},
			"shard 1: 2 of 3 replicas answer; the one on a removed node is being rebuilt on node n3"},
		{"one that was removed, while a learner is no help", []NodeOverview{n1, n2, node(4, "n3", true, true, 0)},
			[]ShardOverview{with(with(shard(1, true, true, false), learner(4, 4)), func(s *ShardOverview) { s.Members[3].Leaving = true })},
			"shard 1: 2 of 3 replicas answer; no answer from a removed node"},
		{"a node is away beside a learner", []NodeOverview{n1, n2, node(3, "n3", false, true, 75*time.Second),
			node(4, "n4", true, true, 0)},
			[]ShardOverview{with(shard(1, true, true, false), learner(4, 4))},
			"no answer from node n3, last heard from 1m15s ago | shard 1: 2 of 3 replicas answer; no answer from node n3"},
		{"a replica is made", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true), func(s *ShardOverview) {
			s.Under = true
		})},
			"shard 1: 2 of 3 replicas; more are being created"},
		{"or can't be", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true), func(s *ShardOverview) {
			s.Under, s.Problem = true, "no room"
		})},
			"shard 1: 2 of 3 replicas: no room"},
		{"one of more replicas than there need be is silent", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true, false),
			func(s *ShardOverview) { s.Under = false })},
			"shard 1: 2 of 3 replicas answer; no answer from node n3"},
		{"but not one that leaves", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true, false), func(s *ShardOverview) {
			s.Under, s.Members[2].Leaving = false, true
		})}, ""},
		{"a learner is silent", []NodeOverview{n1, n2, n3}, []ShardOverview{with(with(shard(1, true, true), learner(3, 3)),
			func(s *ShardOverview) { s.Members[2].Answers = false })},
			"shard 1: 2 of 3 replicas answer; no answer from node n3"},
		{"all are silent", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, false, false), func(s *ShardOverview) {
			s.Under = false
		}),
			with(shard(4, false, false), func(s *ShardOverview) { s.Under = false })},
			"shards 1, 4: 0 of 2 replicas answer; no answer from node n1, node n2"},
		{"far behind", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true, true), func(s *ShardOverview) {
			s.Members[1].Lag,
				s.Members[2].Lag = farBehind, farBehind+1
		})},
			"shard 1: the replica on node n3 is 100001 entries behind"},
		{"one differs", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true, true), func(s *ShardOverview) {
			s.Members[1].DiffersAt, s.Members[1].Apart = 70, true
		})},
			"shard 1: the state of the replica on node n2 differs from those of the others, at log entry 70"},
		{"two differ, and most don't", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true, true), func(s *ShardOverview) {
			s.Members[1].DiffersAt, s.Members[1].Apart, s.Members[2].DiffersAt, s.Members[2].Apart = 70, true, 80, true
		})}, "shard 1: the state of the replica on node n2 and on node n3 differs from those of the others, at log entry 80"},
		{"no telling which is right", []NodeOverview{n1, n2, n3}, []ShardOverview{with(shard(1, true, true, true), func(s *ShardOverview) {
			s.Members[0].DiffersAt, s.Members[2].DiffersAt = 70, 70
		})}, "shard 1: the states of the replicas on node n1, node n3 differ, at log entry 70, and there is no telling which is right"},
		{"no leader", []NodeOverview{n1}, []ShardOverview{{Shard: Shard{ID: 0}, Under: true, Problem: "none of its replicas answers"},
			shard(1, true), {Shard: Shard{ID: 2}, Under: true, Known: true}},
			"shards 0, 2: no leader answers"},
		{"something takes time", []NodeOverview{n1}, []ShardOverview{with(shard(0, true), func(s *ShardOverview) { s.Problem = "x" }),
			with(shard(1, true), func(s *ShardOverview) { s.Problem = "x" })},
			"shards 0-1: x"},
	} {
		o := Overview{Settings: system.Settings{Replication: 3}, Nodes: c.nodes, Shards: c.shards}
		var got []string
		for _, p := range o.Problems() {
			got = append(got, p.Text)
		}
		if strings.Join(got, " | ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestStepDescriptions: steps are described with the names of nodes, without the ids of replicas.
func TestStepDescriptions(t *testing.T) {
	m := &Map{Nodes: []Node{{Number: 1, Name: "berlin"}, {Number: 2, Name: "oslo"}, {Number: 3, Name: "rome"}}}
	second := uint64(7)<<32 | 2
	for want, s := range map[string]Step{
		"node oslo gets a replica":                   {Kind: AddReplica, Node: 2},
		"the replica on node oslo will leave":        {Kind: LeaveReplica, Replica: second},
		"the replica on node oslo stays after all":   {Kind: KeepReplica, Replica: second},
		"the replica on node oslo is forgotten":      {Kind: DropReplica, Replica: second},
		"the replica on node oslo becomes a learner": {Kind: AddLearner, Replica: second},
		"the replica on node oslo is removed":        {Kind: RemoveLearner, Replica: second},
		"node oslo should lead":                      {Kind: TransferLeader, Replica: second},
		"the replica on node oslo votes now, the replica on node berlin no longer votes, the replica on node rome leaves": {
			Kind:   ChangeVoters,
			Change: VoterChange{Promote: []uint64{second}, Demote: []uint64{1}, Remove: []uint64{3}}},
		"": {},
	} {
		if got := s.describe(m); got != want {
			t.Errorf("%v: got %q, want %q", s, got, want)
		}
	}
}
