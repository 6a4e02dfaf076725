package forward

import (
	"context"
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/system/queues"
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

// Broker is this node's broker, as far as it knows who leads the data shards.
type Broker interface {
	// Leader returns the leader of a data shard, as far as its replica here knows; 0: unknown, or there is none.
	Leader(shard uint32) (node, term, index uint64)
	// Draining returns a channel that is closed when this node is about to stop.
	Draining() <-chan struct{}
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
	Node    uint32      // this one
	Parts   *verb.Parts // run the verbs of this node; New adds the forwarder
	Broker  Broker
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
	Life        Lifetime // a field, so that a router that embeds the forwarder does not have its methods
	cfg         Config
	log         *slog.Logger
	remoteCalls remoteCalls
}

// New returns a forwarder. Close ends it.
func New(cfg Config) *Forwarder {
	f := &Forwarder{cfg: cfg, log: cfg.Logger}
	f.Life.begin(cfg.Broker.Draining)
	f.Leaders = Leaders{node: cfg.Node, broker: cfg.Broker, system: cfg.SystemLeader}
	f.remoteCalls = remoteCalls{life: &f.Life, leaders: &f.Leaders, ask: f.leaderByOthers}
	Verbs.Serve(f, cfg.Parts)
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
