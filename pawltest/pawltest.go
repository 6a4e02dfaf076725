// Package pawltest is for the tests of programs that use Pawl: a whole broker inside the test, in memory, and a way to
// run one handler with one task.
//
//	result := pawltest.Run(t, mux, Welcome{To: "a@example.com"})
//	if result.State != pawl.StateSucceeded { ... }
//
// It is the real broker, with nothing left out, so what a test sees is what production does. Inside a bubble of
// testing/synctest it lives in the bubble's fake time: a task that is due tomorrow is due after time.Sleep(24*time.Hour). A day in which
// nothing happens takes less than 0.2 s of CPU, also with a worker connected.
//
// It knows how to start a node and nothing of tasks.
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

// pipeBuffer is how many bytes one side may be ahead of the other on an in-memory connection.
const pipeBuffer = 256 << 10

// stopTimeout bounds the end of a test whose workers don't stop.
const stopTimeout = 10 * time.Second

// noPings keeps gRPC from asking whether the other side lives, every few seconds of fake time: it is the same process.
var noPings = grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: math.MaxInt64})

// Broker is a broker in memory. It ends with its test.
type Broker struct{ pipe *bufconn.Listener }

// Option configures a Broker.
type Option func(*config)

type config struct {
	log     *slog.Logger
	tracers trace.TracerProvider
}

// WithLogger sets where the broker logs. Without it its warnings go into the test's log.
func WithLogger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// WithTracerProvider sets where the broker's spans go: to a recorder, say. Without it there are none. Clients have an option of their own.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// New starts a broker that keeps everything in memory, for t.
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
	// The clocks of package time are fake inside a bubble; those of the system never are.
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

// Client makes a client of the broker, which is closed when t ends. Workers must have ended by then.
func (b *Broker) Client(t testing.TB, opts ...pawl.DialOptions) *pawl.Client {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return b.pipe.DialContext(ctx) }
	client, err := pawl.Dial("pawltest", append([]pawl.DialOptions{{Dialer: dial, GRPC: []grpc.DialOption{noPings}, Logger: logger(t)}}, opts...)...)
	if err != nil {
		t.Fatalf("pawltest: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// logger writes warnings into the log of the test.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
