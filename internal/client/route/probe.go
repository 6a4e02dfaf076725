package route

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// While an answer is awaited and nothing is received, a connection is probed after firstCheck to twice that, and
	// then less and less often, down to every maxCheck.
	firstCheck = 500 * time.Millisecond
	maxCheck   = 4 * time.Second
	// probeTimeout is how long a node may send nothing at all while it is probed.
	probeTimeout = 1500 * time.Millisecond
)

// conn is a gRPC connection with a prober.
type conn struct {
	*grpc.ClientConn
	prober *prober
}

// open returns a connection to a target. It connects with the first call.
func (c *Config) open(target string, opts ...grpc.DialOption) (*conn, error) {
	p := newProber()
	opts = append(append([]grpc.DialOption{grpc.WithTransportCredentials(probedCredentials{c.credentials(), p})}, c.grpcOptions()...),
		opts...)
	cc, err := grpc.NewClient(target, opts...)
	p.conn = cc
	return &conn{cc, p}, err
}

// Invoke implements grpc.ClientConnInterface.
func (c *conn) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	c.prober.beginCall()
	defer c.prober.endCall()
	return c.ClientConn.Invoke(ctx, method, req, resp, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.prober.beginCall() // it may wait for a connection
	defer c.prober.endCall()
	s, err := c.ClientConn.NewStream(ctx, desc, method, opts...)
	return &probedStream{ClientStream: s, prober: c.prober}, err
}

// ready reports whether calls need not wait for a connection, which may take seconds if the node hangs. If none is
// being made, ready has one made.
func (c *conn) ready() bool {
	state := c.GetState()
	if state == connectivity.Idle {
		c.Connect()
	}
	return state == connectivity.Ready
}

// probedStream is a stream of a connection with a prober. A worker awaits the answer to each ending and extension, as to a call: other
// frames that arrive meanwhile, such as pushed tasks, do not end that.
type probedStream struct {
	grpc.ClientStream
	prober *prober

	mu      sync.Mutex // guards the fields below
	awaited int        // answers
	ended   bool
}

// SendMsg implements grpc.ClientStream.
func (s *probedStream) SendMsg(m any) error {
	if frame, ok := m.(*pawlv1.WorkRequest); ok {
		r := frame.GetSettle()
		s.await(len(r.GetAcks()) + len(r.GetFails()) + len(r.GetExtends()) + len(r.GetReleases()))
	}
	s.prober.noteSent()
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *probedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		s.end()
		return err
	}
	if frame, ok := m.(*pawlv1.WorkResponse); ok {
		r := frame.GetSettled()
		s.await(-len(r.GetAcks()) - len(r.GetFails()) - len(r.GetExtends()) - len(r.GetReleases()))
	}
	return nil
}

// await counts answers that are awaited, or those that have come as negative ones.
func (s *probedStream) await(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = max(n, -s.awaited); !s.ended {
		s.awaited += n
		s.prober.calls.Add(int64(n))
	}
}

// end ends the waiting for answers, with the stream.
func (s *probedStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prober.calls.Add(int64(-s.awaited))
	s.awaited, s.ended = 0, true
}

// prober closes a connection whose node hangs, so that its calls fail as unavailable and are retried at another node. gRPC's own pings take
// too long for that: it allows clients none more often than every 10 s, and the shards of a node that hangs have other leaders after 2 s.
//
// A node that is merely slow is left alone: anything that it sends shows that it is alive, and it answers a probe without doing any work. A
// connection that is idle, receives something all the time, or has only streams on which no answer is awaited and nothing was sent since,
// is not probed: ten thousand workers without tasks must cost nothing, and gRPC's pings find a node that hangs under them.
type prober struct {
	conn     *grpc.ClientConn
	calls    atomic.Int64 // in flight, with the endings and extensions on streams
	received atomic.Int64 // how often something was received
	sent     atomic.Int64 // 1 more than received when a call last began, or something was last sent over a stream
	relaxed  atomic.Bool  // the next check is later than firstCheck, or there is none

	mu           sync.Mutex // guards the fields below
	raw          net.Conn   // the connection made last
	timer        *time.Timer
	pause        time.Duration // until the next check
	lastReceived int64         // received at the last check
}

func newProber() *prober {
	p := &prober{}
	p.relaxed.Store(true)
	return p
}

// beginCall counts a call, until endCall.
func (p *prober) beginCall() {
	p.calls.Add(1)
	p.noteSent()
}

func (p *prober) endCall() { p.calls.Add(-1) }

// noteSent records that something was sent.
func (p *prober) noteSent() {
	p.sent.Store(p.received.Load() + 1)
	p.checkSoon()
}

// checkSoon has the connection checked soon, now that an answer is awaited.
func (p *prober) checkSoon() {
	if !p.relaxed.Load() || !p.relaxed.CompareAndSwap(true, false) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scheduleLocked(firstCheck)
}

func (p *prober) scheduleLocked(pause time.Duration) {
	if p.pause = pause; p.timer == nil {
		p.timer = time.AfterFunc(pause, p.check)
	} else {
		p.timer.Reset(pause)
	}
}

// check probes the connection if an answer is awaited and nothing was received since the last check. It checks again later while one is
// awaited.
func (p *prober) check() {
	p.mu.Lock()
	last, pause := p.lastReceived, p.pause
	p.mu.Unlock()
	if p.awaiting() && p.received.Load() == last {
		p.probe(last)
		pause = min(2*pause, maxCheck)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastReceived = p.received.Load()
	p.relaxed.Store(true) // first: a call that begins after the check has to see it
	if p.awaiting() {
		p.relaxed.Store(pause > firstCheck)
		p.scheduleLocked(pause)
	}
}

// awaiting reports whether an answer is awaited: there are calls, or something was sent and nothing received since. A closed connection
// gets none.
func (p *prober) awaiting() bool {
	return (p.calls.Load() > 0 || p.sent.Load() == p.received.Load()+1) && p.conn.GetState() != connectivity.Shutdown
}

// probe asks whether the node is alive, and closes the connection if nothing was received since received had the value last. If the probe
// ends late, this process was stopped, and has not yet read what arrived meanwhile: the next probe will show.
func (p *prober) probe(last int64) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	stopped := time.Since(began) > probeTimeout+firstCheck
	p.mu.Lock()
	defer p.mu.Unlock()
	if status.Code(err) == codes.DeadlineExceeded && !stopped && p.received.Load() == last && p.raw != nil {
		_ = p.raw.Close()
	}
}

// probedCredentials are the credentials of a connection with a prober.
type probedCredentials struct {
	credentials.TransportCredentials
	prober *prober
}

// ClientHandshake implements credentials.TransportCredentials.
func (c probedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return conn, info, err
	}
	c.prober.mu.Lock()
	c.prober.raw = raw // closing it does not wait for TLS's closing alert
	c.prober.mu.Unlock()
	return probedConn{conn, c.prober}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c probedCredentials) Clone() credentials.TransportCredentials {
	return probedCredentials{c.TransportCredentials.Clone(), c.prober}
}

type probedConn struct {
	net.Conn
	prober *prober
}

// Read implements net.Conn.
func (c probedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.prober.received.Add(1)
	}
	return n, err
}
