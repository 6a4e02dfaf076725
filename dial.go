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

// DialOptions configure how a Client connects and authenticates. Zero fields have defaults.
type DialOptions struct {
	// TLS encrypts all connections, including those to the nodes of a cluster. &tls.Config{} trusts the system's certificate authorities;
	// for a private one, set its certificate as RootCAs. Each node's certificate must be for the host of the address by which it is
	// reached, unless ServerName is a name that all of them have. An address "https://host:port" does the same as &tls.Config{}.
	//
	// A server that accepts client certificates (pawl serve --client-ca) identifies a client by Certificates or GetClientCertificate
	// instead of a token. The latter is called at each handshake, so a renewed file is picked up.
	TLS *tls.Config
	// Plaintext allows connections without TLS to addresses that are not on this machine.
	Plaintext bool

	// Token is sent with each call, as "authorization: Bearer token".
	Token string
	// TokenSource returns the token. It is called before each call and each enqueue, so a token that is replaced while the program runs is
	// picked up. It must be fast, and may be called from any goroutine. If it fails, so does the call, without being sent.
	TokenSource func() (string, error)
	// Namespace is the namespace of the calls. Set it with tokens that are valid for all namespaces; others have one.
	Namespace string

	// Keyring encrypts the contents of the client's tasks before they leave the program, and decrypts them on the way back: payloads,
	// including those of follow-up tasks, groups and schedules; results, checkpoints and results of once keys. The broker, its disks and
	// backups, the web UI and anyone who may read tasks see that something is encrypted and with which key, but not what it is. What the
	// broker works with stays readable (type, queue, key, tags, headers, idempotency and unique keys), and so do the errors and the
	// progress that handlers report.
	//
	// A payload is bound to its namespace, queue and type, a result to its task: if it was put elsewhere it is not decrypted, and the task
	// is poisoned. If a worker lacks the key of a task, the attempt fails, and is retried like any other. docs/encryption.md has the rules.
	Keyring *keyring.Keyring

	// RetryFor is how long a call is retried while the broker is unavailable, unless its context ends first. Default: 30 s; negative: no
	// retries. Workers reconnect for ever, whatever is set here.
	RetryFor time.Duration
	// Logger is the logger of the client and its workers. Default: slog.Default at the time of Dial.
	Logger *slog.Logger
	// Telemetry configures where spans and metrics go.
	Telemetry Telemetry

	// NoRouting limits the client to the addresses given to Dial, one connection at a time. Otherwise a client of a cluster also connects
	// to the nodes that lead the shards it uses, at the addresses that they advertise.
	NoRouting bool
	// Dialer makes the connections: in-memory pipes, proxies, tunnels. It gets an address given to Dial, or one that a node of the cluster
	// advertises, and implies Plaintext.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	// GRPC is passed on to grpc.NewClient: interceptors, stats handlers. Enqueues are frames of a stream, ProducerService/Produce: unary
	// interceptors don't see them, but they see the calls of gRPC's health service that find out whether a silent node hangs.
	GRPC []grpc.DialOption
}

// Telemetry configures where a client's spans and metrics go. Zero fields have defaults.
type Telemetry struct {
	// TracerProvider takes the spans; docs/tracing.md has the list. Default: OpenTelemetry's global provider, which discards spans until
	// the program sets one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics that OpenTelemetry's messaging conventions define for clients. Default: the global provider.
	MeterProvider metric.MeterProvider
	// Propagator writes trace context into the headers of tasks and reads it from them. Default: W3C trace context (traceparent,
	// tracestate), whatever the global propagator is, so that baggage leaves the process only if you ask for it here.
	Propagator propagation.TextMapPropagator
	// LinkedTraces makes each run of a task a trace of its own, with a link to the one in which the task was enqueued. Otherwise a run is
	// part of that trace, which is easier to read; but some backends can't handle a trace that lasts for days.
	LinkedTraces bool
}

// defaultRetryFor is longer than a restart or a change of leader takes.
const defaultRetryFor = 30 * time.Second

// merge takes the fields of o that are set. GRPC options accumulate.
func (all *DialOptions) merge(o *DialOptions) {
	set(&all.TLS, o.TLS)
	set(&all.Plaintext, o.Plaintext)
	if o.Token != "" || o.TokenSource != nil { // setting either replaces both
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
}

// set assigns value to *to unless it is zero.
func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}

// config returns the configuration for client.Dial.
func (all *DialOptions) config() *client.Config {
	cfg := &client.Config{
		Route: route.Config{TLS: all.TLS.Clone(), Plaintext: all.Plaintext, Token: all.TokenSource, Namespace: all.Namespace,
			Log: all.Logger, Dialer: all.Dialer, Indirect: all.NoRouting, GRPC: all.GRPC},
		Keys: all.Keyring, RetryFor: all.RetryFor,
		Telemetry: telemetry.Config{TracerProvider: all.Telemetry.TracerProvider, MeterProvider: all.Telemetry.MeterProvider,
			Propagator: all.Telemetry.Propagator, LinkedTraces: all.Telemetry.LinkedTraces},
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
