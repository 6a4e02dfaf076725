package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// Config is what a gateway is made of.
type Config struct {
	Broker  *broker.Broker
	Cluster *cluster.Cluster
	Limits  task.Limits  // zero fields: task.DefaultLimits
	Logger  *slog.Logger // nil: none
	// Pages answers what is not the API's: the web UI, metrics. Nil: not found.
	Pages http.Handler

	Version   string // of the program
	ClusterID string
	Node      string // name of this node
	// NodeName names a node by its number; nil: "n" and the number.
	NodeName func(node uint64) string

	MaxConns int // connections at once; default 20,000
}

// Gateway serves one node's API. Its methods may be called from any goroutine.
type Gateway struct {
	cfg     Config
	log     *slog.Logger
	broker  Broker
	cluster Cluster
	limits  task.Limits
	shares  shareBook

	grpc   *grpc.Server
	health *health.Server
	rest   http.Handler
	http   *http.Server
	door   *door

	work     sync.WaitGroup // releases of claims that nobody received
	stopping context.Context
	stop     context.CancelFunc
}

// Broker is what the gateway needs of package broker, which says what each method does.
type Broker interface {
	Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error)
	Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error)
	Await(ctx context.Context, shard uint32, c broker.ClaimCall) error
	Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error)
	WatchClaims(buffer int) ClaimWatch

	Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error)
	Tasks(ctx context.Context, shard uint32, ns string, f broker.Filter, cursor []byte, limit int) (broker.Page, broker.Stamp, error)
	Cancel(ctx context.Context, ns string, id task.ID) (*broker.View, broker.Stamp, error)
	Retry(ctx context.Context, ns string, id task.ID) (*broker.View, broker.Stamp, error)
	RunNow(ctx context.Context, ns string, id task.ID) (*broker.View, broker.Stamp, error)
	Discard(ctx context.Context, ns string, id task.ID) (*broker.View, broker.Stamp, error)
	Update(ctx context.Context, ns string, id task.ID, e broker.Edit) (*broker.View, broker.Stamp, error)

	Queue(ctx context.Context, shard uint32, ns, name string) (broker.QueueInfo, broker.Stamp, error)
	Purge(ctx context.Context, shard uint32, ns, name string) (int64, broker.Stamp, error)
	DeadGroups(ctx context.Context, shard uint32, ns, queue string, s task.State) ([]broker.Group, bool, broker.Stamp, error)
	Replay(ctx context.Context, shard uint32, ns string, s broker.Selection) (matched, done int64, at broker.Stamp, err error)
	DiscardDead(ctx context.Context, shard uint32, ns string, s broker.Selection) (matched, done int64, at broker.Stamp, err error)
	Archived(ns, queue, cursor string, limit int) (tasks []broker.ArchivedTask, places []string, next string, err error)
	ArchivedAt(place string) (*broker.ArchivedTask, error)

	Leader(shard uint32) (node, term, index uint64)
	Draining() <-chan struct{}
}

// ClaimWatch tells the holder of claims when one of them ends without its doing.
type ClaimWatch interface {
	Add(id task.ID, t task.Token)
	Remove(id task.ID, t task.Token)
	Lost() <-chan broker.Lost
	Close()
}

// Cluster is what the gateway needs of package cluster.
type Cluster interface {
	Place(ctx context.Context, ns, queue string) (uint32, error)
	Shards() []uint32
	Queue(ns, name string) (cluster.Queue, bool)
	Queues(ns, after string, limit int) []cluster.Queue
	PutQueue(ctx context.Context, ns, name string, change func(*task.QueueConfig) error) (cluster.Queue, error)
	DropQueue(ctx context.Context, ns, name string) error
}

// local is the node's broker as a Broker.
type local struct{ *broker.Broker }

func (l local) WatchClaims(buffer int) ClaimWatch { return l.Broker.WatchClaims(buffer) }

// New makes a gateway that serves nothing yet.
func New(cfg Config) *Gateway { return build(cfg, local{cfg.Broker}, cfg.Cluster) }

func build(cfg Config, b Broker, c Cluster) *Gateway {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = defaultMaxConns
	}
	g := &Gateway{cfg: cfg, log: cfg.Logger, broker: b, cluster: c, limits: withDefaults(cfg.Limits)}
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.grpc = g.newGRPC()
	g.rest = g.newREST()
	g.http = g.newHTTP()
	g.door = newDoor(cfg.MaxConns)
	return g
}

func withDefaults(l task.Limits) task.Limits {
	d := task.DefaultLimits()
	if l.Payload == 0 {
		l.Payload = d.Payload
	}
	if l.Name == 0 {
		l.Name = d.Name
	}
	if l.Batch == 0 {
		l.Batch = d.Batch
	}
	return l
}

// Handler is REST alone, with what Config.Pages answers beside it.
func (g *Gateway) Handler() http.Handler { return g.rest }
