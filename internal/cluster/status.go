package cluster

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

// Overview is the state of the cluster, for its operators.
type Overview struct {
	By       string // the node whose view it is, because the system shard can't be asked; "": the system shard's leader
	Settings system.Settings
	Nodes    []NodeOverview
	Shards   []ShardOverview
}

// NodeOverview is the state of a node. Report is its last report, if it was heard from.
type NodeOverview struct {
	Node
	Answers  bool          // the node that looked
	Alive    bool          // it answers, and the leader of the system shard has heard from it lately
	Reported bool          // Report is known
	Silent   time.Duration // since the leader of the system shard last heard from it, or since it leads
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
	DiffersAt    uint64 // log entry at which its state was found to differ from those of others; 0: it was not
	Apart        bool   // most others agree
}

// Overview returns the state of the cluster, without nodes that were removed.
func (p *Placement) Overview(ctx context.Context) (Overview, error) {
	m, err := p.Map(ctx)
	if err != nil {
		return Overview{}, err
	}
	p.reconcileNow(ctx)
	o := Overview{Settings: m.Settings}
	for _, s := range m.Shards {
		o.Shards = append(o.Shards, p.observations.overview(s))
	}
	for _, n := range m.Members() {
		v := p.liveness.overview(n)
		v.Replicas = m.holding(n.Number)
		o.Nodes = append(o.Nodes, v)
	}
	o.sum()
	return o, nil
}

// AwayNodes returns the names of the nodes that have not been heard from for a while.
func (p *Placement) AwayNodes(ctx context.Context) (names []string, err error) {
	m, err := p.Map(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range m.Members() {
		if p.liveness.silent(n.Number) >= aliveFor {
			names = append(names, n.Name)
		}
	}
	return names, nil
}
