// Package listen serves gRPC and HTTP/1.1 on one port: it limits connections, does the TLS handshake, verifies client certificates,
// tells the protocols apart by their first bytes, and connects clients within the process.
//
// It knows neither calls nor tokens: it hands connections to the gRPC server and the HTTP handler that it is given, which ask it for
// the certificate of a connection.
package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
)

const (
	defaultMaxConns = 20_000
	// defaultMaxConnsPerAddress keeps one machine from taking all connections, but lets a proxy have thousands of clients.
	defaultMaxConnsPerAddress = 5_000
	// headerTimeout bounds a connection's first bytes, and a request's headers.
	headerTimeout  = 5 * time.Second
	idleTimeout    = 120 * time.Second
	MaxHTTPHeaders = 32 << 10
)

// Config holds what a server needs.
type Config struct {
	Logger *slog.Logger
	// Certificate returns the server's certificate for a handshake; it may change between handshakes. Nil: plaintext.
	Certificate func() *tls.Certificate
	// ClientCertificates says which client certificates are accepted; zero: none. It requires Certificate.
	ClientCertificates ClientCertificates

	MaxConns           int // concurrent connections; 0: 20,000
	MaxConnsPerAddress int // of these from one address other than this machine's own; 0: 5,000

	// WriteTimeout bounds how long a request of HTTP may take to write its answer.
	WriteTimeout time.Duration
}

// Server serves gRPC and HTTP/1.1 on one port, and gRPC to clients within the process. Its methods may be called from any goroutine.
type Server struct {
	acceptor  *acceptor
	rpc       *grpc.Server
	web       *http.Server
	inProcess *connQueue // of clients in this process

	cut      context.CancelFunc // ends the contexts of HTTP requests
	handling sync.WaitGroup     // handlers of HTTP requests
	mu       sync.Mutex
	ended    bool // guarded by mu: no further handler may begin
}

// Limits returns how many connections there may be with these fields of a Config: in total, and from one address.
func Limits(conns, perAddress int) (total, fromOne int) {
	return cmp.Or(conns, defaultMaxConns), cmp.Or(perAddress, defaultMaxConnsPerAddress)
}

// New returns a server that does not serve yet. The gRPC server must have been made with GRPCOptions.
func New(cfg Config, rpc *grpc.Server, web http.Handler) *Server {
	cfg.MaxConns, cfg.MaxConnsPerAddress = Limits(cfg.MaxConns, cfg.MaxConnsPerAddress)
	s := &Server{acceptor: newAcceptor(cfg), rpc: rpc}
	requests, cut := context.WithCancel(context.Background())
	s.web, s.cut = newHTTP(cfg, s.awaited(web)), cut
	s.web.BaseContext = func(net.Listener) context.Context { return requests }
	s.inProcess = newConnQueue(InProcessAddr(""), s.acceptor.closed)
	return s
}

func newHTTP(cfg Config, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           lastIfAmbiguous(withTLS(handler)),
		ConnContext:       withConn,
		ReadHeaderTimeout: headerTimeout,
		// There is no ReadTimeout: it would end the context of a long poll. REST sets a deadline for each body.
		WriteTimeout:   cfg.WriteTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: MaxHTTPHeaders,
		ErrorLog:       slogLines(cfg.Logger),
		// net/http would answer OPTIONS * by itself, bypassing the handler.
		DisableGeneralOptionsHandler: true,
	}
}

// Serve serves the connections of a listener until Shutdown, which makes it return nil. The first bytes of a connection decide the
// protocol: gRPC begins with PRI, everything else is HTTP/1.1. So gRPC gets its own server, which is twice as fast as the one
// within net/http.
func (s *Server) Serve(l net.Listener) error {
	if !s.acceptor.open(l) {
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	rpc, web := newConnQueue(l.Addr(), s.acceptor.closed), newConnQueue(l.Addr(), s.acceptor.closed)
	var servers sync.WaitGroup
	servers.Go(func() { _ = s.rpc.Serve(rpc) })
	servers.Go(func() { _ = s.rpc.Serve(s.inProcess) })
	servers.Go(func() { _ = s.web.Serve(web) })
	err := s.acceptor.accept(l, rpc, web)
	s.acceptor.close()
	servers.Wait()
	return err
}

// awaited returns a handler for whose end Shutdown waits: net/http forgets the handlers of connections that it closes.
func (s *Server) awaited(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		ended := s.ended
		if !ended {
			s.handling.Add(1)
		}
		s.mu.Unlock()
		if ended {
			return // the connection is closed
		}
		defer s.handling.Done()
		handler.ServeHTTP(w, r)
	})
}

// Shutdown accepts no new connections, waits for calls and streams until ctx ends, and then cuts them off, which ends
// their contexts. When it returns, no handler runs any more, so that what they use can be closed.
func (s *Server) Shutdown(ctx context.Context) {
	s.acceptor.close()
	var ends sync.WaitGroup
	ends.Go(func() {
		if s.web.Shutdown(ctx) != nil {
			_ = s.web.Close()
		}
		s.cut() // net/http notices only while it reads a connection that it is closed
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		s.handling.Wait()
	})
	ends.Go(func() {
		done := make(chan struct{})
		go func() { s.rpc.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-ctx.Done():
			s.rpc.Stop()
			<-done
		}
	})
	ends.Wait()
}

// Abort immediately closes the listener and all connections, whatever is running: for a process that must exit and may be unable to
// finish, since its disk hangs.
func (s *Server) Abort() {
	s.acceptor.close()
	s.acceptor.cut()
}

// slogLines returns a logger for net/http's messages.
func slogLines(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
