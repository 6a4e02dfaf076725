package cluster

import (
	"slices"
	"time"
)

// OwnView returns the state of the cluster as far as one node can tell while the system shard can't be asked: from its copy of the map, and
// from the reports of the nodes that answer it. silent is how long the others have not answered, at least.
func OwnView(by string, m *Map, reports map[uint32]Report, silent time.Duration) Overview {
	o := Overview{By: by, Settings: m.Settings}
	for _, s := range m.Shards {
		o.Shards = append(o.Shards, ownShard(m, s, reports))
	}
	for _, n := range m.Nodes {
		if n.State == Removed {
			continue
		}
		report, answers := reports[n.Number]
		v := NodeOverview{Node: n, Alive: answers, Reported: answers, Report: report, Replicas: m.holding(n.Number)}
		if !answers {
			v.Silent = max(silent, aliveFor) // it was asked a moment ago
		}
		o.Nodes = append(o.Nodes, v)
	}
	o.lead()
	return o
}

// ownShard describes a shard by the reports of the nodes with its replicas. A leader without a majority of them leads no longer, or won't
// for long.
func ownShard(m *Map, s Shard, reports map[uint32]Report) ShardOverview {
	v := ShardOverview{Shard: s}
	byReplica := map[uint64]ShardReport{} // by replica
	answer := 0
	for _, r := range s.Replicas {
		report, answers := reports[r.Node]
		v.Members = append(v.Members, ReplicaOverview{ID: r.ID, Node: r.Node, Voter: true, Answers: answers, Leaving: s.leaves(r.ID)})
		if answers {
			answer++
		}
		at := slices.IndexFunc(report.Shards, func(of ShardReport) bool { return of.Shard == s.ID })
		if at < 0 {
			continue
		}
		byReplica[r.ID] = report.Shards[at]
		if of := report.Shards[at]; of.Leads && of.Term >= v.Term {
			v.Leader, v.Term, v.Applied = r.ID, of.Term, of.Applied
		}
	}
	if v.Known = v.Leader != 0 && answer > len(s.Replicas)/2; !v.Known {
		v.Leader = 0
	}
	for i := range v.Members {
		if of, ok := byReplica[v.Members[i].ID]; ok && v.Known && of.Applied < v.Applied {
			v.Members[i].Lag = v.Applied - of.Applied
		}
	}
	v.Under = answer < m.wanted()
	return v
}

// lead sets what each node leads.
func (o *Overview) lead() {
	for i := range o.Nodes {
		for _, s := range o.Shards {
			if s.Leader != 0 && NodeOf(s.Leader) == o.Nodes[i].Number {
				o.Nodes[i].Leads = append(o.Nodes[i].Leads, s.ID)
			}
		}
	}
}
