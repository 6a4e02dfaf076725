package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/administration"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/gateway/receive"
	"github.com/pawlq/pawl/internal/gateway/send"
	"github.com/pawlq/pawl/internal/gateway/statistics"
	"github.com/pawlq/pawl/internal/gateway/watch"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Config holds what a gateway needs.
type Config struct {
	Broker     Broker
	Cluster    fanout.Cluster
	Schedules  Schedules
	Groups     Groups
	Operations Operations
	Workers    Workers
	Events     watch.Source
	Registry   *registry.Registry // of this node's workers
	Stats      statistics.Stats
	Admin      administration.Admin    // nil: the cluster's operator calls are refused
	Auth       *auth.Authenticator     // who is admitted
	Webhooks   administration.Webhooks // nil: calls that need it are refused
	Limits     task.Limits
	Logger     *slog.Logger
	// Pages serves everything that is not the API: the web UI. Nil: not found.
	Pages http.Handler
	// Metrics serves /metrics. Nil: not found.
	Metrics http.Handler
	// Meter observes calls. Nil: none.
	Meter callinfo.Meter
	Trail *trail.Trail // of refusals and reads; nil: none

	Version   string // of the program
	ClusterID string
	Node      string // name of this node
	// NodeName returns the name of a node by its number; nil: "n" and the number.
	NodeName func(node uint64) string

	// Tracers creates the spans of tasks that belong to a trace; nil: no spans.
	Tracers trace.TracerProvider

	// Ready returns why the node should get no calls now; nil: it should.
	Ready func() error

	// Certificate returns the server's certificate for a handshake; it may change between handshakes. Nil: plaintext.
	Certificate func() *tls.Certificate
	// ClientCertificates says which client certificates are accepted; zero: none. It requires Certificate.
	ClientCertificates listen.ClientCertificates

	// Hosts are the names accepted in the Host header while no tokens are required.
	Hosts listen.Hosts

	MaxConns           int // concurrent connections; default 20,000
	MaxConnsPerAddress int // of these from one address other than this machine's own; default 5,000

	// SQS serves clients of Amazon SQS, on the same listener.
	SQS bool

	// BasePath is an optional prefix of paths such as "/pawl", for a proxy that does not strip it; "": none.
	BasePath string
}

// Gateway serves one node's API. Its methods may be called from any goroutine.
type Gateway struct {
	callinfo.Errors
	cfg      Config
	observer callinfo.Observer
	leaders  callinfo.Leaders
	tracer   trace.Tracer // nil: no spans
	access   *access.Guard
	memory   *receive.Memory
	answers  *send.Memory
	claims   *claims
	services *services

	grpc   *grpc.Server
	health *health.Server
	rest   http.Handler
	server *listen.Server
}

// Broker is the shards, wherever they are led: it runs verbs, and what takes more than one.
type Broker interface {
	verb.Runner
	Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error)
	Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error)
	Await(ctx context.Context, shard uint32, c broker.ClaimCall) error
	Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error)
	Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error)
	Peek(ctx context.Context, ns string, id task.ID) (v *broker.View, at broker.Stamp, age time.Duration, err error)
	Draining() <-chan struct{}
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
	// Audit returns the audit log of all shards, newest first, after a place; nil: from the newest.
	Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (verb.Partial[broker.AuditList],
		[]broker.Stamp, error)

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

// New returns a gateway that does not serve yet.
func New(cfg Config) *Gateway {
	g := &Gateway{cfg: cfg, observer: callinfo.NewObserver(cfg.Meter, cfg.Trail), memory: receive.NewMemory(), answers: send.NewMemory(),
		claims: newClaims(), services: newServices()}
	g.leaders = callinfo.Leaders{Elsewhere: g.leaderElsewhere, Name: cfg.NodeName}
	g.access = access.NewGuard(cfg.Auth, cfg.Hosts, cfg.Limits.Payload, cfg.Logger, cfg.Trail)
	if cfg.Tracers != nil {
		g.tracer = cfg.Tracers.Tracer("github.com/pawlq/pawl/internal/gateway", trace.WithInstrumentationVersion(cfg.Version),
			trace.WithSchemaURL(semconv.SchemaURL))
	}
	g.wire()
	g.grpc = g.newGRPC()
	g.rest = g.newREST()
	g.server = listen.New(listen.Config{Logger: cfg.Logger, Certificate: cfg.Certificate, ClientCertificates: cfg.ClientCertificates,
		MaxConns: cfg.MaxConns, MaxConnsPerAddress: cfg.MaxConnsPerAddress, WriteTimeout: rest.AnswerTimeout}, g.grpc, g.withSQS(g.rest))
	return g
}

// leaderElsewhere returns the other node that leads a shard; 0: this one leads, or it is unknown.
func (g *Gateway) leaderElsewhere(shard uint32) (node uint64) {
	return g.cfg.Broker.LeaderElsewhere(shard)
}

// Serve serves the connections of a listener until Shutdown, which makes it return nil. It serves DialInProcess, too.
func (g *Gateway) Serve(l net.Listener) error { return g.server.Serve(l) }

// Shutdown accepts no new connections, waits for calls and streams until ctx ends, and then cuts them off.
func (g *Gateway) Shutdown(ctx context.Context) {
	g.health.Shutdown()
	g.server.Shutdown(ctx)
	g.claims.close(ctx)
}

// Abort immediately closes the listener and all connections, whatever is running: for a process that must exit and may be unable to
// finish, since its disk hangs.
func (g *Gateway) Abort() { g.server.Abort() }

// DialInProcess connects a client within this process, such as the web UI, which speaks gRPC over memory, in plaintext. from is the
// host on whose behalf it calls: its actions are recorded as coming from there, over the interface "ui". It waits until the gateway serves.
func (g *Gateway) DialInProcess(ctx context.Context, from string) (net.Conn, error) {
	return g.server.DialInProcess(ctx, from)
}

// Refused returns how often a rate of a namespace has refused something at this node.
func (g *Gateway) Refused(ns string, quota task.Quota) int64 {
	return g.access.RefusedByRate(ns, quota)
}

// Slowed returns how many refusals of wrong tokens were delayed since the start.
func (g *Gateway) Slowed() uint64 { return g.access.Slowed() }

// Handler returns the handler of REST alone, including Config.Pages.
func (g *Gateway) Handler() http.Handler { return g.rest }
