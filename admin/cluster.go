package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// ClusterStatus is how a cluster stands, as the leader of its system shard sees it.
type ClusterStatus struct {
	Settings ClusterSettings
	Nodes    []Node        // by name; without those that were removed
	Shards   []ShardStatus // by number; 0 is the system shard
	Problems []string      // what is amiss, a sentence each
	// SeenBy is the node whose own view this is, while no leader of the cluster answers; "": there is one.
	SeenBy string
}

// ClusterSettings are those of a cluster as a whole.
type ClusterSettings struct {
	Replication  int // replicas of each shard, if there are as many nodes
	FeatureLevel int // the feature level that all nodes work at
	DataShards   int // shards 1 to this
	// AuditRetention is how long entries of the audit are kept.
	AuditRetention time.Duration
}

// Node is how a node stands.
type Node struct {
	Name        string
	Number      uint32        // given once: a node that lost its disk joins again under its name with a new one
	State       string        // "active" or "draining"
	Alive       bool          // it was heard of a moment ago
	Heard       bool          // since the system shard has its present leader; if not, the rest is not known yet
	Silent      time.Duration // since it was heard of, or since this leader leads
	Version     string        // of its program
	PeerAddress string        // where other nodes reach it
	APIAddress  string        // where clients reach it
	DiskFree    int64         // bytes
	DiskTotal   int64         // bytes; 0: not known
	ClockOffset time.Duration // its wall clock less that of most others
	Replicas    []uint32      // shards of which it holds a replica
	Leads       []uint32      // shards that it leads
}

// ShardStatus is how a shard stands.
type ShardStatus struct {
	Shard   uint32
	Leader  string // node; "": it did not answer lately, and Term, Applied and what members do are not known
	Term    uint64
	Applied uint64
	Members []Replica
	// UnderReplicated: it has fewer voters that answer than the settings ask for.
	UnderReplicated bool
	Problem         string // what is amiss, or waited for
	LastStep        string // what was done about it last
	Preferred       string // node that should lead; "": whichever
}

// Replica is a replica of a shard.
type Replica struct {
	Node         string
	Voter        bool // else it learns
	Answers      bool
	Leaving      bool   // it is to be removed
	Snapshotting bool   // it is being sent a snapshot
	Lag          uint64 // entries that the leader has applied and it lacks
}

// Status tells how nodes and shards stand.
func (a Cluster) Status(ctx context.Context) (*ClusterStatus, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).GetCluster, &pawlv1.GetClusterRequest{})
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	s := resp.GetSettings()
	out := &ClusterStatus{Problems: resp.GetProblems(), SeenBy: resp.GetSeenBy(), Settings: ClusterSettings{Replication: int(s.GetReplication()), FeatureLevel: int(s.GetLevel()), DataShards: int(s.GetDataShards()), AuditRetention: s.GetAuditRetention().AsDuration()}}
	for _, p := range resp.GetNodes() {
		out.Nodes = append(out.Nodes, nodeOf(p))
	}
	for _, p := range resp.GetShards() {
		out.Shards = append(out.Shards, shardStatusOf(p))
	}
	return out, nil
}

// ClusterMap says which node leads which data shard, as far as the node that answers knows.
type ClusterMap struct {
	Version   uint64 // grows with each change of nodes, placement or settings, not with each leader
	Nodes     []MapNode
	Shards    []MapShard
	Node      string // who answers
	ClusterID string
}

// MapNode is a node and where clients reach it.
type MapNode struct{ Name, APIAddress string }

// MapShard is a data shard and the node that leads it.
type MapShard struct {
	Shard  uint32
	Leader string // "": not known
}

// Map gives the map of the node that answers, which may be behind.
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

// DrainNode has replicas and leaders moved off a node, as far as others can take them. That takes time: Cluster shows what
// the node still holds.
func (a Cluster) DrainNode(ctx context.Context, node string) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).DrainNode, &pawlv1.DrainNodeRequest{Node: node}); err != nil {
		return fmt.Errorf("drain node %q: %w", node, err)
	}
	return nil
}

// UndrainNode lets a node take replicas again.
func (a Cluster) UndrainNode(ctx context.Context, node string) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).DrainNode, &pawlv1.DrainNodeRequest{Node: node, Undo: true}); err != nil {
		return fmt.Errorf("undrain node %q: %w", node, err)
	}
	return nil
}

// RemoveNode takes a node out for ever: to come back it has to join anew, with an empty directory. While it holds replicas
// that is ErrWrongState, unless by force: then they leave, if every shard can go on without them. It is never repeated by
// itself: another node may have joined under the name meanwhile.
func (a Cluster) RemoveNode(ctx context.Context, node string, force bool) error {
	if _, err := operate(ctx, a.calls, false, pawlv1.NewClusterServiceClient(a.rpc).RemoveNode, &pawlv1.RemoveNodeRequest{Node: node, Force: force}); err != nil {
		return fmt.Errorf("remove node %q: %w", node, err)
	}
	return nil
}

