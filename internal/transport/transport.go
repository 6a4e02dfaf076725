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

// Peer is a node as it presents itself. A fresh node has only a name: cluster and number are given to it when it joins.
type Peer struct {
	Cluster [16]byte
	Number  uint32
	Name    string
}

// Envelope is a Raft message with the shard whose group it belongs to.
type Envelope struct {
	Shard   uint32
	Message *pb.Message
}

// Handler takes what peers send. Its methods are called from many goroutines. Those with a context must end soon after it
// does: Close waits for them.
type Handler interface {
	// Raft takes messages in the order in which from sent them on one of its connections. It must not block.
	Raft(from Peer, messages []Envelope)
	// Snapshot takes a state, and returns when it is installed or refused. Body ends with io.EOF only when all of it came
	// undamaged, and Snapshot must have read so far to return nil. An error's text travels to the sender.
	Snapshot(ctx context.Context, from Peer, head []byte, body io.Reader) error
	// Call answers a request. An error's text travels to the caller, who gets a RemoteError.
	Call(ctx context.Context, from Peer, method string, request []byte) ([]byte, error)
	// Stream talks with a peer until it returns, or the stream's context ends. An error's text travels to the peer.
	Stream(from Peer, method string, s Stream) error
}

// Stream is one end of a conversation in frames of at most MaxFrame bytes. One goroutine at a time may send, and one
// receive. Recv gives io.EOF when the handler at the other end has returned nil, and a RemoteError when it returned an
// error. Who opened it ends it by its context. What is sent must not be changed afterwards.
type Stream interface {
	Context() context.Context
	Send(frame []byte) error
	Recv() ([]byte, error)
}

// Address is where a member is, and the name that it must prove to have.
type Address struct {
	Address string
	Name    string
}

// Config says who we are and whom we listen to.
type Config struct {
	// Self is who we are now: a fresh node becomes a member while it runs. It is asked for each request, and must be quick.
	// The name never changes.
	Self    func() Peer
	Handler Handler
	// Admit refuses members that are none any more. It is asked for each request and each frame of Raft messages, must be
	// quick, and isn't asked for Open methods. Nil: every node of our cluster is welcome.
	Admit func(Peer) error
	// Open are the methods that a node without a cluster may call.
	Open []string
	// TLS proves who is who. Nil: everything is in the clear, and everyone is believed.
	TLS *TLS
	// Dial makes a connection. Nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Unreachable is told that messages to a node were dropped, at most once a second for each node. It may block.
	Unreachable func(node uint32)
	// SnapshotRate is how many bytes of snapshots go out in a second, to all peers together. 0: 64 MiB.
	SnapshotRate int64
	Wall         func() time.Time // nil: time.Now
	Logger       *slog.Logger
}

const (
	// MaxCall bounds the request and the answer of a call: a batch of tasks with the largest payloads fits.
	MaxCall = 40 << 20
	// MaxFrame bounds a frame of a stream.
	MaxFrame = MaxCall
	// MaxHead bounds the head of a snapshot, which is a Raft message without entries.
	MaxHead = 64 << 10

	// maxMessage is what is received at most as one piece: a Raft entry can have 28 MiB.
	maxMessage = 48 << 20
	// maxMetadata bounds who, whence and whither of a request, which is read before anything is checked.
	maxMetadata = 8 << 10
	// maxStreams bounds the requests under way on one connection: many are long polls that were forwarded.
	maxStreams = 20_000
	// maxConnections bounds those that were accepted: a few for each of a thousand nodes.
	maxConnections = 4096

	// handshakeTimeout is how long a new connection may take until both sides have said who they are.
	handshakeTimeout = 5 * time.Second
	// dialTimeout is shorter: one lost SYN is made good within it, and a dead address doesn't hold up the next try.
	dialTimeout = 2 * time.Second
	// reconnectFirst and reconnectMost are the pauses between tries to connect.
	reconnectFirst = 50 * time.Millisecond
	reconnectMost  = time.Second

	defaultSnapshotRate = 64 << 20
)

func (c *Config) setDefaults() {
	if c.Admit == nil {
		c.Admit = func(Peer) error { return nil }
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

// Transport is this node's end of all connections with its peers. Its methods may be called from any goroutine.
type Transport struct {
	cfg     Config
	open    map[string]bool
	keyring *keyring // nil: plaintext
	server  *grpc.Server
	budget  *rate.Limiter // of snapshots
	said    seldom
	ctx     context.Context // ends with Close
	stop    context.CancelFunc

	mu     sync.RWMutex
	peers  map[uint32]*peer
	closed bool
	rest   sync.WaitGroup // what Close must wait for: peers that SetPeers is closing, connections for one use
}

// New makes a transport that listens to nobody yet. With TLS it reads the certificate, and refuses one that is not our own.
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
	}
	t.server = t.newServer()
	return t, nil
}

// Serve listens to peers until Close, which makes it return nil.
func (t *Transport) Serve(l net.Listener) error {
	err := t.server.Serve(newGate(l, maxConnections))
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil
	}
	return fmt.Errorf("listen to peers on %q: %w", l.Addr(), err)
}

// Close ends all connections, calls and streams, and returns when nothing of them runs any more.
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

// SetPeers says which members there are. Connections to one that moved, has another name or is gone are closed; what was
// under way on them fails. We ourselves may be among them, and are left out.
func (t *Transport) SetPeers(members map[uint32]Address) {
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
		return nil, fmt.Errorf("%w: it is not a member that we know", ErrNotSent)
	}
}

// stay keeps Close from returning until leave is called, and ends the context when Close begins.
func (t *Transport) stay(ctx context.Context) (_ context.Context, leave func(), err error) {
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
