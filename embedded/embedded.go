// Package embedded runs a Pawl broker inside your own process, on a directory of its own: the same engine, log and
// promises as "pawl serve", without a second process and without a TCP port unless you ask for one.
//
//	broker, err := embedded.Open("./pawl-data", embedded.Options{})
//	client := broker.Client()
//	...
//	err = broker.Close(ctx)
//
// It knows how to start a node and how to reach it, and nothing of tasks: those are the Client's.
package embedded

import (
	"github.com/pawlq/pawl/internal/version"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/node"
)

// Options say how the broker is to be; the zero value is a good one.
type Options struct {
	// Listen opens a TCP port too, such as "127.0.0.1:7295", for the pawl command, other processes and other languages.
	// Without it only this process reaches the broker. There is no access control yet, so only addresses of this
	// machine are taken.
	Listen string
	// DataShards is how many groups share the tasks, 1 to 64; 0: as many as the directory has, and 1 in a new one. Their
	// number only grows: fewer than the directory has are refused.
	DataShards int
	// MinFree is how many bytes of disk must be free for new tasks to be taken; default 256 MiB.
	MinFree int64
	// Logger is for broker and Client; default: none.
	Logger *slog.Logger
	// TracerProvider is for the spans of broker and Client; default: those of the Client go to the global provider of OpenTelemetry, and
	// the broker has none.
	TracerProvider trace.TracerProvider
	// Fatal is called, at most once, when the broker can't go on because its disk failed. The process should end at
	// once. Default: panic.
	Fatal func(error)
}

// startTimeout is far more than a start takes, even after a crash with a long log.
const startTimeout = 2 * time.Minute

// pipeBuffer is how many bytes one side may be ahead of the other on an in-memory connection.
const pipeBuffer = 1 << 20

// Broker is a broker in this process.
type Broker struct {
	node   *node.Node
	client *pawl.Client
	addr   string

	closing sync.Once
	err     error // of Close
}

// Open starts a broker on dir, which is made if it isn't there. One process at a time has a directory; a second one is
// refused. Close the broker when done: a directory that wasn't closed loses nothing, but takes longer to open.
func Open(dir string, opts Options) (*Broker, error) {
	if dir == "" {
		return nil, errors.New("embedded: dir is empty: name a directory for the broker's data")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	at, err := opts.listen()
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	n, err := node.Start(ctx, node.Config{
		Dir: dir, Listener: at.listener, Hosts: node.Hosts{}.With(opts.Listen), DataShards: opts.DataShards, MinFree: opts.MinFree,
		Logger: opts.Logger, Tracers: opts.TracerProvider, Version: version.Version, Fatal: opts.Fatal,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", errors.Join(err, at.listener.Close()))
	}
	client, err := pawl.Dial(at.target, append(at.dial, pawl.DialOptions{Logger: opts.Logger, Telemetry: pawl.Telemetry{TracerProvider: opts.TracerProvider}})...)
	if err != nil {
		return nil, errors.Join(err, n.Stop(ctx))
	}
	return &Broker{node: n, client: client, addr: at.addr}, nil
}

// place is where the broker is reached.
type place struct {
	listener net.Listener
	addr     string // of TCP; "" in memory
	target   string
	dial     []pawl.DialOptions
}

func (o Options) listen() (place, error) {
	if o.Listen == "" {
		l := bufconn.Listen(pipeBuffer)
		dial := func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
		return place{listener: l, target: "embedded", dial: []pawl.DialOptions{{Dialer: dial}}}, nil
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return place{}, err
	}
	addr := l.Addr().(*net.TCPAddr)
	if !addr.IP.IsLoopback() {
		return place{}, errors.Join(fmt.Errorf("listen %q: only an address of this machine, such as 127.0.0.1:7295: there is no access control yet", o.Listen), l.Close())
	}
	return place{listener: l, addr: addr.String(), target: addr.String()}, nil
}

// Client is a client of this broker, the same for all callers. Close of the broker closes it.
func (b *Broker) Client() *pawl.Client { return b.client }

// Addr is the TCP address if Options.Listen asked for one, with the port that was chosen for ":0"; else "".
func (b *Broker) Addr() string { return b.addr }

// Close stops the broker: workers are told to settle what they hold, and it waits for them until ctx ends. Stop your
// workers first, and nothing waits. It may be called more than once.
func (b *Broker) Close(ctx context.Context) error {
	b.closing.Do(func() { b.err = errors.Join(b.client.Close(), b.node.Stop(ctx)) })
	return b.err
}
