package cluster

import (
	"slices"
	"time"
)

// OwnView returns the state of the cluster as far as one node can tell while the system shard can't be asked: from its
// copy of the map. The rest is what it sees when it looks. silent is how long the others have not been heard from, at
// least.
func OwnView(by string, m *Map, silent time.Duration) Overview {
	o := Overview{By: by, Settings: m.Settings}
	for _, s := range m.Shards {
		o.Shards = append(o.Shards, ShardOverview{Shard: s})
	}
	for _, n := range m.Members() {
		o.Nodes = append(o.Nodes, NodeOverview{Node: n, Silent: silent, Replicas: m.holding(n.Number)})
	}
	return o
}

// Look completes the state of the cluster with what a node has just seen: the reports of all nodes that answered it. So
// a node that has died does not answer from then on, and a shard's new leader is known, although the leader of the
// system shard notices both some seconds later.
func (o *Overview) Look(reports map[uint32]Report) {
	for i := range o.Nodes {
		n := &o.Nodes[i]
		report, answers := reports[n.Number]
		n.Answers = answers
		if n.Alive = answers && (n.Silent < aliveFor || o.By != ""); answers {
			n.Report, n.Reported = report, true
		}
	}
	for i := range o.Shards {
		o.Shards[i].look(reports)
	}
	o.sum()
}

// look completes the state of a shard. What its leader said of it holds if that still leads by the reports; otherwise
// they are all that is known. A leader without a majority of the replicas leads no longer, or won't for long.
func (s *ShardOverview) look(reports map[uint32]Report) {
	byReplica := map[uint64]ShardReport{}
	leader, answer := ShardReport{}, 0
	for _, r := range s.Replicas {
		report, answers := reports[r.Node]
		if answers {
			answer++
		}
		at := slices.IndexFunc(report.Shards, func(of ShardReport) bool { return of.Shard == s.ID })
		if at < 0 {
			continue
		}
		byReplica[r.ID] = report.Shards[at]
		if of := report.Shards[at]; of.Leader == r.ID && of.Term >= leader.Term {
			leader = of
		}
	}
	if s.Known && leader.Leader == s.Leader && leader.Term == s.Term {
		for i := range s.Members {
			m := &s.Members[i]
			_, answers := reports[m.Node]
			of := byReplica[m.ID] // a leader counts a replica as silent until it has heard from it
			m.Answers = answers && (m.Answers || of.Leader == s.Leader && of.Term == s.Term)
		}
		return
	}
	*s = ShardOverview{Shard: s.Shard, LastStep: s.LastStep}
	if s.Known = leader.Leader != 0 && answer > len(s.Replicas)/2; s.Known {
		s.Leader, s.Term, s.Applied = leader.Leader, leader.Term, leader.Applied
	}
	for _, r := range s.Replicas {
		_, answers := reports[r.Node]
		v := ReplicaOverview{ID: r.ID, Node: r.Node, Voter: true, Answers: answers, Leaving: s.leaves(r.ID)}
		if of, ok := byReplica[r.ID]; ok && of.Applied < s.Applied {
			v.Lag = s.Applied - of.Applied
		}
		s.Members = append(s.Members, v)
	}
}

// sum sets what each node leads, and which shards have too few voters that answer.
func (o *Overview) sum() {
	leads := map[uint32][]uint32{} // by node
	for i := range o.Shards {
		s, answer := &o.Shards[i], 0
		for _, m := range s.Members {
			if m.Voter && m.Answers {
				answer++
			}
		}
		s.Under = answer < o.wanted()
		leads[NodeOf(s.Leader)] = append(leads[NodeOf(s.Leader)], s.ID)
	}
	for i := range o.Nodes {
		o.Nodes[i].Leads = leads[o.Nodes[i].Number]
	}
}
