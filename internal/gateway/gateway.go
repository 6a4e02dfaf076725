package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Config is what a gateway is made of.
type Config struct {
	Broker     Broker
	Cluster    Cluster
	Schedules  Schedules
	Groups     Groups
	Operations Operations
	Workers    Workers
	Events     Events
	Registry   *registry.Registry // of the workers of this node; nil: one that nobody else knows of
	Stats      Stats              // nil: nobody counts, and what asks for it is refused
	Admin      Admin              // nil: the operators' calls for a cluster are refused
	Door       *auth.Door         // who may come in; nil: everybody, to everything
	Webhooks   Webhooks           // nil: calls that need it are refused
	Limits     task.Limits        // zero fields: task.DefaultLimits
	Logger     *slog.Logger       // nil: none
	// Pages answers what is not the API's: the web UI. Nil: not found.
	Pages http.Handler
	// Metrics answers /metrics. Nil: not found.
	Metrics http.Handler
	// Meter is told of calls. Nil: nobody is.
	Meter Meter

	Version   string // of the program
	ClusterID string
	Node      string // name of this node
	// NodeName names a node by its number; nil: "n" and the number.
	NodeName func(node uint64) string

	// Tracers make the spans of tasks that belong to a trace; nil: there are none.
	Tracers trace.TracerProvider

	// Ready says why the node should get no calls now; nil: it should. Without it a node is ready when each shard has a leader.
	Ready func() error

	// Certificate is what the server shows at a handshake; it may change from one to the next. Nil: all is in plaintext.
	Certificate func() *tls.Certificate
	// ClientCertificates says which certificates of clients are taken; zero: none. It goes with Certificate.
	ClientCertificates ClientCertificates

	// Hosts are names by which the server may be called while it wants no tokens.
	Hosts Hosts

	MaxConns           int // connections at once; default 20,000
	MaxConnsPerAddress int // of these from one address, which is not this machine's own; default 5,000

	// SQS opens the door for clients of Amazon SQS, on the listener of all others.
	SQS bool

	// BasePath is a prefix such as "/pawl" that paths may have, of a proxy that does not strip it; "": none.
	BasePath string
}

// Gateway serves one node's API. Its methods may be called from any goroutine.
type Gateway struct {
	cfg      Config
	log      *slog.Logger
	broker   Broker
	verbs    verb.Runner
	cluster  Cluster
	limits   task.Limits
	shares   shareBook
	registry *registry.Registry
	tracer   trace.Tracer // nil: no spans

	keeper   *auth.Door
	refusals refusals
	throttle throttle // of refusals of wrong tokens
	strays   refusals // requests for other hosts
	rates    *rates
	large    *admission.MemoryPool // for large requests
	extra    *admission.MemoryPool // for those that take more than their length lets expect
	calls    *admission.Slots

	grpc   *grpc.Server
	health *health.Server
	rest   http.Handler
	http   *http.Server
	door   *door
	inside *passage // of clients within the process

	watchers *admission.Slots // streams of events
	work     sync.WaitGroup   // releases of claims that nobody received
	stopping context.Context
	stop     context.CancelFunc
}

// Broker is what the gateway needs of the shards, wherever they are led.
type Broker interface {
	verb.Runner
	broker.ShardCalls
	Explain(ctx context.Context, ns string, id task.ID) (*broker.Explanation, broker.Stamp, error)
	ExplainQueue(ctx context.Context, shard uint32, ns, name string) (*broker.QueueExplanation, broker.Stamp, error)
	// ClaimNow is Claim of what is there, for a caller that has other shards to ask: it doesn't wait for a new leader.
	ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error)
	// Abandon gives back, in the background, what a claim of unknown outcome may have got. It has a key, with which nobody will ask
	// again.
	Abandon(shard uint32, c broker.ClaimCall)
	// Once runs a verb on a once key, whichever shard it lies in.
	Once(ctx context.Context, c broker.OnceCall) (broker.OnceAnswer, broker.Stamp, error)
	// WatchClaims calls lost on a shard's loop, with locks held: it must not block, nor call the watch.
	WatchClaims(lost func(broker.Lost)) ClaimWatch
	// Archived also says behind each task where the list goes on: "" at the end.
	Archived(ctx context.Context, ns, queue, cursor string, limit int) (tasks []broker.ArchivedTask, places, cursors []string, err error)
	ArchivedAt(ctx context.Context, place string) (*broker.ArchivedTask, error)
	// Audit reads what operators did, of all shards, newest first, behind a place; nil: from the newest.
	Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditList, []broker.Stamp, error)

	// Leader tells which node leads a shard, and may ask others for a moment; 0 if that is not known.
	Leader(ctx context.Context, shard uint32) (node, term, index uint64)
	// LeaderElsewhere is the other node that leads a shard, as far as is known without asking; 0: this one leads, or it is
	// not known.
	LeaderElsewhere(shard uint32) (node uint64)
}

