package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

// statusOf is a shard led by its first voter that answers.
func statusOf(voters, learners []uint64, dead ...uint64) Status {
	s := Status{Term: 1, Led: minLed, Voters: voters, Learners: learners, Applied: 5000, Progress: map[uint64]Progress{}}
	gone := map[uint64]bool{}
	for _, id := range dead {
		gone[id] = true
	}
	for _, list := range [][]uint64{voters, learners} {
		for _, id := range list {
			s.Progress[id] = Progress{Match: 5000, Active: !gone[id]}
		}
	}
	for _, id := range voters {
		if !gone[id] && s.Leader == 0 {
			s.Leader = id
		}
	}
	return s
}

// membersOf parses nodes: "1 2:draining 3:quiet 4:dead 5:removed 6+9 7:barred 8:full 9:unheard". A quiet node has been
// silent for a minute, a dead one for ten. The number of replicas follows the plus.
func membersOf(t *testing.T, text string) (members []Member) {
	for _, word := range strings.Fields(text) {
		m := Member{Node: Node{State: Active}}
		word, state, _ := strings.Cut(word, ":")
		if _, err := fmt.Sscanf(word, "%d+%d", &m.Number, &m.Replicas); err != nil {
			if _, err := fmt.Sscan(word, &m.Number); err != nil {
				t.Fatalf("invalid node %q", word)
			}
		}
		m.Name = fmt.Sprint("n", m.Number)
		switch state {
		case "draining":
			m.State = Draining
		case "removed":
			m.State = Removed
		case "barred":
			m.Barred = true
		case "full":
			m.Barred, m.Full = true, true
		case "unheard":
			m.Unheard = true
		case "quiet":
			m.Silent = time.Minute
		case "dead":
			m.Silent = 10 * time.Minute
		}
		members = append(members, m)
	}
	return members
}

// replicaOf parses a replica: "2" is the first on node 2, "2.1" the next.
func replicaOf(t *testing.T, word string) uint64 {
	var node, incarnation uint32
	if _, err := fmt.Sscanf(word, "%d.%d", &node, &incarnation); err != nil {
		if _, err := fmt.Sscan(word, &node); err != nil {
			t.Fatalf("invalid replica %q", word)
		}
	}
	return ReplicaID(incarnation, node)
}

// shardOf parses a row: "1 2 3-" is three replicas of which the last is leaving. "1!" marks the preferred leader.
func shardOf(t *testing.T, text string) Shard {
	s := Shard{ID: 7, NextIncarnation: 9}
	for _, word := range strings.Fields(text) {
		name := strings.TrimRight(word, "-!")
		id := replicaOf(t, name)
		s.Replicas = append(s.Replicas, Replica{ID: id, Node: NodeOf(id)})
		if strings.Contains(word, "-") {
			s.Leaving = append(s.Leaving, id)
		}
		if strings.Contains(word, "!") {
			s.Preferred = NodeOf(id)
		}
	}
	return s
}

// confOf parses a membership: "1* 2 3? l4 l5~ l6<": the leader, a voter, one that doesn't answer, a learner, one that
// is receiving a snapshot, one that lacks entries. "o8" is an outgoing voter, "3x" one that is unfit to lead now.
func confOf(t *testing.T, text string) Status {
	s := Status{Term: 3, Led: minLed, Applied: 5000, Progress: map[uint64]Progress{}}
	for _, word := range strings.Fields(text) {
		kind := strings.TrimRight(word, "*?~<x")
		id := replicaOf(t, strings.TrimLeft(kind, "lo"))
		p := Progress{Match: 4500, Active: true}
		switch word[len(kind):] {
		case "*":
			s.Leader = id
		case "?":
			p.Active = false
		case "~":
			p.Snapshotting = true
		case "<":
			p.Match = 3999
		case "x":
			p.Unfit = true
		}
		s.Progress[id] = p
		switch kind[0] {
		case 'l':
			s.Learners = append(s.Learners, id)
		case 'o':
			s.VotersOutgoing = append(s.VotersOutgoing, id)
		default:
			s.Voters = append(s.Voters, id)
		}
	}
	return s
}

