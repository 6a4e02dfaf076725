package listen

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/certs"
)

// acceptor accepts connections and passes each to the right server.
type acceptor struct {
	max        int
	perAddress int         // connections from one address
	tls        *tls.Config // nil: plaintext
	// authorities verify clients; nil: clients present no certificates
	authorities func() *certs.Trust
	log         *slog.Logger
	closed      chan struct{}

	mu       sync.Mutex
	listener net.Listener
	shut     bool
	conns    map[*sniffedConn]bool
	from     map[netip.Prefix]int // connections by address, except those from this machine
}

func newAcceptor(cfg Config) *acceptor {
	d := &acceptor{max: cfg.MaxConns, perAddress: cfg.MaxConnsPerAddress, log: cfg.Logger, closed: make(chan struct{}),
		conns: map[*sniffedConn]bool{}, from: map[netip.Prefix]int{}}
	if cfg.Certificate != nil {
		d.tls = newTLS(cfg.Certificate, cfg.ClientCertificates)
		d.authorities = cfg.ClientCertificates.Authorities
	}
	return d
}

func (d *acceptor) open(l net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listener = l
	return !d.shut
}

func (d *acceptor) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return
	}
	d.shut = true
	close(d.closed)
	if d.listener != nil {
		_ = d.listener.Close()
	}
	for c := range d.conns {
		if !c.routed {
			_ = c.raw.Close()
		}
	}
}

// cut closes all connections without TLS's close_notify, which may block.
func (d *acceptor) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.raw.Close()
	}
}

// acceptRetryPause is the pause after a failed accept: usually there are no file descriptors left, which passes.
const acceptRetryPause = 50 * time.Millisecond

func (d *acceptor) accept(l net.Listener, rpc, web *connQueue) error {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			d.admit(conn, rpc, web)
		case d.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF):
			return err
		default:
			time.Sleep(acceptRetryPause)
		}
	}
}

func (d *acceptor) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shut
}

// admit rejects a connection if there are too many.
func (d *acceptor) admit(conn net.Conn, rpc, web *connQueue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	address := originOf(conn)
	if d.shut || len(d.conns) >= d.max || address.IsValid() && d.from[address] >= d.perAddress {
		_ = conn.Close()
		return
	}
	if address.IsValid() {
		d.from[address]++
	}
	c := &sniffedConn{Conn: conn, raw: conn, acceptor: d, address: address}
	if d.tls != nil {
		c.Conn = tls.Server(conn, d.tls)
	}
	d.conns[c] = true
	go d.route(c, rpc, web)
}

// preface is the beginning of every HTTP/2 connection: PRI * HTTP/2.0.
const preface = "PRI"

// route reads the first bytes of a connection, which under TLS includes the handshake, and passes it to the right server.
func (d *acceptor) route(c *sniffedConn, rpc, web *connQueue) {
	_ = c.raw.SetDeadline(time.Now().Add(headerTimeout))
	_, err := io.ReadFull(c.Conn, c.prefix[:])
	_ = c.raw.SetDeadline(time.Time{})
	if err != nil && d.tls != nil {
		d.failed(c, err)
	}
	d.mu.Lock()
	c.routed = true
	d.mu.Unlock()
	c.head = c.prefix[:]
	if encrypted, ok := c.Conn.(*tls.Conn); ok && err == nil {
		state := encrypted.ConnectionState()
		c.state, c.clientCert = &state, certificateOf(state.PeerCertificates, d.authorities)
	}
	switch {
	case err != nil:
		_ = c.Close()
	case string(c.head) == preface:
		rpc.deliver(c)
	default:
		c.framing = new(framing)
		web.deliver(c)
	}
}

// sniffedConn is a connection whose first bytes have already been read.
type sniffedConn struct {
	net.Conn          // what to read from: raw, or TLS over it
	raw      net.Conn // as accepted
	acceptor *acceptor
	prefix   [len(preface)]byte
	head     []byte                    // to be read again
	framing  *framing                  // for HTTP/1.1; nil: it speaks gRPC
	deadline atomic.Pointer[time.Time] // for writing; nil: none

	state      *tls.ConnectionState // of TLS; nil: plaintext
	clientCert *auth.Certificate    // the client's; nil: none

	routed  bool         // whether the protocol is known; guarded by acceptor.mu
	address netip.Prefix // zero: this machine's own
}

// originOf returns what counts as the source of a connection; zero: this machine, or no address.
func originOf(conn net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || at.Addr().Unmap().IsLoopback() {
		return netip.Prefix{}
	}
	return SourceNetwork(at.Addr())
}

func (c *sniffedConn) Read(b []byte) (n int, err error) {
	if len(c.head) > 0 {
		n = copy(b, c.head)
		c.head = c.head[n:]
	} else {
		n, err = c.Conn.Read(b)
	}
	if c.framing != nil {
		c.framing.read(b[:n])
	}
	return n, err
}

const (
	// StallTime is how long a client may take to read a piece of an answer. Then it loses its connection.
	StallTime = time.Minute
	// stallPiece is the size of a piece over HTTP.
	stallPiece = 256 << 10
)

// Write implements net.Conn. Over HTTP each piece that the client has read moves the deadline, so that a long answer may take its time.
func (c *sniffedConn) Write(b []byte) (n int, err error) {
	for c.framing != nil && len(b)-n > stallPiece {
		m, err := c.Conn.Write(b[n : n+stallPiece])
		if n += m; err != nil {
			return n, err
		}
		if at := c.deadline.Load(); at != nil && time.Until(*at) < StallTime {
			_ = c.SetWriteDeadline(time.Now().Add(StallTime)) // not supported by in-memory connections
		}
	}
	m, err := c.Conn.Write(b[n:])
	return n + m, err
}

// SetWriteDeadline implements net.Conn.
func (c *sniffedConn) SetWriteDeadline(at time.Time) error {
	c.deadline.Store(nil)
	if !at.IsZero() {
		c.deadline.Store(&at)
	}
	return c.Conn.SetWriteDeadline(at)
}

func (c *sniffedConn) Close() error {
	c.acceptor.leave(c)
	return c.Conn.Close()
}

// leave stops counting a connection. It may be called twice.
func (d *acceptor) leave(c *sniffedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.conns[c] {
		return
	}
	delete(d.conns, c)
	if !c.address.IsValid() {
		return
	}
	if d.from[c.address]--; d.from[c.address] == 0 {
		delete(d.from, c.address)
	}
}

// connQueue is the listener of one of the servers.
type connQueue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{} // the acceptor's
	own    chan struct{}
	once   sync.Once
}

func newConnQueue(addr net.Addr, closed chan struct{}) *connQueue {
	return &connQueue{addr: addr, conns: make(chan net.Conn), closed: closed, own: make(chan struct{})}
}

func (p *connQueue) deliver(c net.Conn) {
	select {
	case p.conns <- c:
		return
	case <-p.closed:
	case <-p.own:
	}
	_ = c.Close()
}

func (p *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
	case <-p.own:
	}
	return nil, net.ErrClosed
}

func (p *connQueue) Close() error {
	p.once.Do(func() { close(p.own) })
	return nil
}

func (p *connQueue) Addr() net.Addr { return p.addr }

// SourceNetwork returns what counts as one source of calls: an address or, for IPv6, its /64 network, in which a machine has any
// number of addresses. It is zero for the zero address.
func SourceNetwork(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap()
	from, _ := ip.Prefix(min(ip.BitLen(), 64)) // fails only for the zero address
	return from
}
