package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// Health says in words whether the node is alive: "alive", "no answer" or "no report".
func (n Node) Health() string {
	switch {
	case n.Alive:
		return "alive"
	case n.Answers:
		return "no report"
	}
	return "no answer"
}

// Status returns the status of the cluster, its nodes and shards.
func (a Cluster) Status(ctx context.Context) (*ClusterStatus, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).GetCluster, &pawlv1.GetClusterRequest{})
	return answer(clusterStatusOf, resp, err, "cluster")
}

// Map returns the cluster map of the node that answers, which may be out of date.
func (a Cluster) Map(ctx context.Context) (*ClusterMap, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).GetMap, &pawlv1.GetMapRequest{})
	return answer(clusterMapOf, resp, err, "map of the cluster")
}

// DrainNode starts to move replicas and leaders off a node, as far as other nodes can take them. This takes time: Status shows what the
// node still holds.
func (a Cluster) DrainNode(ctx context.Context, node string) error {
	_, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).DrainNode,
		&pawlv1.DrainNodeRequest{Node: node})
	return wrap(err, "drain node %q", node)
}

// UndrainNode lets a node take replicas again.
func (a Cluster) UndrainNode(ctx context.Context, node string) error {
	_, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).DrainNode, &pawlv1.DrainNodeRequest{Node: node,
		Undo: true})
	return wrap(err, "undrain node %q", node)
}

// RemoveNode removes a node for good: to come back, it has to join again with an empty directory. While the node holds replicas, the call
// returns ErrWrongState; with force, they are removed too, if every shard can go on without them. The call is never retried automatically,
// because another node may have joined under the name in the meantime.
func (a Cluster) RemoveNode(ctx context.Context, node string, force bool) error {
	_, err := operate(ctx, a.calls, false, pawlv1.NewClusterServiceClient(a.rpc).RemoveNode, &pawlv1.RemoveNodeRequest{Node: node,
		Force: force})
	return wrap(err, "remove node %q", node)
}

// MoveReplica moves a replica of a shard: it adds one on the node named to, and removes the one on the node named from once the new one can
// vote.
func (a Cluster) MoveReplica(ctx context.Context, shard uint32, from, to string) error {
	req := &pawlv1.MoveReplicaRequest{Shard: shard, From: from, To: to}
	_, err := operate(ctx, a.calls, false, pawlv1.NewClusterServiceClient(a.rpc).MoveReplica, req)
	return wrap(err, "move shard %d from %q to %q", shard, from, to)
}

// TransferLeader sets the node that should lead a shard; "": any.
func (a Cluster) TransferLeader(ctx context.Context, shard uint32, to string) error {
	req := &pawlv1.TransferLeaderRequest{Shard: shard, To: convert.Text(to)}
	_, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).TransferLeader, req)
	return wrap(err, "transfer leader of shard %d", shard)
}

// AddShards raises the number of data shards to total, at most 64. The number can't be lowered.
func (a Cluster) AddShards(ctx context.Context, total int) error {
	_, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).AddShards,
		&pawlv1.AddShardsRequest{Total: convert.Int32(total)})
	return wrap(err, "add shards")
}

// SetReplication sets how many replicas each shard should have: 1, 3, 5 or 7.
func (a Cluster) SetReplication(ctx context.Context, n int) error {
	_, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).SetReplication, &pawlv1.SetReplicationRequest{
		Replication: convert.Int32(n)})
	return wrap(err, "set replication")
}

// SetAuditRetention sets how long audit entries are kept: 1 day to 10 years. It takes effect within a day; older
// entries are then deleted and can't be recovered.
func (a Cluster) SetAuditRetention(ctx context.Context, d time.Duration) error {
	_, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).SetAuditRetention, &pawlv1.SetAuditRetentionRequest{
		Retention: durationpb.New(d)})
	return wrap(err, "set audit retention")
}

// RaiseFeatureLevel raises the feature level to the highest that all nodes support, and returns it. There is no way back: nodes of older
// versions can no longer join.
func (a Cluster) RaiseFeatureLevel(ctx context.Context) (level int, err error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).RaiseLevel, &pawlv1.RaiseLevelRequest{})
	if err != nil {
		return 0, fmt.Errorf("raise level: %w", err)
	}
	return int(resp.GetLevel()), nil
}

// VerifyShard compares the states of a shard's replicas after the same log entry, and checks the leader's state for consistency. It reads
// every row.
func (a Cluster) VerifyShard(ctx context.Context, shard uint32) (*Verification, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).VerifyShard, &pawlv1.VerifyShardRequest{Shard: shard})
	return answer(verificationOf, resp, err, "verify shard %d", shard)
}

// Ping asks whether the node that answers is ready to serve, as load balancers do. It needs no rights and is not
// retried. If the node is not ready, or does not answer, the error is ErrUnavailable.
func (a Cluster) Ping(ctx context.Context) error {
	resp, err := grpc_health_v1.NewHealthClient(a.rpc).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("ping: %w", convert.CallError(ctx, err))
	}
	if resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("ping: %w", &pawltype.Error{Code: pawltype.ErrUnavailable, Message: "the server answers, but is not ready"})
	}
	return nil
}

// Server returns a description of the node that answers.
func (a Cluster) Server(ctx context.Context) (*Server, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).GetServer, &pawlv1.GetServerRequest{})
	return answer(serverOf, resp, err, "server")
}
