// Package pawltest is for the tests of programs that use Pawl: a whole broker inside the test, in memory, and a way to
// run one handler with one task.
//
//	result := pawltest.Run(t, mux, Welcome{To: "a@example.com"})
//	if result.State != pawltype.StateSucceeded { ... }
//
// It is the real broker, with nothing left out, so a test sees what production does. Inside a bubble of testing/synctest the broker uses
// the bubble's fake time: a task that is due tomorrow is due after time.Sleep(24*time.Hour). An idle day takes less than 0.2 s of CPU,
// even with a worker connected.
//
// It knows how to start a node, and nothing about tasks.
package pawltest

import (
	"github.com/pawlq/pawl/internal/version"

	"context"
	"log/slog"
	"math"
	"net"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/node"
)

// pipeBuffer is the buffer of each direction of an in-memory connection, in bytes.
const pipeBuffer = 256 << 10

// stopTimeout bounds how long a test waits at its end for workers that don't stop.
const stopTimeout = 10 * time.Second

// noPings keeps gRPC from pinging the other side every few seconds of fake time: it is the same process.
var noPings = grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: math.MaxInt64})

// Broker is a broker in memory. It stops when its test ends.
type Broker struct{ pipe *bufconn.Listener }

// Option configures a Broker.
type Option func(*config)

type config struct {
	log     *slog.Logger
	tracers trace.TracerProvider
}

// WithLogger sets where the broker logs. Default: warnings go to the test's log.
func WithLogger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// WithTracerProvider sets where the broker's spans go, such as a recorder. Default: nowhere. Clients have their own option.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// New starts a broker for t that keeps everything in memory.
func New(t testing.TB, opts ...Option) *Broker {
	t.Helper()
	start := time.Now()
	own := config{log: logger(t)}
	for _, opt := range opts {
		opt(&own)
	}
	cfg := node.Config{
		InMemory: true, Listener: bufconn.Listen(pipeBuffer), Version: version.Version, Logger: own.log, Tracers: own.tracers,
		Fatal: func(err error) { t.Errorf("pawltest: broker: %v", err) },
	}
	// Inside a bubble, the clocks of package time are fake, but those of the system never are.
	cfg.Time.Wall = time.Now
	cfg.Time.Elapsed = func() time.Duration { return time.Since(start) }
	n, err := node.Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("pawltest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Errorf("pawltest: stop: %v", err)
		}
	})
	return &Broker{pipe: cfg.Listener.(*bufconn.Listener)}
}

// Client returns a new client of the broker, which is closed when t ends. Workers must have ended by then.
func (b *Broker) Client(t testing.TB, opts ...pawl.DialOptions) *pawl.Client {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return b.pipe.DialContext(ctx) }
	client, err := pawl.Dial("pawltest", append([]pawl.DialOptions{{Dialer: dial, GRPC: []grpc.DialOption{noPings}, Logger: logger(t)}},
		opts...)...)
	if err != nil {
		t.Fatalf("pawltest: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// logger returns a logger that writes warnings to the test's log.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
