// Package embedded runs a Pawl broker inside your own process, on its own directory: the same engine, log and guarantees as "pawl
// serve", without a second process and without a TCP port unless you ask for one.
//
//	broker, err := embedded.Open("./pawl-data", embedded.Options{})
//	client := broker.Client()
//	...
//	err = broker.Close(ctx)
//
// It knows how to start and reach a node, and nothing about tasks: those are the Client's.
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

// Options configure the broker; the zero value is a good default.
type Options struct {
	// Listen also opens a TCP port, such as "127.0.0.1:7295", for the pawl command, other processes and other languages. Without it only
	// this process can reach the broker. There is no access control, so it must be a loopback address.
	Listen string
	// DataShards is how many shards share the tasks, 1 to 64; 0: as many as the directory has, and 1 in a new one. Their number can only
	// grow: fewer than the directory has is an error.
	DataShards int
	// MinFree is how many bytes of disk must be free for the broker to accept new tasks; default 256 MiB.
	MinFree int64
	// Logger is for the broker and its Client; default: none.
	Logger *slog.Logger
	// TracerProvider takes the spans of the broker and its Client. Default: those of the Client go to OpenTelemetry's global
	// provider, and the broker has none.
	TracerProvider trace.TracerProvider
	// Fatal is called, at most once, when the broker can't go on because its disk failed. The process should then exit
	// immediately. Default: panic.
	Fatal func(error)
}

// startTimeout is far longer than a start takes, even after a crash with a long log.
const startTimeout = 2 * time.Minute

// pipeBuffer is the buffer of each direction of an in-memory connection, in bytes.
const pipeBuffer = 1 << 20

// Broker is a broker in this process.
type Broker struct {
	// the node; a function, so that packages that import this one do not compile the node's generic types
	stop   func(context.Context) error
	client *pawl.Client
	addr   string

	closing sync.Once
	err     error // of Close
}

// Open starts a broker on dir, and creates dir if it doesn't exist. Only one process at a time can use a directory; a second one gets
// an error. Close the broker when done: without that nothing is lost, but the next Open takes longer.
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
		return nil, fmt.Errorf("embedded: %w", err)
	}
	client, err := pawl.Dial(at.target, append(at.dial, pawl.DialOptions{Logger: opts.Logger, Telemetry: pawl.Telemetry{
		TracerProvider: opts.TracerProvider}})...)
	if err != nil {
		return nil, errors.Join(err, n.Stop(ctx))
	}
	return &Broker{stop: n.Stop, client: client, addr: at.addr}, nil
}

// place is where the broker can be reached.
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
		return place{}, errors.Join(fmt.Errorf("listen %q: only an address of this machine, such as 127.0.0.1:7295: there is no "+
			"access control",
			o.Listen), l.Close())
	}
	return place{listener: l, addr: addr.String(), target: addr.String()}, nil
}

// Client returns a client of this broker, the same for all callers. Broker.Close closes it.
func (b *Broker) Client() *pawl.Client { return b.client }

// Addr returns the TCP address if Options.Listen is set, with the port that was chosen for ":0"; else "".
func (b *Broker) Addr() string { return b.addr }

// Close stops the broker: it tells workers to settle what they hold, and waits for them until ctx ends. Stop your workers first, and
// there is no wait. Calling it again is a no-op.
func (b *Broker) Close(ctx context.Context) error {
	b.closing.Do(func() { b.err = errors.Join(b.client.Close(), b.stop(ctx)) })
	return b.err
}
