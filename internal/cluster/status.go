package cluster

import (
	"context"
	"slices"
	"time"
)

// Overview is how the cluster stands, for its operators.
type Overview struct {
	By       string // the node whose own view it is, as the system shard can't be asked; "": the leader of that
	Settings Settings
	Nodes    []NodeOverview
	Shards   []ShardOverview
}

// NodeOverview is how a node stands. Report is what it told last, if it was heard of.
type NodeOverview struct {
	Node
	Alive    bool
	Heard    bool          // since the system shard has its present leader
	Silent   time.Duration // since it was heard of, or since this leader leads
	Report   Report
	Replicas []uint32 // shards of which it holds a replica
	Leads    []uint32 // shards that it leads
	// Starts are those of its program lately. Proof is how long it must run until leadership is brought to it again, as it starts again and
	// again; 0: it need not prove anything.
	Starts int
	Proof  time.Duration
}

// ShardOverview is how a shard stands.
type ShardOverview struct {
	Shard
	Known    bool // its leader was asked a moment ago, and answered
	Leader   uint64
	Term     uint64
	Applied  uint64
	Members  []ReplicaOverview
	Under    bool   // it has fewer voters that answer than the cluster's settings ask for, and than there are nodes for
	Problem  string // what is amiss, or waited for
	LastStep string // what the last look did about it
}

// ReplicaOverview is how a member of a shard stands.
type ReplicaOverview struct {
	ID           uint64
	Node         uint32
	Voter        bool
	Answers      bool
	Leaving      bool
	Snapshotting bool
	Lag          uint64 // entries that the leader has applied and it lacks
}

// Overview tells how the cluster stands. Nodes that were removed are left out.
func (c *Control) Overview(ctx context.Context) (Overview, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return Overview{}, err
	}
	c.lookNow(ctx)
	o := Overview{Settings: m.Settings}
	for _, s := range m.Shards {
		o.Shards = append(o.Shards, c.shardOverview(m, s))
	}
	for _, n := range m.Nodes {
		if n.State == Removed {
			continue
		}
		v := c.nodeOverview(n)
		v.Replicas = m.holding(n.Number)
		o.Nodes = append(o.Nodes, v)
	}
	o.lead()
	return o, nil
}

// AwayNodes names the nodes that have not been heard of for a while.
func (c *Control) AwayNodes(ctx context.Context) (names []string, err error) {
	m, err := c.Map(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range m.Members() {
		if c.silent(n.Number) >= aliveFor {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

func (c *Control) nodeOverview(n Node) NodeOverview {
	if c.isOwn(n.Number) {
		return NodeOverview{Node: n, Alive: true, Heard: true, Report: c.cfg.Own()}
	}
	silent := c.silent(n.Number)
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.heard[n.Number]
	now := time.Now()
	return NodeOverview{Node: n, Alive: ok && silent < aliveFor, Heard: ok, Silent: silent, Report: h.Report, Starts: c.startsOf(n.Number, now), Proof: c.proofOf(n.Number, now)}
}

func (c *Control) shardOverview(m *Map, s Shard) ShardOverview {
	status, fresh := c.statusOf(s.ID)
	c.mu.Lock()
	seen, known := c.seen[s.ID]
	c.mu.Unlock()
	v := ShardOverview{Shard: s, Known: fresh && status.Leader != 0, Problem: seen.problem, LastStep: seen.step}
	if !known {
		v.Problem = "it was not looked at yet"
	}
	if !v.Known {
		v.Under = true
		return v
	}
	v.Leader, v.Term, v.Applied = status.Leader, status.Term, status.Applied
	for _, id := range slices.Concat(status.Voters, status.Learners) {
		p := status.Progress[id]
		r := ReplicaOverview{ID: id, Node: NodeOf(id), Voter: status.votes(id), Answers: status.answers(id), Leaving: s.leaves(id),
			Snapshotting: p.Snapshotting}
		if id != status.Leader && p.Match < status.Applied {
			r.Lag = status.Applied - p.Match
		}
		v.Members = append(v.Members, r)
	}
	v.Under = status.live(status.Voters) < m.wanted()
	return v
}

// wanted is how many voters each shard should have: no more than there are nodes to take them.
func (m *Map) wanted() int {
	takers := 0
	for _, n := range m.Nodes {
		if n.State == Active {
			takers++
		}
	}
	return min(m.Settings.Replication, takers)
}
