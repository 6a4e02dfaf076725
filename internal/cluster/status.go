package cluster

import (
	"context"
	"slices"
	"time"
)

// Overview is the state of the cluster, for its operators.
type Overview struct {
	By       string // the node whose view it is, because the system shard can't be asked; "": the system shard's leader
	Settings Settings
	Nodes    []NodeOverview
	Shards   []ShardOverview
}

// NodeOverview is the state of a node. Report is its last report, if it was heard from.
type NodeOverview struct {
	Node
	Alive    bool
	Heard    bool          // since the system shard got its current leader
	Silent   time.Duration // since it was last heard from, or since this leader leads
	Report   Report
	Replicas []uint32 // shards of which it holds a replica
	Leads    []uint32 // shards that it leads
	// Starts is how often its process started lately. Proof is how long it must run before it gets leadership again, because it keeps
	// restarting; 0: it need not prove anything.
	Starts int
	Proof  time.Duration
}

// ShardOverview is the state of a shard.
type ShardOverview struct {
	Shard
	Known    bool // its leader was asked a moment ago, and answered
	Leader   uint64
	Term     uint64
	Applied  uint64
	Members  []ReplicaOverview
	Under    bool   // it has fewer voters that answer than the cluster's settings ask for and its nodes allow
	Problem  string // what is wrong, or awaited
	LastStep string // what the last pass did about it
}

// ReplicaOverview is the state of a member of a shard.
type ReplicaOverview struct {
	ID           uint64
	Node         uint32
	Voter        bool
	Answers      bool
	Leaving      bool
	Snapshotting bool
	Lag          uint64 // entries that the leader has applied and the replica lacks
}

// Overview returns the state of the cluster, without nodes that were removed.
func (c *Control) Overview(ctx context.Context) (Overview, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return Overview{}, err
	}
	c.reconcileNow(ctx)
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

// AwayNodes returns the names of the nodes that have not been heard from for a while.
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
	return NodeOverview{Node: n, Alive: ok && silent < aliveFor, Heard: ok, Silent: silent, Report: h.Report, Starts: c.startsOf(n.Number, now), Proof: c.probationOf(n.Number, now)}
}

func (c *Control) shardOverview(m *Map, s Shard) ShardOverview {
	status, fresh := c.statusOf(s.ID)
	c.mu.Lock()
	seen, known := c.seen[s.ID]
	c.mu.Unlock()
	v := ShardOverview{Shard: s, Known: fresh && status.Leader != 0, Problem: seen.problem, LastStep: seen.step}
	if !known {
		v.Problem = "not checked yet"
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

// wanted returns how many voters each shard should have: no more than there are nodes to take them.
func (m *Map) wanted() int {
	takers := 0
	for _, n := range m.Nodes {
		if n.State == Active {
			takers++
		}
	}
	return min(m.Settings.Replication, takers)
}
