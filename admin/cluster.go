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

// ClusterStatus is the status of a cluster, as the leader of its system shard knows it. Which nodes answer is what the
// node that was asked has seen.
type ClusterStatus struct {
	Settings ClusterSettings
	Nodes    []Node        // by name, without removed ones
	Shards   []ShardStatus // by number; 0 is the system shard
	Problems []string      // a sentence each
	// SeenBy is set while no leader of the system shard answers: the status is then the view of this node alone.
	SeenBy string
	Node   string // that answers: it has just asked the others, and its view of them is this
}

// ClusterSettings holds the settings of a cluster as a whole.
type ClusterSettings struct {
	Replication  int // replicas of each shard, if there are as many nodes
	FeatureLevel int // the feature level at which all nodes work
	DataShards   int // shards 1 to this
	// AuditRetention is how long audit entries are kept.
	AuditRetention time.Duration
}

// Node is the status of a node.
type Node struct {
	Name        string
	Number      uint32        // never reused: a node that rejoins under its name after losing its disk gets a new number
	State       string        // "active" or "draining"
	Answers     bool          // the node that was asked for the status has just got an answer from it
	Alive       bool          // it answers, and has reported to the leader of the system shard in the last 10 s; it should every 2 s
	Reported    bool          // what it reports about itself is known
	Silent      time.Duration // since that leader last heard from it, or since that leader was elected
	Version     string        // of its binary
	PeerAddress string        // where other nodes reach it
	APIAddress  string        // where clients reach it
	DiskFree    int64         // bytes
	DiskTotal   int64         // bytes; 0: not known
	ClockOffset time.Duration // its wall clock minus that of most others
	Replicas    []uint32      // shards of which it holds a replica
	Leads       []uint32      // shards that it leads
}

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

// ShardStatus is the status of a shard.
type ShardStatus struct {
	Shard   uint32
	Leader  string // node; "": none answers, so Term, Applied and the lag of Members are unknown
	Term    uint64
	Applied uint64
	Members []Replica
	// UnderReplicated reports that fewer voters answer than the settings ask for.
	UnderReplicated bool
	Problem         string // what is wrong, or being waited for
	LastStep        string // the last step taken to repair it
	Preferred       string // node that should lead; "": any
}

// Replica is a replica of a shard.
type Replica struct {
	Node         string
	Voter        bool // false: a learner
	Answers      bool
	Leaving      bool   // it will be removed
	Snapshotting bool   // it is being sent a snapshot
	Lag          uint64 // entries that the leader has applied and this replica lacks
}

// Status returns the status of the cluster, its nodes and shards.
func (a Cluster) Status(ctx context.Context) (*ClusterStatus, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).GetCluster, &pawlv1.GetClusterRequest{})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	s := resp.GetSettings()
	out := &ClusterStatus{Problems: resp.GetProblems(), SeenBy: resp.GetSeenBy(), Node: resp.GetNode(), Settings: ClusterSettings{
		Replication: int(s.GetReplication()), FeatureLevel: int(s.GetLevel()), DataShards: int(s.GetDataShards()),
		AuditRetention: s.GetAuditRetention().AsDuration()}}
	for _, p := range resp.GetNodes() {
		out.Nodes = append(out.Nodes, nodeOf(p))
	}
	for _, p := range resp.GetShards() {
		out.Shards = append(out.Shards, shardStatusOf(p))
	}
	return out, nil
}

// ClusterMap says which node leads which data shard, as known to the node that answers.
type ClusterMap struct {
	Version   uint64 // grows with every change of nodes, placement or settings, but not of leaders
	Nodes     []MapNode
	Shards    []MapShard
	Node      string // the node that answers
	ClusterID string
}

// MapNode is a node and where clients reach it.
type MapNode struct{ Name, APIAddress string }

// MapShard is a data shard and the node that leads it.
type MapShard struct {
	Shard  uint32
	Leader string // "": unknown
}

