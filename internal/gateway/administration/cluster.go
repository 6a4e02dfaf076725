package administration

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// shardLeaders says which node leads a shard.
type shardLeaders interface {
	// Leader may briefly ask other nodes; 0: the leader is unknown.
	Leader(ctx context.Context, shard uint32) (node, term, index uint64)
}

// ClusterService implements ClusterService.
type ClusterService struct {
	pawlv1.UnimplementedClusterServiceServer
	Nodes     Admin // nil: the calls are refused
	Broker    shardLeaders
	Verbs     verb.Runner
	Leaders   callinfo.Leaders
	Log       *slog.Logger
	Node      string
	ClusterID string
}

// errNoAdmin is the answer of a gateway without Config.Admin.
var errNoAdmin = &task.Error{Code: task.CodeWrongState, Message: "this server does not offer the calls for a cluster"}

// admin returns Config.Admin, or an error if there is none.
func (g *ClusterService) admin() (Admin, error) {
	if g.Nodes == nil {
		return nil, errNoAdmin
	}
	return g.Nodes, nil
}

// GetCluster returns the state of nodes and shards.
func (g *ClusterService) GetCluster(ctx context.Context, _ *pawlv1.GetClusterRequest) (*pawlv1.GetClusterResponse, error) {
	operator, err := g.admin()
	if err != nil {
		return nil, err
	}
	o, err := operator.Overview(ctx)
	if err != nil {
		return nil, err
	}
	return g.overviewProto(o), nil
}

// GetMap returns which node leads which data shard.
func (g *ClusterService) GetMap(ctx context.Context, _ *pawlv1.GetMapRequest) (*pawlv1.GetMapResponse, error) {
	operator, err := g.admin()
	if err != nil {
		return nil, err
	}
	m := operator.Map(ctx)
	if m == nil || len(m.Nodes) == 0 {
		return nil, task.Unavailable(time.Second, "this node has not heard from the other nodes yet")
	}
	out := &pawlv1.GetMapResponse{Version: m.Version, Node: g.Node, ClusterId: g.ClusterID}
	for _, n := range m.Nodes {
		if n.State != cluster.Removed {
			out.Nodes = append(out.Nodes, &pawlv1.MapNode{Name: n.Name, ApiAddress: n.APIAddress})
		}
	}
	for _, s := range m.Shards {
		if s.ID != 0 { // the system shard has no tasks
			out.Shards = append(out.Shards, &pawlv1.MapShard{Shard: s.ID})
		}
	}
	errs := parallel.Each(len(out.Shards), func(i int) error {
		node, _, _ := g.Broker.Leader(ctx, out.Shards[i].GetShard())
		out.Shards[i].Leader = g.Leaders.NodeName(node)
		return nil
	})
	return out, parallel.FirstError(errs)
}

// change runs a change of the cluster. It logs what was requested, and what was refused.
func (g *ClusterService) change(ctx context.Context, what string, args []any, do func(by task.Author) error) error {
	if _, err := g.admin(); err != nil {
		return err
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return err
	}
	args = append(args, "by", by)
	if err := do(by); err != nil {
		g.Log.Info(what+" refused", append(args, "error", err)...)
		return err
	}
	g.Log.Info(what, args...)
	return nil
}

// checkNode rejects an invalid name of a node. It is sent to another node, so it must not be long.
func checkNode(field, name string) error {
	if name == "" {
		return task.Invalid(field, "is required: the name of a node")
	}
	e, bad := task.AsError(cluster.CheckName(name))
	if !bad {
		return nil
	}
	return task.Invalid(field, "%s", strings.TrimPrefix(e.Message, e.Field+": "))
}

// DrainNode moves replicas and leaders off a node, or undoes that.
func (g *ClusterService) DrainNode(ctx context.Context, r *pawlv1.DrainNodeRequest) (*pawlv1.DrainNodeResponse, error) {
	if err := checkNode("node", r.GetNode()); err != nil {
		return nil, err
	}
	err := g.change(ctx, "node drain", []any{"node", r.GetNode(), "undo", r.GetUndo()}, func(by task.Author) error {
		_, err := cluster.DrainNode.Call(ctx, g.Verbs, cluster.NodeDrain{Node: r.GetNode(), Undo: r.GetUndo(), By: by})
		return err
	})
	return &pawlv1.DrainNodeResponse{}, err
}

// RemoveNode removes a node for good.
func (g *ClusterService) RemoveNode(ctx context.Context, r *pawlv1.RemoveNodeRequest) (*pawlv1.RemoveNodeResponse, error) {
	if err := checkNode("node", r.GetNode()); err != nil {
		return nil, err
	}
	err := g.change(ctx, "node removal", []any{"node", r.GetNode(), "force", r.GetForce()}, func(by task.Author) error {
		_, err := cluster.RemoveNode.Call(ctx, g.Verbs, cluster.NodeRemoval{Node: r.GetNode(), Force: r.GetForce(), By: by})
		return err
	})
	return &pawlv1.RemoveNodeResponse{}, err
}

