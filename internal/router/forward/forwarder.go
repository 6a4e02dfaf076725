package forward

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/verb"
)

// SystemShard is the number of the shard that knows which shards have a queue.
const SystemShard = 0

// Peers gives access to the other nodes.
type Peers interface {
	// Call calls another node. Config.NotSent reports of an error whether the request certainly did not arrive; after any other error the
	// call may have run, or may still run.
	Call(ctx context.Context, node uint32, method string, request []byte) ([]byte, error)
}

// Broker is this node's broker. For shards that it does not lead, calls return *broker.NotLeader.
type Broker interface {
	verb.Runner
	Leader(shard uint32) (node, term, index uint64)
	Draining() <-chan struct{}
}

// Control finds shards where the system shard is led; elsewhere it returns the shard's error.
type Control interface {
	verb.Runner
	// HasShard reports whether a data shard exists.
	HasShard(ctx context.Context, id uint32) (bool, error)
	// ScheduleHome returns the shard of a schedule.
	ScheduleHome(ctx context.Context, ns, name string) (schedules.Home, error)
}

// Map is this node's copy of the system shard's tables. It may be out of date.
type Map interface {
	Replicas(shard uint32) []uint32 // the nodes with a replica; also for the system shard
	Shards() []uint32               // the data shards
	Nodes() []Node                  // those that were not removed
	// Learned adds a queue as just read.
	Learned(queues.Queue)
	// Age returns how long ago the copy was last known to be up to date.
	Age() time.Duration
}

// Node is a node of the cluster.
type Node struct {
	Number uint32
	Name   string
}

// Config configures a forwarder.
type Config struct {
	Node    uint32 // this one
	Broker  Broker
	Control Control
	Map     Map
	Peers   Peers
	NotSent func(error) bool
	// SystemLeader returns the node that leads the system shard as far as this node's replica of it knows; 0: none.
	SystemLeader func() uint32
	Logger       *slog.Logger
}

// Forwarder sends calls to the leaders of their shards. Its methods may be called from any goroutine.
type Forwarder struct {
	Leaders
	Life         Lifetime // a field, so that a router that embeds the forwarder does not have its methods
	cfg          Config
	log          *slog.Logger
	remoteCalls  remoteCalls
	methods      sync.Map // name → func() verb.Call
	hasShard     Caller[uint32, bool]
	scheduleHome Caller[ScheduleName, schedules.Home]
	whoLeads     Caller[uint32, leaderAnswer]
	knownLeader  Caller[uint32, uint32]
}

// New returns a forwarder. Close ends it.
func New(cfg Config) *Forwarder {
	f := &Forwarder{cfg: cfg, log: cfg.Logger}
	f.Life.begin(cfg.Broker.Draining)
	f.Leaders = Leaders{node: cfg.Node, broker: cfg.Broker, system: cfg.SystemLeader}
	f.remoteCalls = remoteCalls{life: &f.Life, leaders: &f.Leaders, ask: f.leaderByOthers}
	f.hasShard = RegisterSystem(f, "has-shard", true, func(ctx context.Context, id uint32) (bool, error) { return cfg.Control.HasShard(ctx, id) })
	f.scheduleHome = RegisterSystem(f, "find-schedule", true, func(ctx context.Context, of ScheduleName) (schedules.Home, error) {
		return cfg.Control.ScheduleHome(ctx, of.Namespace, of.Name)
	})
	f.whoLeads = RegisterIdempotent(f, "leader", f.answerLeader)
	f.knownLeader = RegisterIdempotent(f, "known-leader", func(_ context.Context, shard uint32) (uint32, error) { return f.Leaders.here(shard), nil })
	return f
}

// Close ends searches for leaders, and all that runs in the background. No call may begin after it.
func (f *Forwarder) Close() { f.Life.Close() }

// Node returns the number of this node.
func (f *Forwarder) Node() uint32 { return f.cfg.Node }

// Nodes returns the nodes of the cluster: this one alone, without a name, while there is no map.
func (f *Forwarder) Nodes() []Node {
	nodes := f.cfg.Map.Nodes()
	if len(nodes) == 0 {
		nodes = []Node{{Number: f.cfg.Node}}
	}
	return nodes
}

// HasMap reports whether this node knows which nodes there are.
func (f *Forwarder) HasMap() bool { return len(f.cfg.Map.Nodes()) > 0 }