// Map returns the cluster map of the node that answers, which may be out of date.
func (a Cluster) Map(ctx context.Context) (*ClusterMap, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).GetMap, &pawlv1.GetMapRequest{})
	if err != nil {
		return nil, fmt.Errorf("map of the cluster: %w", err)
	}
	out := &ClusterMap{Version: resp.GetVersion(), Node: resp.GetNode(), ClusterID: resp.GetClusterId()}
	for _, p := range resp.GetNodes() {
		out.Nodes = append(out.Nodes, MapNode{Name: p.GetName(), APIAddress: p.GetApiAddress()})
	}
	for _, p := range resp.GetShards() {
		out.Shards = append(out.Shards, MapShard{Shard: p.GetShard(), Leader: p.GetLeader()})
	}
	return out, nil
}

// DrainNode starts to move replicas and leaders off a node, as far as other nodes can take them. This takes time: Status shows what the
// node still holds.
func (a Cluster) DrainNode(ctx context.Context, node string) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).DrainNode,
		&pawlv1.DrainNodeRequest{Node: node}); err != nil {
		return fmt.Errorf("drain node %q: %w", node, err)
	}
	return nil
}

// UndrainNode lets a node take replicas again.
func (a Cluster) UndrainNode(ctx context.Context, node string) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).DrainNode, &pawlv1.DrainNodeRequest{Node: node,
		Undo: true}); err != nil {
		return fmt.Errorf("undrain node %q: %w", node, err)
	}
	return nil
}

// RemoveNode removes a node for good: to come back, it has to join again with an empty directory. While the node holds replicas, the call
// returns ErrWrongState; with force, they are removed too, if every shard can go on without them. The call is never retried automatically,
// because another node may have joined under the name in the meantime.
func (a Cluster) RemoveNode(ctx context.Context, node string, force bool) error {
	if _, err := operate(ctx, a.calls, false, pawlv1.NewClusterServiceClient(a.rpc).RemoveNode, &pawlv1.RemoveNodeRequest{Node: node,
		Force: force}); err != nil {
		return fmt.Errorf("remove node %q: %w", node, err)
	}
	return nil
}

// MoveReplica moves a replica of a shard: it adds one on the node named to, and removes the one on the node named from once the new one can
// vote.
func (a Cluster) MoveReplica(ctx context.Context, shard uint32, from, to string) error {
	req := &pawlv1.MoveReplicaRequest{Shard: shard, From: from, To: to}
	if _, err := operate(ctx, a.calls, false, pawlv1.NewClusterServiceClient(a.rpc).MoveReplica, req); err != nil {
		return fmt.Errorf("move shard %d from %q to %q: %w", shard, from, to, err)
	}
	return nil
}

// TransferLeader sets the node that should lead a shard; "": any.
func (a Cluster) TransferLeader(ctx context.Context, shard uint32, to string) error {
	req := &pawlv1.TransferLeaderRequest{Shard: shard, To: convert.Text(to)}
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).TransferLeader, req); err != nil {
		return fmt.Errorf("transfer leader of shard %d: %w", shard, err)
	}
	return nil
}

// AddShards raises the number of data shards to total, at most 64. The number can't be lowered.
func (a Cluster) AddShards(ctx context.Context, total int) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).AddShards,
		&pawlv1.AddShardsRequest{Total: convert.Int32(total)}); err != nil {
		return fmt.Errorf("add shards: %w", err)
	}
	return nil
}

// SetReplication sets how many replicas each shard should have: 1, 3, 5 or 7.
func (a Cluster) SetReplication(ctx context.Context, n int) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).SetReplication, &pawlv1.SetReplicationRequest{
		Replication: convert.Int32(n)}); err != nil {
		return fmt.Errorf("set replication: %w", err)
	}
	return nil
}

