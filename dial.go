package pawl

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/pawlq/pawl/internal/client"
	"github.com/pawlq/pawl/internal/client/route"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/keyring"
)

// DialOptions say how a Client connects, and who it is. Zero fields have defaults.
type DialOptions struct {
	// TLS encrypts all connections, those to the nodes of a cluster too. &tls.Config{} trusts the system's certificate authorities; for a
	// private one, give its certificate as RootCAs. Each node must show a certificate for the host of the address by which it is
	// reached, unless ServerName names one that all of them have. An address "https://host:port" does the same as &tls.Config{}.
	//
	// A server that was told whose certificates it may take (pawl serve --client-ca) knows a client by its own, Certificates or
	// GetClientCertificate, in place of a token. The latter is asked at each handshake, so that a renewed file is taken up.
	TLS *tls.Config
	// Plaintext allows connections without TLS to addresses that are not on this machine.
	Plaintext bool

	// Token is sent with each call, as "authorization: Bearer token".
	Token string
	// TokenSource is asked for the token before each call and each enqueue, so that a token that is replaced while the program runs is
	// taken up. It must be fast, and may be called from any goroutine. A call for which it fails is not made.
	TokenSource func() (string, error)
	// Namespace is where the calls go. It is for tokens that are good for all namespaces; others have one.
	Namespace string

	// Keyring encrypts what the client's tasks hold before it leaves the program, and decrypts what comes: payloads, also those of
	// followers, groups and schedules; results, checkpoints and results of once keys. The broker, its disks and backups, the web UI and
	// whoever may read tasks see that something is encrypted and with which key, not what it is. What the broker works with stays
	// readable (type, queue, key, tags, headers, idempotency and unique keys), and so does what handlers say of their errors and their
	// progress.
	//
	// A payload is bound to its namespace, queue and type, a result to its task: what was put elsewhere is not decrypted, and the task is
	// poisoned. If a worker lacks the key of a task, the attempt fails, and is retried as any other. docs/encryption.md has the rules.
	Keyring *keyring.Keyring

	// RetryFor is how long a call is repeated while the broker is unavailable, if its context does not end before. Default: 30 s; negative:
	// nothing is repeated. Workers reconnect for ever, whatever is set here.
	RetryFor time.Duration
	// Logger is where the client and its workers log. Default: slog.Default at the time of Dial.
	Logger *slog.Logger
	// Telemetry says where spans and metrics go.
	Telemetry Telemetry

	// NoRouting keeps the client to the addresses of Dial, one connection at a time. Otherwise a client of a cluster also connects to the
	// nodes that lead what it works on, at the addresses that they advertise.
	NoRouting bool
	// Dialer makes the connections: in-memory pipes, proxies, tunnels. It is given an address of Dial, or one that a node of the cluster
	// advertises, and implies Plaintext.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	// GRPC is passed on to grpc.NewClient: interceptors, stats handlers. Enqueues are frames of a stream, ProducerService/Produce: unary
	// interceptors don't see them.
	GRPC []grpc.DialOption

	eager int // small requests of gathered enqueues that may be in flight, for the benchmark that chose the default
}

// Telemetry says where a client's spans and metrics go. Zero fields have defaults.
type Telemetry struct {
	// TracerProvider takes the spans; docs/tracing.md has the list. Default: OpenTelemetry's global provider, so that spans go nowhere
	// as long as the program has set none.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics that OpenTelemetry's messaging conventions name for clients. Default: the global provider.
	MeterProvider metric.MeterProvider
	// Propagator writes trace context into the headers of tasks and reads it from them. Default: W3C trace context (traceparent,
	// tracestate), whatever the global propagator is, so that baggage leaves the process only if you say so here.
	Propagator propagation.TextMapPropagator
	// LinkedTraces makes each run of a task a trace of its own, with a link to the one in which the task was enqueued. Otherwise a run
	// is part of that trace, which is easier to read; but one that lasts for days is more than some backends like.
	LinkedTraces bool
}

// defaultRetryFor outlasts a restart or a change of leader.
const defaultRetryFor = 30 * time.Second

// merge takes over the fields of o that are set. Options of gRPC add up.
func (all *DialOptions) merge(o *DialOptions) {
	set(&all.TLS, o.TLS)
	set(&all.Plaintext, o.Plaintext)
	if o.Token != "" || o.TokenSource != nil { // whoever sets one of them replaces the other
		all.Token, all.TokenSource = o.Token, o.TokenSource
	}
	set(&all.Namespace, o.Namespace)
	set(&all.Keyring, o.Keyring)
	set(&all.RetryFor, o.RetryFor)
	set(&all.Logger, o.Logger)
	set(&all.Telemetry.LinkedTraces, o.Telemetry.LinkedTraces)
	if o.Telemetry.TracerProvider != nil {
		all.Telemetry.TracerProvider = o.Telemetry.TracerProvider
	}
	if o.Telemetry.MeterProvider != nil {
		all.Telemetry.MeterProvider = o.Telemetry.MeterProvider
	}
	if o.Telemetry.Propagator != nil {
		all.Telemetry.Propagator = o.Telemetry.Propagator
	}
	set(&all.NoRouting, o.NoRouting)
	if o.Dialer != nil {
		all.Dialer = o.Dialer
	}
	all.GRPC = append(all.GRPC[:len(all.GRPC):len(all.GRPC)], o.GRPC...)
	set(&all.eager, o.eager)
}

// set takes over a value that is not zero.
func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}

// config is what a client is made by.
func (all *DialOptions) config() *client.Config {
	cfg := &client.Config{
		Route: route.Config{TLS: all.TLS.Clone(), Plaintext: all.Plaintext, Token: all.TokenSource, Namespace: all.Namespace, Log: all.Logger, Dialer: all.Dialer,
			Indirect: all.NoRouting, GRPC: all.GRPC},
		Keys: all.Keyring, RetryFor: max(all.RetryFor, 0),
		Telemetry: telemetry.Config{TracerProvider: all.Telemetry.TracerProvider, MeterProvider: all.Telemetry.MeterProvider, Propagator: all.Telemetry.Propagator,
			LinkedTraces: all.Telemetry.LinkedTraces},
	}
	if all.RetryFor == 0 {
		cfg.RetryFor = defaultRetryFor
	}
	if cfg.Route.Log == nil {
		cfg.Route.Log = slog.Default()
	}
	if token := all.Token; all.TokenSource == nil && token != "" {
		cfg.Route.Token = func() (string, error) { return token, nil }
	}
	return cfg
}
