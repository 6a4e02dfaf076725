package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/rest"

	"github.com/pawlq/pawl/internal/auth"
)

const (
	defaultMaxConns = 20_000
	// defaultMaxConnsPerAddress leaves room for others whatever one machine does, and lets a proxy have thousands of clients.
	defaultMaxConnsPerAddress = 5_000
	// headerTimeout is how long a connection may take for its first bytes, and a request for its headers.
	headerTimeout  = 5 * time.Second
	idleTimeout    = 120 * time.Second
	maxHTTPHeaders = 32 << 10
)

func (g *Gateway) newHTTP() *http.Server {
	return &http.Server{
		Handler:           lastIfAmbiguous(withTLS(g.withSQS(g.rest))),
		ConnContext:       withGuest,
		ReadHeaderTimeout: headerTimeout,
		// There is no ReadTimeout: it would end the context of a long poll. REST gives each body a time of its own.
		WriteTimeout:   rest.AnswerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHTTPHeaders,
		ErrorLog:       slogLines(g.log),
		// net/http would answer OPTIONS * by itself, past the handler.
		DisableGeneralOptionsHandler: true,
	}
}

// slogLines takes what net/http has to say.
func slogLines(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// Serve answers what comes over a listener until Shutdown, which makes it return nil. The first bytes of a connection say
// where it goes: gRPC begins with PRI, the rest is HTTP/1.1. So gRPC gets its own server, which is twice as fast as
// the one within net/http.
func (g *Gateway) Serve(l net.Listener) error {
	if !g.door.open(l) {
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	rpc, web := newPassage(l.Addr(), g.door.closed), newPassage(l.Addr(), g.door.closed)
	var servers sync.WaitGroup
	servers.Go(func() { _ = g.grpc.Serve(rpc) })
	servers.Go(func() { _ = g.grpc.Serve(g.inside) })
	servers.Go(func() { _ = g.http.Serve(web) })
	err := g.door.accept(l, rpc, web)
	g.door.close()
	servers.Wait()
	return err
}

// Shutdown takes no new connections, lets calls and streams end until ctx does, and then cuts them off.
func (g *Gateway) Shutdown(ctx context.Context) {
	g.health.Shutdown()
	g.door.close()
	var ends sync.WaitGroup
	ends.Go(func() {
		if g.http.Shutdown(ctx) != nil {
			_ = g.http.Close()
		}
	})
	ends.Go(func() {
		done := make(chan struct{})
		go func() { g.grpc.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-ctx.Done():
			g.grpc.Stop()
			<-done
		}
	})
	ends.Wait()
	cut := context.AfterFunc(ctx, g.stop)
	g.work.Wait() // claims that nobody received are given back
	cut()
	g.stop()
}

// Abort closes the listener and all connections at once, whatever runs, and lets nobody finish: for a process that must end
// and perhaps can't, since its disk hangs.
func (g *Gateway) Abort() {
	g.door.close()
	g.door.cut()
}

// door accepts connections and sends each the right way.
type door struct {
	max  int
	each int         // from one address
	tls  *tls.Config // nil: plaintext
	// authorities vouch for clients; nil: clients show no certificates
	authorities func() *x509.CertPool
	log         *slog.Logger
	closed      chan struct{}

	mu       sync.Mutex
	listener net.Listener
	shut     bool
	guests   map[*guest]bool
	from     map[netip.Prefix]int // guests by address, but for those of this machine
}

func newDoor(cfg Config) *door {
	d := &door{max: cfg.MaxConns, each: cfg.MaxConnsPerAddress, log: cfg.Logger, closed: make(chan struct{}), guests: map[*guest]bool{}, from: map[netip.Prefix]int{}}
	if cfg.Certificate != nil {
		d.tls = newTLS(cfg.Certificate, cfg.ClientCertificates)
		d.authorities = cfg.ClientCertificates.Authorities
	}
	return d
}

func (d *door) open(l net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listener = l
	return !d.shut
}

func (d *door) close() {
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
	for c := range d.guests {
		if !c.sorted {
			_ = c.raw.Close()
		}
	}
}

// cut closes all connections, without TLS's word of farewell, which may have to wait.
func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.guests {
		_ = c.raw.Close()
	}
}

// acceptRest is the pause after a failed accept: mostly there are no file descriptors, which passes.
const acceptRest = 50 * time.Millisecond

func (d *door) accept(l net.Listener, rpc, web *passage) error {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			d.admit(conn, rpc, web)
		case d.isShut():
			return nil
		case errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF):
			return err
		default:
			time.Sleep(acceptRest)
		}
	}
}