// SetAuditRetention sets how long audit entries are kept: 1 day to 10 years. It takes effect within a day; older
// entries are then deleted and can't be recovered.
func (a Cluster) SetAuditRetention(ctx context.Context, d time.Duration) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).SetAuditRetention, &pawlv1.SetAuditRetentionRequest{
		Retention: durationpb.New(d)}); err != nil {
		return fmt.Errorf("set audit retention: %w", err)
	}
	return nil
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

// Verification is the result of VerifyShard.
type Verification struct {
	Shard    uint32
	Index    uint64 // the log entry after which the states were compared
	Rows     int64
	Replicas []ReplicaHash
	Equal    bool     // all replicas that returned a hash returned the same one
	Problems []string // inconsistent numbers in the leader's state; the first ones
}

// ReplicaHash is the checksum of a replica's state: 16 hexadecimal digits, "" if the replica did not answer in time.
type ReplicaHash struct{ Node, Hash string }

// VerifyShard compares the states of a shard's replicas after the same log entry, and checks the leader's state for consistency. It reads
// every row.
func (a Cluster) VerifyShard(ctx context.Context, shard uint32) (*Verification, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).VerifyShard, &pawlv1.VerifyShardRequest{Shard: shard})
	if err != nil {
		return nil, fmt.Errorf("verify shard %d: %w", shard, err)
	}
	out := &Verification{Shard: resp.GetShard(), Index: resp.GetIndex(), Rows: resp.GetRows(), Equal: resp.GetEqual(),
		Problems: resp.GetProblems()}
	for _, p := range resp.GetReplicas() {
		out.Replicas = append(out.Replicas, ReplicaHash{Node: p.GetNode(), Hash: p.GetHash()})
	}
	return out, nil
}

func nodeOf(p *pawlv1.ClusterNode) Node {
	return Node{
		Name: p.GetName(), Number: p.GetNumber(), State: p.GetState(), Answers: p.GetAnswers(), Alive: p.GetAlive(), Reported: p.GetReported(),
		Silent: convert.Seconds(p.GetSilentSeconds()), Version: p.GetVersion(), PeerAddress: p.GetPeerAddress(), APIAddress: p.GetApiAddress(),
		DiskFree: p.GetDiskFreeBytes(), DiskTotal: p.GetDiskTotalBytes(), ClockOffset: convert.Seconds(p.GetClockOffsetSeconds()),
		Replicas: p.GetReplicas(), Leads: p.GetLeads(),
	}
}

func shardStatusOf(p *pawlv1.ClusterShard) ShardStatus {
	out := ShardStatus{
		Shard: p.GetShard(), Leader: p.GetLeader(), Term: p.GetTerm(), Applied: p.GetApplied(), UnderReplicated: p.GetUnderReplicated(),
		Problem: p.GetProblem(), LastStep: p.GetLastStep(), Preferred: p.GetPreferred(),
	}
	for _, m := range p.GetMembers() {
		out.Members = append(out.Members, Replica{
			Node: m.GetNode(), Voter: m.GetVoter(), Answers: m.GetAnswers(), Leaving: m.GetLeaving(), Snapshotting: m.GetSnapshotting(),
			Lag: m.GetLag(),
		})
	}
	return out
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

// Server describes the node that answers.
type Server struct {
	Version   string
	ClusterID string
	Node      string
	Now       time.Time // by the system shard's clock
	Shards    []ServerShard
}

// ServerShard is a shard as that node sees it.
type ServerShard struct {
	Shard  uint32
	Leader string // node; "" if there is none
	Index  uint64 // last applied
	Term   uint64
}

// Server returns a description of the node that answers.
func (a Cluster) Server(ctx context.Context) (*Server, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).GetServer, &pawlv1.GetServerRequest{})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	out := &Server{Version: resp.GetVersion(), ClusterID: resp.GetClusterId(), Node: resp.GetNode(), Now: convert.Time(resp.GetNow())}
	for _, p := range resp.GetShards() {
		out.Shards = append(out.Shards, ServerShard{Shard: p.GetShard(), Leader: p.GetLeader(), Index: p.GetIndex(), Term: p.GetTerm()})
	}
	return out, nil
}