// ClaimWatch tells the holder of claims when one of them ends without its doing. It is an alias, so that who makes one need
// not know this package.
type ClaimWatch = interface {
	Add(h broker.Hold)
	Remove(id task.ID, t task.Token)
	Close()
}

// Cluster is what the gateway needs of the system shard, wherever it is led, and of this node's copy of what it says.
type Cluster interface {
	// Place is where a queue lies by this node's copy. A queue is created at its first use.
	Place(ctx context.Context, ns, queue string) (cluster.Queue, error)
	// Copied is a queue as this node's copy has it, which may be behind.
	Copied(ns, queue string) (cluster.Queue, bool)
	Shards() []uint32
	Queue(ctx context.Context, ns, name string) (q cluster.Queue, exists bool, err error)
	Queues(ctx context.Context, ns string, of cluster.QueueQuery) ([]cluster.Queue, error)
	PutQueue(ctx context.Context, action cluster.AuditedAction, ns, name string, change func(*task.QueueConfig) error) (cluster.Queue, error)
	DropQueue(ctx context.Context, by task.Author, ns, name string) error
	Spread(ctx context.Context, by task.Author, ns, name string, target cluster.SpreadTarget) (cluster.Queue, error)
}

// Admin are the calls for the operators of a cluster that take more than a verb of the system shard. Package cluster says what each
// method does and refuses.
type Admin interface {
	// Overview tells how the cluster stands, by this node's own view while the system shard has no leader.
	Overview(ctx context.Context) (cluster.Overview, error)
	// Map is this node's copy, which may be behind; nil: it has none yet.
	Map(ctx context.Context) *cluster.Map

	AddShards(ctx context.Context, by task.Author, total int) error
	SetReplication(ctx context.Context, by task.Author, n int) error
	SetAuditRetention(ctx context.Context, by task.Author, d time.Duration) error
	// Verify compares the states of a shard's replicas after one entry, and checks the numbers of the leader's.
	Verify(ctx context.Context, shard uint32) (Verification, error)
	// Backup writes a backup of the whole cluster to w, and tells after each shard how many of them are done.
	Backup(ctx context.Context, by task.Author, w io.Writer, progress func(done, total int) error) error
}

// Verification is how a shard's replicas were found.
type Verification struct {
	Shard    uint32
	Index    uint64 // the entry after which they were compared
	Rows     int64
	Replicas []ReplicaHash
	Equal    bool     // all that are known are the same
	Problems []string // numbers of the leader's state that do not agree; the first of them
}

// ReplicaHash is the checksum of a replica's state.
type ReplicaHash struct {
	Node  string
	Hash  uint64
	Known bool // false: it gave none in time
}

// New makes a gateway that serves nothing yet.
func New(cfg Config) *Gateway {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = defaultMaxConns
	}
	if cfg.MaxConnsPerAddress == 0 {
		cfg.MaxConnsPerAddress = defaultMaxConnsPerAddress
	}
	if cfg.Registry == nil {
		cfg.Registry = registry.New()
	}
	if cfg.Door == nil {
		cfg.Door = auth.NewDoor(auth.Config{Mode: auth.Never})
	}
	g := &Gateway{cfg: cfg, log: cfg.Logger, broker: cfg.Broker, verbs: seeing{cfg.Broker}, cluster: scopedQueues{cfg.Cluster}, registry: cfg.Registry, keeper: cfg.Door,
		limits: withDefaults(cfg.Limits)}
	g.rates = newRates(g.limits.Payload)
	g.large, g.extra = admission.NewMemoryPool(maxRoom), admission.NewMemoryPool(maxExtraRoom)
	g.calls, g.watchers = admission.NewSlots(maxCalls), admission.NewSlots(maxWatchers)
	if cfg.Tracers != nil {
		g.tracer = cfg.Tracers.Tracer("github.com/pawlq/pawl/internal/gateway", trace.WithInstrumentationVersion(cfg.Version), trace.WithSchemaURL(semconv.SchemaURL))
	}
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.grpc = g.newGRPC()
	g.rest = g.newREST()
	g.http = g.newHTTP()
	g.door = newDoor(cfg)
	g.inside = newPassage(insideAddr(""), g.door.closed)
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