func (d *door) isShut() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shut
}

// admit turns a connection away if there are too many.
func (d *door) admit(conn net.Conn, rpc, web *passage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	address := originOf(conn)
	if d.shut || len(d.guests) >= d.max || address.IsValid() && d.from[address] >= d.each {
		_ = conn.Close()
		return
	}
	if address.IsValid() {
		d.from[address]++
	}
	c := &guest{Conn: conn, raw: conn, door: d, address: address}
	if d.tls != nil {
		c.Conn = tls.Server(conn, d.tls)
	}
	d.guests[c] = true
	go d.sort(c, rpc, web)
}

// preface is how every HTTP/2 connection begins: PRI * HTTP/2.0.
const preface = "PRI"

// sort reads the first bytes of a connection, which under TLS makes the handshake, and sends it the right way.
func (d *door) sort(c *guest, rpc, web *passage) {
	_ = c.raw.SetDeadline(time.Now().Add(headerTimeout))
	_, err := io.ReadFull(c.Conn, c.room[:])
	_ = c.raw.SetDeadline(time.Time{})
	if err != nil && d.tls != nil {
		d.failed(c, err)
	}
	d.mu.Lock()
	c.sorted = true
	d.mu.Unlock()
	c.head = c.room[:]
	if encrypted, ok := c.Conn.(*tls.Conn); ok && err == nil {
		state := encrypted.ConnectionState()
		c.state, c.shown = &state, certificateOf(state.PeerCertificates, d.authorities)
	}
	switch {
	case err != nil:
		_ = c.Close()
	case string(c.head) == preface:
		rpc.give(c)
	default:
		c.framing = new(framing)
		web.give(c)
	}
}

// guest is a connection whose first bytes were read already.
type guest struct {
	net.Conn          // what is spoken on: raw, or TLS over it
	raw      net.Conn // as it was accepted
	door     *door
	room     [len(preface)]byte
	head     []byte   // to be read again
	framing  *framing // of HTTP/1.1; nil: it speaks gRPC

	state *tls.ConnectionState // of TLS; nil: plaintext
	shown *auth.Certificate    // by the client; nil: none

	sorted  bool         // it has said what it is; guarded by door.mu
	address netip.Prefix // zero: this machine's own
}

// originOf is what counts as the one source of a connection; zero: it comes from this machine, or from no address.
func originOf(conn net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || at.Addr().Unmap().IsLoopback() {
		return netip.Prefix{}
	}
	return sourceNetwork(at.Addr())
}

func (c *guest) Read(b []byte) (n int, err error) {
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

func (c *guest) Close() error {
	c.door.leave(c)
	return c.Conn.Close()
}

// leave counts a guest no more. It may leave twice.
func (d *door) leave(c *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.guests[c] {
		return
	}
	delete(d.guests, c)
	if !c.address.IsValid() {
		return
	}
	if d.from[c.address]--; d.from[c.address] == 0 {
		delete(d.from, c.address)
	}
}

// passage is the listener of one of the servers.
type passage struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{} // the door's
	own    chan struct{}
	once   sync.Once
}

func newPassage(addr net.Addr, closed chan struct{}) *passage {
	return &passage{addr: addr, conns: make(chan net.Conn), closed: closed, own: make(chan struct{})}
}

func (p *passage) give(c net.Conn) {
	select {
	case p.conns <- c:
		return
	case <-p.closed:
	case <-p.own:
	}
	_ = c.Close()
}

func (p *passage) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
	case <-p.own:
	}
	return nil, net.ErrClosed
}

func (p *passage) Close() error {
	p.once.Do(func() { close(p.own) })
	return nil
}

func (p *passage) Addr() net.Addr { return p.addr }
