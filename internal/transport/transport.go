package transport

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
)

// Peer is a node as it identifies itself. A new node has only a name: it gets cluster and number when it joins.
type Peer struct {
	Cluster [16]byte
	Number  uint32
	Name    string
}

// Envelope is a Raft message with its group's shard.
type Envelope struct {
	Shard   uint32
	Message *pb.Message
}

// Handler handles what peers send. Its methods are called from many goroutines. Those with a context must return soon after it
// ends: Close waits for them.
type Handler interface {
	// Raft handles messages in the order in which from sent them on one of its connections. It must not block.
	Raft(from Peer, messages []Envelope)
	// Snapshot receives a state, and returns when it is installed or refused. body ends with io.EOF only if all of it arrived
	// undamaged, and Snapshot must have read that far to return nil. An error's text is sent to the sender.
	Snapshot(ctx context.Context, from Peer, head []byte, body io.Reader) error
	// Call answers a request. An error's text is sent to the caller, who gets a RemoteError.
	Call(ctx context.Context, from Peer, method string, request []byte) ([]byte, error)
	// Stream serves a stream until it returns or the stream's context ends. An error's text is sent to the peer.
	Stream(from Peer, method string, s Stream) error
}

// Stream is one end of a stream of frames of at most MaxFrame bytes. One goroutine at a time may send, and one may receive. Recv
// returns io.EOF when the handler at the other end has returned nil, and a RemoteError when it returned an error. The side that
// opened the stream ends it through its context. Frames must not be modified after they are sent.
type Stream interface {
	Context() context.Context
	Send(frame []byte) error
	Recv() ([]byte, error)
}

// Address is the address of a member, and the name that it must prove.
type Address struct {
	Address string
	Name    string
}

// Config describes this node and which peers it accepts.
type Config struct {
	// Self returns the current identity of this node: a new node becomes a member while it runs. It is called for every request,
	// and must be fast. The name never changes.
	Self    func() Peer
	Handler Handler
	// Admit refuses nodes that are not members. It gets the method of a call or a stream; "": Raft messages, a snapshot, a ping. It is
	// called for every request and every frame of Raft messages, must be fast, and isn't called for Open methods. Nil: every node of our
	// cluster is admitted.
	Admit func(from Peer, method string) error
	// Refused is called when a request is refused, by Admit or because of the identity that it claims, which may be false.
	// Proven is the name in its certificate; "": it has none.
	Refused func(from Peer, proven, address string, reason error)
	// Open lists the methods that a node without a cluster may call.
	Open []string
	// TLS authenticates nodes. Nil: traffic is in plaintext, and identities are not verified.
	TLS *TLS
	// Dial opens a connection. Nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Unreachable is called when messages to a node were dropped, at most once a second per node. It may block.
	Unreachable func(node uint32)
	// SnapshotRate is how many bytes of snapshots are sent per second, to all peers together. 0: 64 MiB.
	SnapshotRate int64
	Wall         func() time.Time // nil: time.Now
	Logger       *slog.Logger
}

const (
	// MaxCall bounds the request and the answer of a call: it fits a batch of tasks with the largest payloads.
	MaxCall = 40 << 20
	// MaxFrame bounds a frame of a stream.
	MaxFrame = MaxCall
	// MaxHead bounds the head of a snapshot, which is a Raft message without entries.
	MaxHead = 64 << 10

	// maxMessage is the maximum size of a received message: a Raft entry can have 28 MiB.
	maxMessage = 48 << 20
	// maxMetadata bounds the metadata of a request, which is read before anything is checked.
	maxMetadata = 8 << 10
	// maxStreams bounds the requests in flight on one connection: many are forwarded long polls.
	maxStreams = 20_000
	// maxConnections bounds the accepted connections: a few for each of a thousand nodes.
	maxConnections = 4096

	// handshakeTimeout is how long the handshake of a new connection may take.
	handshakeTimeout = 5 * time.Second
	// dialTimeout is shorter: it allows for one lost SYN, and a dead address doesn't hold up the next attempt.
	dialTimeout = 2 * time.Second
	// reconnectFirst and reconnectMost bound the pause between attempts to connect.
	reconnectFirst = 50 * time.Millisecond
	reconnectMost  = time.Second

	defaultSnapshotRate = 64 << 20
)

