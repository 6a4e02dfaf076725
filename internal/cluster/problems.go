package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/humanize"
)

// ProblemKind is the kind of a problem.
type ProblemKind uint8

const (
	NodeAway       ProblemKind = iota // a node does not answer, or does not report
	ClockWrong                        // a node's wall clock differs from the others'
	DiskFull                          // a disk has less space than new tasks require
	DiskLow                           // a disk is nearly full, or too full for a replica
	DiskSlow                          // a disk is much slower than the others'
	NodeRestart                       // a node's process keeps restarting
	CertEnds                          // a certificate of a node expires within two weeks
	CertEndsSoon                      // it expires within a month
	NoLeader                          // shards without a leader: their calls wait
	ReplicaDiffers                    // replicas of a shard have different states
	FewReplicas                       // shards with fewer replicas that answer than they should have
	Waiting                           // shards with work pending that takes time or can't be done
	ReplicaLags                       // a replica is far behind its leader
)

// Problem is something wrong with the cluster, described for its operators.
type Problem struct {
	Kind ProblemKind
	Node string        // the node that has it; "": not a single node
	For  time.Duration // for how long at least a node was not heard from
	// free bytes of a disk, seconds that a clock is off or a certificate lasts, starts of a process, or entries that a
	// replica lacks
	Value  float64
	Shards []uint32
	Text   string // a sentence that names them
}

// Problems returns what is wrong: first with the nodes, then with the shards, one problem for all shards with the same.
func (o *Overview) Problems() (list []Problem) {
	if o.By != "" {
		list = append(list, Problem{Kind: NoLeader, Shards: []uint32{0}, Text: fmt.Sprintf("the cluster's state is unavailable: "+
			"this is what node %s can see by itself, and through it the cluster can't be changed now", o.By)})
	}
	return append(append(list, o.nodeProblems()...), o.shardProblems(o.names())...)
}

// names returns the names of the nodes by number.
func (o *Overview) names() map[uint32]string {
	names := map[uint32]string{}
	for i := range o.Nodes {
		names[o.Nodes[i].Number] = o.Nodes[i].Name
	}
	return names
}

// shardProblems groups the shards by problem, in the order of the first of each.
func (o *Overview) shardProblems(names map[uint32]string) (list []Problem) {
	for i := range o.Shards {
		s := &o.Shards[i]
		kind, text := o.shardProblem(s, names)
		if text == "" {
			continue
		}
		at := slices.IndexFunc(list, func(p Problem) bool { return p.Kind == kind && p.Text == text })
		if at < 0 {
			at = len(list)
			list = append(list, Problem{Kind: kind, Text: text})
		}
		list[at].Shards = append(list[at].Shards, s.ID)
	}
	list = append(append(list, o.differing(names)...), o.lagging(names)...)
	slices.SortStableFunc(list, func(a, b Problem) int { return int(a.Kind) - int(b.Kind) })
	for i := range list {
		list[i].Text = shardsText(list[i].Shards) + ": " + list[i].Text
	}
	return list
}

// shardProblem returns what is wrong with a shard; "": nothing.
func (o *Overview) shardProblem(s *ShardOverview, names map[uint32]string) (ProblemKind, string) {
	switch {
	case !s.Known || s.Leader == 0:
		return NoLeader, "no leader answers"
	case s.Under:
		return FewReplicas, o.fewReplicas(s, names)
	case s.Problem != "":
		return Waiting, s.Problem
	}
	return FewReplicas, silentReplicas(s, names)
}

// silentReplicas names the replicas that don't answer in a shard that has enough others.
func silentReplicas(s *ShardOverview, names map[uint32]string) string {
	var silent []string
	for _, m := range s.Members {
		if !m.Answers && !m.Leaving {
			silent = append(silent, nodeText(m.Node, names))
		}
	}
	if len(silent) == 0 {
		return ""
	}
	slices.Sort(silent)
	return fmt.Sprintf("%d of %d replicas answer; no answer from %s", len(s.Members)-len(silent), len(s.Members),
		strings.Join(silent, ", "))
}

// farBehind is how many entries a replica may lack before that is a problem.
const farBehind = 100_000

// lagging returns the replicas that are far behind.
func (o *Overview) lagging(names map[uint32]string) (list []Problem) {
	for i := range o.Shards {
		for _, m := range o.Shards[i].Members {
			if m.Lag > farBehind {
				list = append(list, Problem{Kind: ReplicaLags, Node: names[m.Node], Value: float64(m.Lag), Shards: []uint32{o.Shards[i].ID},
					Text: fmt.Sprintf("the replica on %s is %d entries behind", nodeText(m.Node, names), m.Lag)})
			}
		}
	}
	return list
}

