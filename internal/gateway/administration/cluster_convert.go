package administration

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/task"
)

// nodeNames returns the name of a node by its number; 0: none, which has no name.
type nodeNames func(number uint32) string

// namesOf names nodes as in the overview, and also removed nodes, which may still have replicas.
func (g *ClusterService) namesOf(o cluster.Overview) nodeNames {
	names := make(map[uint32]string, len(o.Nodes))
	for _, n := range o.Nodes {
		names[n.Number] = n.Name
	}
	return func(number uint32) string {
		if name, ok := names[number]; ok {
			return name
		}
		return g.Leaders.NodeName(uint64(number))
	}
}

func (g *ClusterService) overviewProto(o cluster.Overview) *pawlv1.GetClusterResponse {
	names := g.namesOf(o)
	out := &pawlv1.GetClusterResponse{SeenBy: o.By, Node: g.Node, Settings: &pawlv1.ClusterSettings{
		Replication: apiproto.Int32Of(o.Settings.Replication),
		Level:       apiproto.Int32Of(o.Settings.Level), DataShards: apiproto.Int32Of(o.Settings.DataShards),
		AuditRetention: durationpb.New(o.Settings.AuditKeep())}}
	for _, n := range o.Nodes {
		out.Nodes = append(out.Nodes, nodeProto(n))
	}
	slices.SortFunc(out.Nodes, func(a, b *pawlv1.ClusterNode) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, s := range o.Shards {
		out.Shards = append(out.Shards, names.shard(s))
	}
	for _, p := range o.Problems() {
		out.Problems = append(out.Problems, p.Text)
	}
	return out
}

func nodeProto(n cluster.NodeOverview) *pawlv1.ClusterNode {
	p := &pawlv1.ClusterNode{Name: n.Name, Number: n.Number, State: string(n.State), Answers: n.Answers, Alive: n.Alive,
		Reported: n.Reported, SilentSeconds: n.Silent.Seconds(), Version: n.Version, PeerAddress: n.PeerAddress, ApiAddress: n.APIAddress,
		Replicas: n.Replicas, Leads: n.Leads}
	if n.Reported {
		p.DiskFreeBytes, p.DiskTotalBytes, p.ClockOffsetSeconds = n.Report.DiskFree, n.Report.DiskTotal, n.Report.ClockOffset.Seconds()
	}
	return p
}

func (name nodeNames) shard(s cluster.ShardOverview) *pawlv1.ClusterShard {
	p := &pawlv1.ClusterShard{Shard: s.ID, Term: s.Term, Applied: s.Applied, UnderReplicated: s.Under,
		Leader: name(cluster.NodeOf(s.Leader)), Preferred: name(s.Preferred),
		Problem: task.Cut(s.Problem, contract.MaxErrorText), LastStep: task.Cut(s.LastStep, contract.MaxErrorText)}
	for _, r := range s.Members {
		p.Members = append(p.Members, &pawlv1.ShardMember{Node: name(r.Node), Voter: r.Voter, Answers: r.Answers, Leaving: r.Leaving,
			Snapshotting: r.Snapshotting, Lag: r.Lag})
	}
	slices.SortStableFunc(p.Members, func(a, b *pawlv1.ShardMember) int { return strings.Compare(a.GetNode(), b.GetNode()) })
	return p
}

// maxProblems bounds the broken counters that a verification reports: one is enough.
const maxProblems = 20

func verificationProto(v Verification) *pawlv1.VerifyShardResponse {
	p := &pawlv1.VerifyShardResponse{Shard: v.Shard, Index: v.Index, Rows: v.Rows, Equal: v.Equal}
	for _, r := range v.Replicas {
		h := &pawlv1.ReplicaHash{Node: r.Node}
		if r.Known {
			h.Hash = fmt.Sprintf("%016x", r.Hash)
		}
		p.Replicas = append(p.Replicas, h)
	}
	for _, text := range v.Problems[:min(len(v.Problems), maxProblems)] {
		p.Problems = append(p.Problems, task.Cut(text, contract.MaxErrorText))
	}
	return p
}