// text describes a decision in words.
func (v Decision) text() string {
	switch {
	case v.Step.Kind != NoStep:
		return strings.TrimPrefix(v.Step.String(), "shard 7: ")
	case v.Busy != "":
		return "busy: " + v.Busy
	case v.Blocked != "":
		return "blocked: " + v.Blocked
	}
	return "rest"
}

func voters(promote, demote, remove string) string {
	return fmt.Sprintf("change voters: promote [%s], demote [%s], remove [%s]", promote, demote, remove)
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name, nodes string
		rf          int
		row, conf   string
		want        string
	}{
		// What keeps the plan from doing anything.
		{"no leader", "1 2 3", 3, "1 2 3", "1? 2? 3?", "busy: it has no leader"},
		{"a joint configuration is left over", "1 2 3", 3, "1", "1* o2", "busy: its voters are being changed"},
		{"no majority", "1 2 3", 3, "1 2 3", "1* 2? 3?", "busy: only 1 of its 3 voters answer"},

		// Growth.
		{"one node", "1", 3, "1", "1*", "rest"},
		{"a second node", "1 2", 3, "1", "1*", "add replica on node 2"},
		{"it becomes a learner", "1 2", 3, "1 2.1", "1*", "add learner 2.1"},
		{"and stays one: two voters are worse than one", "1 2", 3, "1 2.1", "1* l2.1", "rest"},
		{"the emptiest node is chosen", "1+5 2+4 3+2 4+3", 3, "1", "1*", "add replica on node 3"},
		{"neither a draining, nor a silent, nor a removed one", "1 2:draining 3:quiet 4:removed 5+9", 3, "1", "1*",
			"add replica on node 5"},
		{"a learner catches up", "1 2 3", 3, "1 2.1 3.2", "1* l2.1 l3.2<", "busy: the replica on node n3 catches up"},
		{"or gets a snapshot", "1 2 3", 3, "1 2.1 3.2", "1* l2.1~ l3.2", "busy: the replica on node n2 catches up"},
		{"both become voters at once", "1 2 3", 3, "1 2.1 3.2", "1* l2.1 l3.2", voters("2.1 3.2", "", "")},
		{"at rest", "1 2 3", 3, "1 2.1 3.2", "1* 2.1 3.2", "rest"},
		{"a fourth node changes nothing", "1 2 3 4", 3, "1 2.1 3.2", "1* 2.1 3.2", "rest"},
		{"four nodes, five replicas asked for: three vote", "1 2 3 4", 5, "1 2.1 3.2 4.3", "1* 2.1 3.2 l4.3", "rest"},
		{"the fifth makes it five", "1 2 3 4 5", 5, "1 2.1 3.2 4.3 5.4", "1* 2.1 3.2 l4.3 l5.4", voters("4.3 5.4", "", "")},
		{"its node is silent before it is a member", "1 2 3:quiet", 3, "1 2.1 3.2", "1* l2.1",
			`busy: waits for node n3 to take its replica`},

		// Deaths.
		{"a node is silent for a minute", "1 2 3:quiet 4", 3, "1 2.1 3.2", "1* 2.1 3.2?", "rest"},
		{"for ten, and there is another", "1 2 3:dead 4", 3, "1 2.1 3.2", "1* 2.1 3.2?", "add replica on node 4"},
		{"the other catches up: nobody leaves", "1 2 3:dead 4", 3, "1 2.1 3.2 4.3", "1* 2.1 3.2? l4.3<",
			"busy: the replica on node n4 catches up"},
		{"it is ready: the dead one is to leave", "1 2 3:dead 4", 3, "1 2.1 3.2 4.3", "1* 2.1 3.2? l4.3", "replica leaves 3.2"},
		{"in one change", "1 2 3:dead 4", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2? l4.3", voters("4.3", "", "3.2")},
		{"and is forgotten", "1 2 3:dead 4", 3, "1 2.1 3.2- 4.3", "1* 2.1 4.3", "drop replica 3.2"},
		{"for ten, and there is no other", "1 2 3:dead", 3, "1 2.1 3.2", "1* 2.1 3.2?",
			"blocked: node n3 has been silent for over 5m0s, and no other node can take its replica"},
		{"a learner's node is silent, and there is another", "1 2:quiet 3", 3, "1 2.1", "1* l2.1?", "replica leaves 2.1"},
		{"and there is no other", "1 2:quiet", 3, "1 2.1", "1* l2.1?", "rest"},
		{"a learner of a dead node", "1 2:dead", 3, "1 2.1", "1* l2.1?", "replica leaves 2.1"},
		{"is removed", "1 2:dead", 3, "1 2.1-", "1* l2.1?", "remove learner 2.1"},
		{"and forgotten", "1 2:dead", 3, "1 2.1-", "1*", "drop replica 2.1"},
		{"the dead node comes back while another catches up", "1 2 3 4", 3, "1 2.1 3.2 4.3", "1* 2.1 3.2 l4.3<", "replica leaves 4.3"},
		{"what was to take a leaving voter's place is gone: it stays", "1 2 3", 3, "1 2.1 3.2-", "1* 2.1 3.2", "keep replica 3.2"},
		{"unless there is another", "1 2 3 4", 3, "1 2.1 3.2-", "1* 2.1 3.2", "add replica on node 4"},
		{"be it the first", "1 2 3 4", 3, "2 3.1 4.2-", "2* 3.1 4.2", "add replica on node 1"},
		{"it goes if the number is odd without it", "1 2 3 4", 5, "1 2.1 3.2 4.3-", "1* 2.1 3.2 4.3", voters("", "", "4.3")},
		{"it also stays in the place of one that drains", "1 2 3 4:draining", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2 l4.3", "keep replica 3.2"},

		// Drains.
		{"a draining node, and another", "1 2 3:draining 4", 3, "1 2.1 3.2", "1* 2.1 3.2", "add replica on node 4"},
		{"and no other", "1 2 3:draining", 3, "1 2.1 3.2", "1* 2.1 3.2",
			"blocked: no other node can take its replica on node n3, which is draining"},
		{"the leader moves first", "1:draining 2 3 4", 3, "1 2.1 3.2 4.3", "1* 2.1 3.2 l4.3", "transfer leader 2.1"},
		{"also where the replica can't", "1:draining 2 3", 3, "1 2.1 3.2", "1* 2.1 3.2", "transfer leader 2.1"},
		{"then the replica leaves", "1:draining 2 3 4", 3, "1 2.1 3.2 4.3", "1 2.1* 3.2 l4.3", "replica leaves 1.0"},
		{"in one change", "1:draining 2 3 4", 3, "1- 2.1 3.2 4.3", "1 2.1* 3.2 l4.3", voters("4.3", "", "1.0")},
		{"of two nodes the voter's: the learner comes in", "1:draining 2", 3, "1 2.1", "1* l2.1", voters("2.1", "", "")},
		{"leads", "1:draining 2", 3, "1 2.1", "1* 2.1", "transfer leader 2.1"},
		{"and the old one becomes the learner", "1:draining 2", 3, "1 2.1", "1 2.1*", voters("", "1.0", "")},
		{"all nodes drain: nothing", "1:draining 2:draining 3:draining", 3, "1 2.1 3.2", "1* 2.1 3.2",
			"blocked: no other node can take its replica on node n1, which is draining"},

		// Removals.
		{"the voter of a removed node: another replica first", "1 2 3:removed 4", 3, "1 2.1 3.2-", "1* 2.1 3.2?", "add replica on node 4"},
		{"its vote stays while that catches up", "1 2 3:removed 4", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2? l4.3<",
			"busy: the replica on node n4 catches up"},
		{"also if it seems to answer", "1 2 3:removed 4", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2 l4.3<",
			"busy: the replica on node n4 catches up"},
		{"or while the node that could have one is not heard of", "1 2 3:removed 4:quiet", 3, "1 2.1 3.2-", "1* 2.1 3.2?",
			"blocked: a removed node still votes, and no other node can replace it yet"},
		{"as long as it may be", "1 2 3:removed 4:dead", 3, "1 2.1 3.2-", "1* 2.1 3.2?",
			"blocked: a removed node still votes, and no other node can replace it yet"},
		{"or has one and is not heard of", "1 2 3:removed 4:quiet", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2? l4.3<",
			"busy: the replica on node n4 catches up"},
		{"not if there is no such node", "1 2 3:removed", 3, "1 2.1 3.2-", "1* 2.1 3.2?", voters("", "2.1", "3.2")},
		{"nor for one that drains", "1 2 3:removed 4:draining", 3, "1 2.1 3.2-", "1* 2.1 3.2?", voters("", "2.1", "3.2")},
		{"one node can take the place of one", "1 2 3 4:removed 5:removed 6:quiet", 5, "1 2.1 3.2 4.3- 5.4-", "1* 2.1 3.2 4.3? 5.4?",
			voters("", "", "4.3 5.4")},
		{"a silent node holds up no drain", "1:draining 2 4:dead", 3, "1 2.1", "1* l2.1", voters("2.1", "", "")},
		{"with another in its place", "1 2 3:removed 4", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2? l4.3", voters("4.3", "", "3.2")},
		{"and the one that answers is left to decide", "1 2:quiet 3:removed", 3, "1 2.1 3.2- ", "1* 2.1? 3.2", voters("", "2.1", "3.2")},
		{"and none that has a replica already", "1 2:quiet 3:removed 4", 3, "1 2.1 3.2- 4.3", "1* 2.1? 3.2 l4.3<",
			"busy: the replica on node n4 catches up"},
		{"it is not marked in the row", "1 2 3:removed", 3, "1 2.1 3.2", "1 2.1* 3.2?", voters("", "1.0", "3.2")},
		{"and is forgotten", "1 2 3:removed", 3, "1 2.1 3.2-", "1* l2.1", "drop replica 3.2"},
		{"its learner goes", "1 2:removed", 3, "1 2.1-", "1* l2.1", "remove learner 2.1"},
		{"its leader hands over", "1 2:removed 3", 3, "1 2.1- 3.2", "1 2.1* 3.2", "transfer leader 1.0"},
		{"between two voters: two stay until the third is ready", "1 2 4", 3, "1 2.1 4.3", "1* 2.1 l4.3<",
			"busy: the replica on node n4 catches up"},
		{"the only voter's node: the other comes in first", "1:removed 2", 3, "1- 2.1", "1* l2.1", voters("2.1", "", "")},
		{"the only voter's node, and nobody is ready", "1:removed 2", 3, "1- 2.1", "1* l2.1<", "busy: the replica on node n2 catches up"},

		// Rows and membership differ.
		{"a learner that no row knows", "1 2", 1, "1", "1* l2.1", "remove learner 2.1"},
		{"a voter that no row knows", "1 2 3 4", 3, "1 2.1 3.2", "1* 2.1 3.2 4.5", voters("", "", "4.5")},
		{"a replica that is no member", "1 2 3 4", 3, "1 2.1 3.2", "1* 2.1", "add learner 3.2"},
		{"a node that is not known", "1 2 3", 3, "1 2.1 3.2 9.3", "1* 2.1 3.2", "drop replica 9.3"},

		// Disks without room.
		{"a leader without room", "1:full 2 3", 3, "1 2.1 3.2", "1* 2.1 3.2", "transfer leader 2.1"},
		{"only one has room", "1:full 2:full 3", 3, "1 2.1 3.2", "1* 2.1 3.2", "transfer leader 3.2"},
		{"nobody has", "1:full 2:full 3:full", 3, "1 2.1 3.2", "1* 2.1 3.2", "rest"},
		{"who has room is silent", "1:full 2:full 3:quiet", 3, "1 2.1 3.2", "1* 2.1 3.2", "rest"},
		{"who has room has not reported", "1:full 2:full 3:unheard", 3, "1 2.1 3.2", "1* 2.1 3.2", "rest"},
		{"who has room may not lead", "1:full 2:full 3:barred", 3, "1 2.1 3.2", "1* 2.1 3.2", "rest"},
		{"who has room failed to take over lately", "1:full 2:full 3", 3, "1 2.1 3.2", "1* 2.1 3.2x", "rest"},
		{"a follower without room", "1 2:full 3:full", 3, "1 2.1 3.2", "1* 2.1 3.2", "rest"},
		{"a preferred leader without room", "1:full 2 3", 3, "1! 2.1 3.2", "1* 2.1 3.2", "transfer leader 2.1"},
		{"that does not come back", "1:full 2 3", 3, "1! 2.1 3.2", "1 2.1* 3.2", "rest"},
		{"a new replica keeps away from it", "1 2 3:full 4+9", 3, "1 2.1", "1* 2.1", "add replica on node 4"},
		{"unless there is no other", "1 2 3:full", 3, "1 2.1", "1* 2.1", "add replica on node 3"},
		{"and from one that has not reported", "1 2 3:unheard 4+9", 3, "1 2.1", "1* 2.1", "add replica on node 4"},

		// What operators ask for.
		{"a move: the new one catches up", "1 2 3 4", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2 l4.3<", "busy: the replica on node n4 catches up"},
		{"and takes the place", "1 2 3 4", 3, "1 2.1 3.2- 4.3", "1* 2.1 3.2 l4.3", voters("4.3", "", "3.2")},
		{"a move of the leader", "1 2 3 4", 3, "1- 2.1 3.2 4.3", "1* 2.1 3.2 l4.3", "transfer leader 2.1"},
		{"a move of the only voter", "1 2", 1, "1- 2.1", "1* l2.1", voters("2.1", "", "")},
		{"fewer replicas", "1 2 3", 1, "1 2.1 3.2", "1 2.1* 3.2", "replica leaves 1.0"},
		{"all of them marked", "1 2 3", 1, "1- 2.1 3.2-", "1 2.1* 3.2", voters("", "", "1.0 3.2")},
		{"the preferred one stays", "1 2 3", 1, "1! 2.1 3.2", "1 2.1* 3.2", "transfer leader 1.0"},
		{"a preferred leader", "1 2 3", 3, "1 2.1 3.2!", "1* 2.1 3.2", "transfer leader 3.2"},
		{"that lags is not made one", "1 2 3", 3, "1 2.1 3.2!", "1* 2.1 3.2<", "rest"},
		{"nor on a node that may not", "1 2 3:barred", 3, "1 2.1 3.2!", "1* 2.1 3.2", "rest"},
		{"nor on one that has not reported", "1 2 3:unheard", 3, "1 2.1 3.2!", "1* 2.1 3.2", "rest"},
		{"nor one that failed to take over lately", "1 2 3", 3, "1 2.1 3.2!", "1* 2.1 3.2x", "rest"},
		{"nor on a node that drains", "1 2 3:draining 4:quiet", 3, "1 2.1 3.2!", "1* 2.1 3.2",
			"blocked: no other node can take its replica on node n3, which is draining"},
	} {
		s := PlanInput{Settings: system.Settings{Replication: c.rf}, Members: membersOf(t, c.nodes), Shard: shardOf(t, c.row),
			Status: confOf(t, c.conf)}
		if got := Next(s).text(); got != c.want {
			t.Errorf("%s: nodes %q, row %q, membership %q:\n got %s\nwant %s", c.name, c.nodes, c.row, c.conf, got, c.want)
		}
	}
}

// A shard never has more than maxReplicas replicas, even if nodes die faster than replicas are built.
func TestReplicasAreBounded(t *testing.T) {
	row, conf := "1", "1*"
	for n := 2; n <= maxReplicas; n++ {
		row += fmt.Sprintf(" 50.%d-", n)
		conf += fmt.Sprintf(" 50.%d", n)
	}
	s := PlanInput{Settings: system.Settings{Replication: 3}, Members: membersOf(t, "1 50 99"), Shard: shardOf(t, row),
		Status: confOf(t, conf)}
	if got := Next(s).text(); !strings.Contains(got, "16 replicas, counting those being added or removed") {
		t.Error(got)
	}
}

func TestBalance(t *testing.T) {
	for _, c := range []struct {
		name, nodes string
		shards      []string // row / membership
		want        string
	}{
		{"nothing to do", "1+1 2+1 3+1", []string{"1 2 3/1* 2 3"}, "nothing"},
		{"one leads two more", "1 2 3", []string{"1 2 3/1* 2 3", "1 2 3/1* 2 3"}, "shard 1: transfer leader 2.0"},
		{"one more is even", "1 2 3", []string{"1 2 3/1* 2 3"}, "nothing"},
		{"a draining node is no goal", "1 2:draining 3", []string{"1 2 3/1* 2 3", "1 2 3/1* 2 3"}, "shard 1: transfer leader 3.0"},
		{"nor one that may not lead", "1 2:barred 3", []string{"1 2 3/1* 2 3", "1 2 3/1* 2 3"}, "shard 1: transfer leader 3.0"},
		{"nor one without room", "1 2:full 3", []string{"1 2 3/1* 2 3", "1 2 3/1* 2 3"}, "shard 1: transfer leader 3.0"},
		{"nor one that has not reported", "1 2:unheard 3", []string{"1 2 3/1* 2 3", "1 2 3/1* 2 3"}, "shard 1: transfer leader 3.0"},
		{"nor one that failed to take over lately", "1 2 3", []string{"1 2 3/1* 2x 3", "1 2 3/1* 2x 3"}, "shard 1: transfer leader 3.0"},
		{"nor one that lags", "1 2 3", []string{"1 2 3/1* 2< 3<", "1 2 3/1* 2< 3<"}, "nothing"},
		{"a preferred leader stays", "1 2 3", []string{"1! 2 3/1* 2 3", "1 2 3/1* 2 3"}, "shard 2: transfer leader 2.0"},
		{"but one that leads only because the preferred one can't", "1 2 3:barred", []string{"1 2 3!/1* 2 3", "1 2 3/1* 2 3"},
			"shard 1: transfer leader 2.0"},
		{"hand by hand, the last first", "1 2 3", []string{"1 2/1* 2", "1 2/1* 2", "1 2/1* 2", "2 3/2* 3", "2 3/2* 3", "2 3/2 3*"},
			"shard 4: transfer leader 3.0"},
		{"a new node gets replicas", "1+3 2+3 3+3 4", []string{"1 2 3/1* 2 3", "1 2 3/1 2* 3", "1 2 3/1 2 3*"},
			"shard 2: add replica on node 4"},
		{"but not one without room", "1+3 2+3 3+3 4:full", []string{"1 2 3/1* 2 3", "1 2 3/1 2* 3", "1 2 3/1 2 3*"}, "nothing"},
		{"nor one that has not reported", "1+3 2+3 3+3 4:unheard", []string{"1 2 3/1* 2 3", "1 2 3/1 2* 3", "1 2 3/1 2 3*"}, "nothing"},
		{"not for a difference of one", "1+2 2+2 3+2 4+1", []string{"1 2 3/1* 2 3", "1 2 3/1 2* 3"}, "nothing"},
		{"nor from a node that holds the same", "1+4 2+2", []string{"1 2/1* 2", "1 2/1 2*"}, "nothing"},
	} {
		var shards []shardState
		for i, text := range c.shards {
			row, conf, _ := strings.Cut(text, "/")
			s := shardState{shardOf(t, row), confOf(t, conf)}
			s.ID = uint32(i + 1)
			shards = append(shards, s)
		}
		if got := balance(membersOf(t, c.nodes), shards).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// A leader is not replaced by a better one until it has led for a while. What an operator asks for, and what a change
// of voters needs, does not wait.
func TestYoungLeadersStay(t *testing.T) {
	for _, c := range []struct{ name, nodes, row, conf, young, settled string }{
		{"a leader without room", "1:full 2 3", "1 2.1 3.2", "1* 2.1 3.2", "rest", "transfer leader 2.1"},
		{"a preferred leader", "1 2 3", "1 2.1 3.2!", "1* 2.1 3.2", "transfer leader 3.2", "transfer leader 3.2"},
		{"a drain", "1:draining 2 3 4", "1 2.1 3.2 4.3", "1* 2.1 3.2 l4.3<", "transfer leader 2.1", "transfer leader 2.1"},
		{"a leader that will stop voting", "1 2 3 4", "1- 2.1 3.2 4.3", "1* 2.1 3.2 l4.3", "transfer leader 2.1", "transfer leader 2.1"},
	} {
		for led, want := range map[time.Duration]string{0: c.young, minLed - 1: c.young, minLed: c.settled} {
			s := PlanInput{Settings: system.Settings{Replication: 3}, Members: membersOf(t, c.nodes), Shard: shardOf(t, c.row),
				Status: confOf(t, c.conf)}
			s.Status.Led = led
			if got := Next(s).text(); got != want {
				t.Errorf("%s, after %v: got %s, want %s", c.name, led, got, want)
			}
		}
	}
	young := shardState{shardOf(t, "1 2 3"), confOf(t, "1* 2 3")}
	old := young
	young.ID, young.Led, old.ID = 1, minLed-1, 2
	if got := balance(membersOf(t, "1 2 3"), []shardState{young, old}).String(); got != "shard 2: transfer leader 2.0" {
		t.Errorf("balancing leaders of which one is young: got %s", got)
	}
	old.Led = 0
	if got := balance(membersOf(t, "1 2 3"), []shardState{young, old}).String(); got != "nothing" {
		t.Errorf("balancing leaders that are both young: got %s", got)
	}
}

// Each step that moves a leader says why.
func TestLeadershipMovesHaveReasons(t *testing.T) {
	for want, c := range map[string][3]string{
		"node n1 drains": {"1:draining 2 3 4", "1 2.1 3.2 4.3", "1* 2.1 3.2 l4.3<"},
		"the disk of node n1 has no room for new tasks":      {"1:full 2 3", "1 2.1 3.2", "1* 2.1 3.2"},
		"an operator wants node n3 to lead it":               {"1 2 3", "1 2.1 3.2!", "1* 2.1 3.2"},
		"its replica on node n1 will stop voting":            {"1 2 3 4", "1- 2.1 3.2 4.3", "1* 2.1 3.2 l4.3"},
		"its replica on node n1 will stop voting, as it can": {"1 2:barred 3:barred 4:barred", "1- 2.1 3.2 4.3", "1* 2.1 3.2 l4.3"},
	} {
		s := PlanInput{Settings: system.Settings{Replication: 3}, Members: membersOf(t, c[0]), Shard: shardOf(t, c[1]),
			Status: confOf(t, c[2])}
		if v := Next(s); v.Step.Kind != TransferLeader || v.Step.Why != strings.TrimSuffix(want, ", as it can") {
			t.Errorf("%v: got %s with the reason %q, want %q", c, v.text(), v.Step.Why, want)
		}
	}
	s := shardState{shardOf(t, "1 2 3"), confOf(t, "1* 2 3")}
	other := s
	other.ID = 8
	if step := balance(membersOf(t, "1 2 3"), []shardState{s, other}); step.Kind != TransferLeader ||
		step.Why != "to balance leaders across nodes" {
		t.Errorf("balancing leaders: %v with the reason %q", step, step.Why)
	}
}

// If there are too many replicas, those on dead nodes leave first, then those on draining ones. Among each, those that
// should not vote leave first.
func TestOrderOfReplicaRemoval(t *testing.T) {
	p := &planner{PlanInput: PlanInput{Members: membersOf(t, "1:dead 2:draining 3")}}
	voting := []uint64{replicaOf(t, "1"), replicaOf(t, "2"), replicaOf(t, "3")}
	last := -1
	for _, word := range []string{"1", "2", "3"} {
		for _, voters := range [][]uint64{nil, voting} {
			worth := p.removalRank(replicaOf(t, word), voters)
			if worth <= last {
				t.Errorf("the replica on node %s, voting %v, has removal rank %d, want more than that of the previous one, %d", word,
					voters != nil, worth, last)
			}
			last = worth
		}
	}
}