// MoveReplica moves a shard's replica from one node to another.
func (g *ClusterService) MoveReplica(ctx context.Context, r *pawlv1.MoveReplicaRequest) (*pawlv1.MoveReplicaResponse, error) {
	if err := checkNode("from", r.GetFrom()); err != nil {
		return nil, err
	}
	if err := checkNode("to", r.GetTo()); err != nil {
		return nil, err
	}
	err := g.change(ctx, "replica move", []any{"shard", r.GetShard(), "from", r.GetFrom(), "to", r.GetTo()}, func(by task.Author) error {
		_, err := cluster.MoveReplica.Call(ctx, g.Verbs, cluster.ReplicaMove{Shard: r.GetShard(), From: r.GetFrom(), To: r.GetTo(), By: by})
		return err
	})
	return &pawlv1.MoveReplicaResponse{}, err
}

// TransferLeader sets the node that should lead a shard.
func (g *ClusterService) TransferLeader(ctx context.Context, r *pawlv1.TransferLeaderRequest) (*pawlv1.TransferLeaderResponse, error) {
	if r.GetTo() != "" {
		if err := checkNode("to", r.GetTo()); err != nil {
			return nil, err
		}
	}
	err := g.change(ctx, "leader transfer", []any{"shard", r.GetShard(), "to", r.GetTo()}, func(by task.Author) error {
		_, err := cluster.MoveLeader.Call(ctx, g.Verbs, cluster.LeaderTransfer{Shard: r.GetShard(), To: r.GetTo(), By: by})
		return err
	})
	return &pawlv1.TransferLeaderResponse{}, err
}

// AddShards raises the number of data shards.
func (g *ClusterService) AddShards(ctx context.Context, r *pawlv1.AddShardsRequest) (*pawlv1.AddShardsResponse, error) {
	if n := r.GetTotal(); n < 1 || n > cluster.MaxDataShards {
		return nil, task.Invalid("total", "%d is not between 1 and %d", n, cluster.MaxDataShards)
	}
	err := g.change(ctx, "data shards", []any{"total", r.GetTotal()}, func(by task.Author) error {
		_, err := cluster.AddShards.Call(ctx, g.Verbs, cluster.CountCall{N: int(r.GetTotal()), By: by})
		return err
	})
	return &pawlv1.AddShardsResponse{}, err
}

// SetReplication sets how many replicas each shard should have.
func (g *ClusterService) SetReplication(ctx context.Context, r *pawlv1.SetReplicationRequest) (*pawlv1.SetReplicationResponse, error) {
	n := int(r.GetReplication())
	if !slices.Contains(contract.Replications, n) {
		return nil, task.Invalid("replication", "%d is not 1, 3, 5 or 7", n)
	}
	err := g.change(ctx, "replication", []any{"replication", n}, func(by task.Author) error {
		_, err := cluster.SetReplication.Call(ctx, g.Verbs, cluster.CountCall{N: n, By: by})
		return err
	})
	return &pawlv1.SetReplicationResponse{}, err
}

// SetAuditRetention sets how long entries of the audit log are kept.
func (g *ClusterService) SetAuditRetention(ctx context.Context, r *pawlv1.SetAuditRetentionRequest) (*pawlv1.SetAuditRetentionResponse,
	error) {
	d, err := apiproto.SpanOf("retention", r.GetRetention())
	if err == nil && r.GetRetention() == nil {
		err = task.Invalid("retention", "is required")
	}
	if err == nil {
		err = cluster.CheckAuditRetention("retention", d)
	}
	if err != nil {
		return nil, err
	}
	err = g.change(ctx, "audit retention", []any{"retention", d}, func(by task.Author) error {
		_, err := cluster.SetAuditRetention.Call(ctx, g.Verbs, cluster.PeriodCall{D: d, By: by})
		return err
	})
	return &pawlv1.SetAuditRetentionResponse{}, err
}

// RaiseLevel raises the feature level to the highest that all nodes support.
func (g *ClusterService) RaiseLevel(ctx context.Context, _ *pawlv1.RaiseLevelRequest) (*pawlv1.RaiseLevelResponse, error) {
	var level int
	err := g.change(ctx, "feature level raise", nil, func(by task.Author) (err error) {
		level, err = cluster.RaiseLevel.Call(ctx, g.Verbs, cluster.AuthorCall{By: by})
		return err
	})
	if err != nil {
		return nil, err
	}
	g.Log.Info("feature level", "level", level)
	return &pawlv1.RaiseLevelResponse{Level: apiproto.Int32Of(level)}, nil
}

// VerifyShard compares the states of a shard's replicas.
func (g *ClusterService) VerifyShard(ctx context.Context, r *pawlv1.VerifyShardRequest) (*pawlv1.VerifyShardResponse, error) {
	operator, err := g.admin()
	if err != nil {
		return nil, err
	}
	v, err := operator.Verify(ctx, r.GetShard())
	if err != nil {
		return nil, err
	}
	if !v.Equal || len(v.Problems) > 0 {
		g.Log.Error("a shard failed its check", "shard", v.Shard, "index", v.Index, "replicas", v.Replicas, "equal", v.Equal,
			"problems", v.Problems)
	}
	return verificationProto(v), nil
}