func (c *Config) setDefaults() {
	if c.Admit == nil {
		c.Admit = func(Peer, string) error { return nil }
	}
	if c.Refused == nil {
		c.Refused = func(Peer, string, string, error) {}
	}
	if c.Dial == nil {
		tcp := net.Dialer{Timeout: dialTimeout}
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return tcp.DialContext(ctx, "tcp", address)
		}
	}
	if c.Unreachable == nil {
		c.Unreachable = func(uint32) {}
	}
	if c.SnapshotRate <= 0 {
		c.SnapshotRate = defaultSnapshotRate
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Transport is this node's end of all connections with its peers. Its methods are safe for concurrent use.
type Transport struct {
	cfg      Config
	open     map[string]bool
	keyring  *keyring // nil: plaintext
	server   *grpc.Server
	budget   *rate.Limiter // for snapshots
	accepted acceptedConns
	proven   sync.Map // of *provenConn: the open connections over TLS, in both directions
	logLimit logLimiter
	ctx      context.Context // cancelled by Close
	stop     context.CancelFunc

	mu     sync.RWMutex
	peers  map[uint32]*peer
	closed bool
	rest   sync.WaitGroup // what Close must wait for: peers being closed by SetPeers, temporary connections
}

// New returns a transport that doesn't listen yet. With TLS it reads the certificate, and refuses one that is not this node's.
func New(cfg Config) (*Transport, error) {
	cfg.setDefaults()
	t := &Transport{
		cfg:    cfg,
		open:   map[string]bool{},
		budget: rate.NewLimiter(rate.Limit(cfg.SnapshotRate), snapshotBurst),
		peers:  map[uint32]*peer{},
	}
	t.ctx, t.stop = context.WithCancel(context.Background())
	for _, method := range cfg.Open {
		t.open[method] = true
	}
	if cfg.TLS != nil {
		k, err := newKeyring(*cfg.TLS, cfg.Self().Name, cfg.Logger)
		if err != nil {
			return nil, err
		}
		t.keyring = k
		t.rest.Go(t.watchTrust)
	}
	t.server = t.newServer()
	return t, nil
}

// Serve accepts peers until Close, and then returns nil.
func (t *Transport) Serve(l net.Listener) error {
	err := t.server.Serve(limitListener(l, maxConnections, &t.accepted))
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil
	}
	return fmt.Errorf("listen to peers on %q: %w", l.Addr(), err)
}

// Close ends all connections, calls and streams, and returns when all their goroutines have ended.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	peers := t.peers
	t.peers = map[uint32]*peer{}
	t.mu.Unlock()
	t.stop()
	var ends sync.WaitGroup
	ends.Go(t.server.Stop)
	for _, p := range peers {
		ends.Go(p.close)
	}
	ends.Wait()
	t.rest.Wait()
}

// SetPeers sets the members. Connections to a member that moved, was renamed or is gone are closed, and those from a node that Admit
// now refuses; requests in flight on them fail. This node may be among the members, and is ignored.
func (t *Transport) SetPeers(members map[uint32]Address) {
	t.setPeers(members)
	t.accepted.closeIf(func(from Peer) bool { return t.cfg.Admit(from, "") != nil })
}

func (t *Transport) setPeers(members map[uint32]Address) {
	self := t.cfg.Self().Number
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for number, p := range t.peers {
		if at, ok := members[number]; !ok || at != p.at || number == self {
			delete(t.peers, number)
			t.rest.Go(p.close)
		}
	}
	for number, at := range members {
		if t.peers[number] == nil && number != self {
			t.peers[number] = t.newPeer(number, at)
		}
	}
}

func (t *Transport) peer(number uint32) (*peer, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch p := t.peers[number]; {
	case p != nil:
		return p, nil
	case t.closed:
		return nil, errClosed
	default:
		return nil, fmt.Errorf("%w: not a member that this node knows", ErrNotSent)
	}
}

// enter keeps Close from returning until leave is called, and cancels the context when Close begins.
func (t *Transport) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil, nil, errClosed
	}
	t.rest.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(t.ctx, cancel)
	return ctx, func() { release(); cancel(); t.rest.Done() }, nil
}
