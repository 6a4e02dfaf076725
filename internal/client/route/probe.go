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
)

const (
	// While an answer is owed and nothing is received, a connection is probed after firstLook to twice that, and then less and less often,
	// down to every maxLook.
	firstLook = 500 * time.Millisecond
	maxLook   = 4 * time.Second
	// probeTimeout is how long a node may send nothing at all while it is probed.
	probeTimeout = 1500 * time.Millisecond
)

// conn is a gRPC connection with a pulse.
type conn struct {
	*grpc.ClientConn
	pulse *pulse
}

// open returns a connection to a target. It connects with the first call.
func (c *Config) open(target string, opts ...grpc.DialOption) (*conn, error) {
	p := newPulse()
	opts = append(append([]grpc.DialOption{grpc.WithTransportCredentials(felt{c.credentials(), p})}, c.grpcOptions()...), opts...)
	cc, err := grpc.NewClient(target, opts...)
	p.conn = cc
	return &conn{cc, p}, err
}

// Invoke implements grpc.ClientConnInterface.
func (c *conn) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	c.pulse.beginCall()
	defer c.pulse.endCall()
	return c.ClientConn.Invoke(ctx, method, req, resp, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.pulse.beginCall() // it may wait for a connection
	defer c.pulse.endCall()
	s, err := c.ClientConn.NewStream(ctx, desc, method, opts...)
	return feltStream{s, c.pulse}, err
}

// ready reports whether calls need not wait for a connection, which may take seconds if the node hangs. If none is being made, ready has one made.
func (c *conn) ready() bool {
	state := c.GetState()
	if state == connectivity.Idle {
		c.Connect()
	}
	return state == connectivity.Ready
}

type feltStream struct {
	grpc.ClientStream
	pulse *pulse
}

// SendMsg implements grpc.ClientStream.
func (s feltStream) SendMsg(m any) error {
	s.pulse.ask()
	return s.ClientStream.SendMsg(m)
}

// pulse closes a connection whose node hangs, so that its calls fail as unavailable and are retried at another node. gRPC's own pings take
// too long for that: it allows clients none more often than every 10 s, and the shards of a node that hangs have other leaders after 2 s.
//
// A node that is merely slow is left alone: anything that it sends is a sign of life, and it answers a probe without doing any work. A
// connection that is idle, receives something all the time, or has only streams on which nothing was sent since, is not probed: ten thousand
// workers without tasks must cost nothing, and gRPC's pings find a node that hangs under them.
type pulse struct {
	conn    *grpc.ClientConn
	calls   atomic.Int64 // in flight
	heard   atomic.Int64 // how often something was received
	asked   atomic.Int64 // 1 more than heard when a call last began, or something was last sent over a stream
	resting atomic.Bool  // the next look is later than firstLook, or there is none

	mu    sync.Mutex // guards the fields below
	raw   net.Conn   // the connection made last
	timer *time.Timer
	pause time.Duration // until the next look
	last  int64         // heard at the last look
}

func newPulse() *pulse {
	p := &pulse{}
	p.resting.Store(true)
	return p
}

// beginCall counts a call, until endCall.
func (p *pulse) beginCall() {
	p.calls.Add(1)
	p.ask()
}

func (p *pulse) endCall() { p.calls.Add(-1) }

// ask records that something was sent.
func (p *pulse) ask() {
	p.asked.Store(p.heard.Load() + 1)
	p.wake()
}

// wake has the connection looked at soon, now that an answer is owed.
func (p *pulse) wake() {
	if !p.resting.Load() || !p.resting.CompareAndSwap(true, false) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextLocked(firstLook)
}

func (p *pulse) nextLocked(pause time.Duration) {
	if p.pause = pause; p.timer == nil {
		p.timer = time.AfterFunc(pause, p.look)
	} else {
		p.timer.Reset(pause)
	}
}

// look probes the connection if an answer is owed and nothing was received since the last look, and looks again later if one still is.
func (p *pulse) look() {
	p.mu.Lock()
	last, pause := p.last, p.pause
	p.mu.Unlock()
	if p.owed() && p.heard.Load() == last {
		p.probe(last)
		pause = min(2*pause, maxLook)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = p.heard.Load()
	p.resting.Store(true) // first: a call that begins after the check has to see it
	if p.owed() {
		p.resting.Store(pause > firstLook)
		p.nextLocked(pause)
	}
}

// owed reports whether an answer is owed: there are calls, or something was sent and nothing received since. A closed connection gets none.
func (p *pulse) owed() bool {
	return (p.calls.Load() > 0 || p.asked.Load() == p.heard.Load()+1) && p.conn.GetState() != connectivity.Shutdown
}

// probe asks whether the node lives, and closes the connection if nothing was received since heard had the value last. If the probe ends late,
// this process was stopped, and has not yet read what arrived meanwhile: the next probe will show.
func (p *pulse) probe(last int64) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	stopped := time.Since(began) > probeTimeout+firstLook
	p.mu.Lock()
	defer p.mu.Unlock()
	if status.Code(err) == codes.DeadlineExceeded && !stopped && p.heard.Load() == last && p.raw != nil {
		_ = p.raw.Close()
	}
}

// felt are the credentials of a connection with a pulse.
type felt struct {
	credentials.TransportCredentials
	pulse *pulse
}

// ClientHandshake implements credentials.TransportCredentials.
func (f felt) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := f.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return conn, info, err
	}
	f.pulse.mu.Lock()
	f.pulse.raw = raw // closing it does not wait for a farewell of TLS
	f.pulse.mu.Unlock()
	return feltConn{conn, f.pulse}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (f felt) Clone() credentials.TransportCredentials {
	return felt{f.TransportCredentials.Clone(), f.pulse}
}

type feltConn struct {
	net.Conn
	pulse *pulse
}

// Read implements net.Conn.
func (c feltConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.pulse.heard.Add(1)
	}
	return n, err
}