// MoveReplica gives the node to a replica of a shard, and takes that of the node from when the new one can vote.
func (a Cluster) MoveReplica(ctx context.Context, shard uint32, from, to string) error {
	req := &pawlv1.MoveReplicaRequest{Shard: shard, From: from, To: to}
	if _, err := operate(ctx, a.calls, false, pawlv1.NewClusterServiceClient(a.rpc).MoveReplica, req); err != nil {
		return fmt.Errorf("move shard %d from %q to %q: %w", shard, from, to, err)
	}
	return nil
}

// TransferLeader names the node that should lead a shard; "": whichever.
func (a Cluster) TransferLeader(ctx context.Context, shard uint32, to string) error {
	req := &pawlv1.TransferLeaderRequest{Shard: shard, To: to}
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).TransferLeader, req); err != nil {
		return fmt.Errorf("transfer leader of shard %d: %w", shard, err)
	}
	return nil
}

// AddShards makes the data shards total many, 64 at most; their number only grows.
func (a Cluster) AddShards(ctx context.Context, total int) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).AddShards, &pawlv1.AddShardsRequest{Total: convert.Int32(total)}); err != nil {
		return fmt.Errorf("add shards: %w", err)
	}
	return nil
}

// SetReplication sets how many replicas each shard is to have: 1, 3, 5 or 7.
func (a Cluster) SetReplication(ctx context.Context, n int) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).SetReplication, &pawlv1.SetReplicationRequest{Replication: convert.Int32(n)}); err != nil {
		return fmt.Errorf("set replication: %w", err)
	}
	return nil
}

// SetAuditRetention sets how long entries of the audit are kept: 1 day to 10 years. It holds within a day: entries that are older then go, and
// nothing brings them back.
func (a Cluster) SetAuditRetention(ctx context.Context, d time.Duration) error {
	if _, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).SetAuditRetention, &pawlv1.SetAuditRetentionRequest{Retention: durationpb.New(d)}); err != nil {
		return fmt.Errorf("set audit retention: %w", err)
	}
	return nil
}

// RaiseFeatureLevel raises the feature level to the highest that all nodes can work at, and gives it. There is no way back: a node
// of an older version can't join any more.
func (a Cluster) RaiseFeatureLevel(ctx context.Context) (level int, err error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).RaiseLevel, &pawlv1.RaiseLevelRequest{})
	if err != nil {
		return 0, fmt.Errorf("raise level: %w", err)
	}
	return int(resp.GetLevel()), nil
}

// Verification is how the replicas of a shard were found.
type Verification struct {
	Shard    uint32
	Index    uint64 // the entry after which they were compared
	Rows     int64
	Replicas []ReplicaHash
	Equal    bool     // all that gave a hash gave the same
	Problems []string // numbers of the leader's state that do not agree; the first of them
}

// ReplicaHash is the checksum of a replica's state: 16 hexadecimal digits, "" if it gave none in time.
type ReplicaHash struct{ Node, Hash string }

// VerifyShard compares the states of a shard's replicas after one entry, and checks the numbers of the leader's. It reads
// every row.
func (a Cluster) VerifyShard(ctx context.Context, shard uint32) (*Verification, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewClusterServiceClient(a.rpc).VerifyShard, &pawlv1.VerifyShardRequest{Shard: shard})
	if err != nil {
		return nil, fmt.Errorf("verify shard %d: %w", shard, err)
	}
	out := &Verification{Shard: resp.GetShard(), Index: resp.GetIndex(), Rows: resp.GetRows(), Equal: resp.GetEqual(), Problems: resp.GetProblems()}
	for _, p := range resp.GetReplicas() {
		out.Replicas = append(out.Replicas, ReplicaHash{Node: p.GetNode(), Hash: p.GetHash()})
	}
	return out, nil
}

func nodeOf(p *pawlv1.ClusterNode) Node {
	return Node{
		Name: p.GetName(), Number: p.GetNumber(), State: p.GetState(), Alive: p.GetAlive(), Heard: p.GetHeard(), Silent: convert.Seconds(p.GetSilentSeconds()),
		Version: p.GetVersion(), PeerAddress: p.GetPeerAddress(), APIAddress: p.GetApiAddress(),
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
			Node: m.GetNode(), Voter: m.GetVoter(), Answers: m.GetAnswers(), Leaving: m.GetLeaving(), Snapshotting: m.GetSnapshotting(), Lag: m.GetLag(),
		})
	}
	return out
}

// Server is who answers.
type Server struct {
	Version   string
	ClusterID string
	Node      string
	Now       time.Time // by the clock of its system shard
	Shards    []ServerShard
}

// ServerShard is one shard as the server sees it.
type ServerShard struct {
	Shard  uint32
	Leader string // node; "" if there is none
	Index  uint64 // applied
	Term   uint64
}

// Server tells who answers.
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
