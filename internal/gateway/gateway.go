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
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Config holds what a gateway needs.
type Config struct {
	Broker     Broker
	Cluster    Cluster
	Schedules  Schedules
	Groups     Groups
	Operations Operations
	Workers    Workers
	Events     Events
	Registry   *registry.Registry  // of this node's workers; nil: a private one
	Stats      Stats               // nil: nothing is counted, and statistics are refused
	Admin      Admin               // nil: the cluster's operator calls are refused
	Auth       *auth.Authenticator // who is admitted; nil: everybody, to everything
	Webhooks   Webhooks            // nil: calls that need it are refused
	Limits     task.Limits         // zero fields: task.DefaultLimits
	Logger     *slog.Logger        // nil: none
	// Pages serves everything that is not the API: the web UI. Nil: not found.
	Pages http.Handler
	// Metrics serves /metrics. Nil: not found.
	Metrics http.Handler
	// Meter observes calls. Nil: none.
	Meter Meter

	Version   string // of the program
	ClusterID string
	Node      string // name of this node
	// NodeName returns the name of a node by its number; nil: "n" and the number.
	NodeName func(node uint64) string

	// Tracers creates the spans of tasks that belong to a trace; nil: no spans.
	Tracers trace.TracerProvider

	// Ready returns why the node should get no calls now; nil: it should. Without it a node is ready when every shard has a leader.
	Ready func() error

	// Certificate returns the server's certificate for a handshake; it may change between handshakes. Nil: plaintext.
	Certificate func() *tls.Certificate
	// ClientCertificates says which client certificates are accepted; zero: none. It requires Certificate.
	ClientCertificates ClientCertificates

	// Hosts are the names accepted in the Host header while no tokens are required.
	Hosts Hosts

	MaxConns           int // concurrent connections; default 20,000
	MaxConnsPerAddress int // of these from one address other than this machine's own; default 5,000

	// SQS serves clients of Amazon SQS, on the same listener.
	SQS bool

	// BasePath is an optional prefix of paths such as "/pawl", for a proxy that does not strip it; "": none.
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

	auth           *auth.Authenticator
	refusalLog     refusalLog
	throttle       throttle   // of refusals of wrong tokens
	misdirectedLog refusalLog // requests for other hosts
	rates          *rates
	large          *admission.MemoryPool // for large requests
	extra          *admission.MemoryPool // for those that take more than their length suggests
	calls          *admission.Slots

	grpc      *grpc.Server
	health    *health.Server
	rest      http.Handler
	http      *http.Server
	acceptor  *acceptor
	inProcess *connQueue // of clients in this process

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
	// ClaimNow is a Claim that doesn't wait, not even for a new leader: the caller has other shards to ask.
	ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error)
	// Abandon releases, in the background, what a claim of unknown outcome may have got. The claim has a key, which nobody will use
	// again.
	Abandon(shard uint32, c broker.ClaimCall)
	// Once runs a verb on a once key, in whichever shard it is.
	Once(ctx context.Context, c broker.OnceCall) (broker.OnceAnswer, broker.Stamp, error)
	// WatchClaims calls lost on a shard's loop, with locks held: it must not block, nor call the watch.
	WatchClaims(lost func(broker.Lost)) ClaimWatch
	// Archived also returns the cursor after each task: "" at the end.
	Archived(ctx context.Context, ns, queue, cursor string, limit int) (tasks []broker.ArchivedTask, places, cursors []string, err error)
	ArchivedAt(ctx context.Context, place string) (*broker.ArchivedTask, error)
	// Audit returns the audit log of all shards, newest first, after a place; nil: from the newest.
	Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditList, []broker.Stamp, error)

	// Leader returns which node leads a shard, and may briefly ask others; 0: unknown.
	Leader(ctx context.Context, shard uint32) (node, term, index uint64)
	// LeaderElsewhere returns the other node that leads a shard, as far as known without asking; 0: this one leads, or it is
	// unknown.
	LeaderElsewhere(shard uint32) (node uint64)
}

// ClaimWatch notifies the holder of claims when one of them ends without its doing. It is an alias, so that implementations need
// not import this package.
type ClaimWatch = interface {
	Add(h broker.Hold)
	Remove(id task.ID, t task.Token)
	Close()
}

// Cluster is what the gateway needs of the system shard, wherever it is led, and of this node's copy of its tables.
type Cluster interface {
	// Place returns the queue, with its shards, from this node's copy. It creates a queue that doesn't exist.
	Place(ctx context.Context, ns, queue string) (queues.Queue, error)
	// Copied returns a queue from this node's copy, which may be outdated.
	Copied(ns, queue string) (queues.Queue, bool)
	Shards() []uint32
	Queue(ctx context.Context, ns, name string) (q queues.Queue, exists bool, err error)
	Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error)
	PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error)
	DropQueue(ctx context.Context, by task.Author, ns, name string) error
	Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error)
}

// Admin has the operator calls of a cluster that take more than a verb of the system shard. Package cluster documents what each
// method does and refuses.
type Admin interface {
	// Overview returns the state of the cluster, as this node sees it while the system shard has no leader.
	Overview(ctx context.Context) (cluster.Overview, error)
	// Map returns this node's copy, which may be outdated; nil: it has none yet.
	Map(ctx context.Context) *cluster.Map

	AddShards(ctx context.Context, by task.Author, total int) error
	SetReplication(ctx context.Context, by task.Author, n int) error
	SetAuditRetention(ctx context.Context, by task.Author, d time.Duration) error
	// Verify compares the states of a shard's replicas after one entry, and checks the leader's counters.
	Verify(ctx context.Context, shard uint32) (Verification, error)
	// Backup writes a backup of the whole cluster to w. It calls progress after each shard.
	Backup(ctx context.Context, by task.Author, w io.Writer, progress func(done, total int) error) error
}

// Verification is the result of comparing a shard's replicas.
type Verification struct {
	Shard    uint32
	Index    uint64 // the entry after which they were compared
	Rows     int64
	Replicas []ReplicaHash
	Equal    bool     // whether all known hashes are the same
	Problems []string // mismatching counters in the leader's state; the first of them
}

// ReplicaHash is the checksum of a replica's state.
type ReplicaHash struct {
	Node  string
	Hash  uint64
	Known bool // false: there was no answer in time
}

// New returns a gateway that does not serve yet.
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
	if cfg.Auth == nil {
		cfg.Auth = auth.NewAuthenticator(auth.Config{Mode: auth.Never})
	}
	g := &Gateway{cfg: cfg, log: cfg.Logger, broker: cfg.Broker, verbs: stampRecorder{cfg.Broker}, cluster: scopedQueues{cfg.Cluster}, registry: cfg.Registry, auth: cfg.Auth,
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
	g.acceptor = newAcceptor(cfg)
	g.inProcess = newConnQueue(inProcessAddr(""), g.acceptor.closed)
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

// Handler returns the handler of REST alone, including Config.Pages.
func (g *Gateway) Handler() http.Handler { return g.rest }