// differing returns the shards whose replicas have different states, with the replicas that are apart, if most others agree.
func (o *Overview) differing(names map[uint32]string) (list []Problem) {
	for i := range o.Shards {
		var nodes []string
		index, apart := uint64(0), true
		for _, m := range o.Shards[i].Members {
			if m.DiffersAt == 0 {
				continue
			}
			nodes = append(nodes, nodeText(m.Node, names))
			index, apart = max(index, m.DiffersAt), apart && m.Apart
		}
		if len(nodes) == 0 {
			continue
		}
		slices.Sort(nodes)
		text := fmt.Sprintf("the state of the replica on %s differs from those of the others, at log entry %d",
			strings.Join(nodes, " and on "), index)
		if !apart {
			text = fmt.Sprintf("the states of the replicas on %s differ, at log entry %d, and there is no telling which is right",
				strings.Join(nodes, ", "), index)
		}
		list = append(list, Problem{Kind: ReplicaDiffers, Value: float64(index), Shards: []uint32{o.Shards[i].ID}, Text: text})
	}
	return list
}

// nodeText names a node in a sentence.
func nodeText(number uint32, names map[uint32]string) string {
	if name := names[number]; name != "" {
		return "node " + name
	}
	return "a removed node"
}

// fewReplicas explains why a shard has too few replicas that answer. A node that is away for a short while is expected back: its replicas
// are not replaced until it has been away for long.
func (o *Overview) fewReplicas(s *ShardOverview, names map[uint32]string) string {
	voters, answer := 0, 0
	var silent, filled []string
	removed := false
	for _, m := range s.Members {
		if !m.Voter {
			if !m.Leaving {
				filled = append(filled, nodeText(m.Node, names))
			}
			continue
		}
		voters++
		if m.Answers {
			answer++
		} else {
			removed = removed || names[m.Node] == ""
			silent = append(silent, nodeText(m.Node, names))
		}
	}
	slices.Sort(silent)
	slices.Sort(filled)
	switch {
	case removed && len(filled) > 0:
		return fmt.Sprintf("%d of %d replicas answer; the one on %s is being rebuilt on %s", answer, voters, strings.Join(silent, ", "),
			strings.Join(filled, ", "))
	case len(silent) > 0:
		return fmt.Sprintf("%d of %d replicas answer; no answer from %s", answer, voters, strings.Join(silent, ", "))
	case s.Problem != "":
		return fmt.Sprintf("%d of %d replicas: %s", answer, o.wanted(), s.Problem)
	}
	return fmt.Sprintf("%d of %d replicas; more are being created", answer, o.wanted())
}

// wanted returns how many voters each shard should have: no more than there are nodes to take them.
func (o *Overview) wanted() int {
	takers := 0
	for i := range o.Nodes {
		if o.Nodes[i].State == Active {
			takers++
		}
	}
	return min(o.Settings.Replication, takers)
}

// shardsText names shards: "the system shard", "shard 3", "shards 0-2, 5".
func shardsText(ids []uint32) string {
	if len(ids) == 1 {
		return shardText(ids[0])
	}
	return "shards " + strings.Join(humanize.Runs(ids), ", ")
}

// describe says what a step does.
func (s Step) describe(m *Map) string {
	name := func(number uint32) string {
		if at := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.Number == number }); at >= 0 {
			return m.Nodes[at].Name
		}
		return strconv.FormatUint(uint64(number), 10)
	}
	on := name(NodeOf(s.Replica))
	switch s.Kind {
	case AddReplica:
		return "node " + name(s.Node) + " gets a replica"
	case LeaveReplica:
		return "the replica on node " + on + " will leave"
	case KeepReplica:
		return "the replica on node " + on + " stays after all"
	case DropReplica:
		return "the replica on node " + on + " is forgotten"
	case AddLearner:
		return "the replica on node " + on + " becomes a learner"
	case RemoveLearner:
		return "the replica on node " + on + " is removed"
	case TransferLeader:
		return "node " + on + " should lead"
	case ChangeVoters:
		return s.Change.describe(name)
	}
	return ""
}

func (c *VoterChange) describe(name func(uint32) string) string {
	var parts []string
	for _, p := range []struct {
		ids  []uint64
		verb string
	}{{c.Promote, "votes now"}, {c.Demote, "no longer votes"}, {c.Remove, "leaves"}} {
		for _, id := range p.ids {
			parts = append(parts, "the replica on node "+name(NodeOf(id))+" "+p.verb)
		}
	}
	return strings.Join(parts, ", ")
}
