package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/human"
)

// ProblemKind says what sort of trouble it is.
type ProblemKind uint8

const (
	NodeAway    ProblemKind = iota // a node was not heard of
	NoLeader                       // shards that nobody leads: their calls wait
	FewReplicas                    // shards that have fewer replicas that answer than they should
	Waiting                        // shards in which something is to be done that takes time, or can't be done
)

// Problem is something that is amiss, in the words of those who run the cluster.
type Problem struct {
	Kind   ProblemKind
	Node   string        // that is away
	For    time.Duration // how long at least
	Shards []uint32
	Text   string // a sentence that names them
}

// Problems says what is amiss: the nodes that are away, then the shards, one problem for all that have the same.
func (o *Overview) Problems() (list []Problem) {
	if o.By != "" {
		list = append(list, Problem{Kind: NoLeader, Shards: []uint32{0}, Text: fmt.Sprintf("the cluster can't be asked how it stands: this is what node %s finds out by itself, and nothing of the cluster can be changed now", o.By)})
	}
	names := map[uint32]string{}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		names[n.Number] = n.Name
		switch {
		case n.Alive:
		case n.Heard:
			list = append(list, Problem{Kind: NodeAway, Node: n.Name, For: n.Silent, Text: fmt.Sprintf("node %s was last heard of %s ago", n.Name, n.Silent.Truncate(time.Second))})
		case n.Silent >= aliveFor: // before, the leader is new and had no time to hear of all
			list = append(list, Problem{Kind: NodeAway, Node: n.Name, For: n.Silent,
				Text: fmt.Sprintf("node %s gives no answer, for %s at least", n.Name, n.Silent.Truncate(time.Second))})
		}
	}
	return append(list, o.shardProblems(names)...)
}

// shardProblems are the shards with the same trouble, in the order of the first of each.
func (o *Overview) shardProblems(names map[uint32]string) (list []Problem) {
	for i := range o.Shards {
		s := &o.Shards[i]
		kind, text := o.trouble(s, names)
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
	slices.SortStableFunc(list, func(a, b Problem) int { return int(a.Kind) - int(b.Kind) })
	for i := range list {
		list[i].Text = shardsText(list[i].Shards) + ": " + list[i].Text
	}
	return list
}

// trouble is what is amiss with a shard; "": nothing.
func (o *Overview) trouble(s *ShardOverview, names map[uint32]string) (ProblemKind, string) {
	switch {
	case !s.Known || s.Leader == 0:
		return NoLeader, "no leader answers"
	case s.Under:
		return FewReplicas, o.fewReplicas(s, names)
	}
	return Waiting, s.Problem
}

// fewReplicas says why a shard has too few replicas that answer. A node that is away for a while comes back: nothing is made in its
// place before it was away for long.
func (o *Overview) fewReplicas(s *ShardOverview, names map[uint32]string) string {
	voters, answer := 0, 0
	var silent, filled []string
	removed := false
	for _, m := range s.Members {
		if !m.Voter {
			if !m.Leaving {
				filled = append(filled, "node "+names[m.Node])
			}
			continue
		}
		voters++
		if m.Answers {
			answer++
		} else {
			of := "a node that was removed"
			if name := names[m.Node]; name != "" {
				of = "node " + name
			} else {
				removed = true
			}
			silent = append(silent, of)
		}
	}
	slices.Sort(silent)
	slices.Sort(filled)
	switch {
	case removed && len(filled) > 0:
		return fmt.Sprintf("%d of %d replicas answer; that of %s is made anew on %s", answer, voters, strings.Join(silent, ", "), strings.Join(filled, ", "))
	case len(silent) > 0:
		return fmt.Sprintf("%d of %d replicas answer, not that of %s", answer, voters, strings.Join(silent, ", "))
	case s.Problem != "":
		return fmt.Sprintf("%d of %d replicas: %s", answer, o.wanted(), s.Problem)
	}
	return fmt.Sprintf("%d of %d replicas, and more are being made", answer, o.wanted())
}

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
	return "shards " + strings.Join(human.Runs(ids), ", ")
}

// told says in words what a step does.
func (s Step) told(m *Map) string {
	name := func(number uint32) string {
		if at := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.Number == number }); at >= 0 {
			return m.Nodes[at].Name
		}
		return strconv.FormatUint(uint64(number), 10)
	}
	on := name(NodeOf(s.Replica))
	switch s.Kind {
	case AddReplica:
		return "node " + name(s.Node) + " is given a replica"
	case LeaveReplica:
		return "the replica on node " + on + " is to leave"
	case KeepReplica:
		return "the replica on node " + on + " stays after all"
	case DropReplica:
		return "the replica on node " + on + " is forgotten"
	case AddLearner:
		return "the replica on node " + on + " begins to learn"
	case RemoveLearner:
		return "the replica on node " + on + " is taken out"
	case TransferLeader:
		return "node " + on + " is to lead"
	case ChangeVoters:
		return s.Change.told(name)
	}
	return ""
}

func (c *VoterChange) told(name func(uint32) string) string {
	var parts []string
	for _, p := range []struct {
		ids  []uint64
		verb string
	}{{c.Promote, "votes now"}, {c.Demote, "votes no longer"}, {c.Remove, "leaves"}} {
		for _, id := range p.ids {
			parts = append(parts, "the replica on node "+name(NodeOf(id))+" "+p.verb)
		}
	}
	return strings.Join(parts, ", ")
}
