package listen

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/task"
)

// Waiting answers on a listener while the node can't serve yet, with the TLS and the limits that a Server of the same Config has: the
// process is alive, it is not ready, and every call gets unavailable with the reason. Anybody may ask, so the reason must not reveal
// anything.
type Waiting struct {
	base   string // optional prefix of paths
	why    func() string
	refuse Refuser
	server *Server
	shared *sharedListener
	done   sync.WaitGroup
}

// Refuser refuses the requests of a protocol that has errors of its own, and reports whether a request was one.
type Refuser func(http.ResponseWriter, *http.Request, *task.Error) bool

const (
	// waitingRetry is when a call to a node that waits may be repeated.
	waitingRetry = time.Second
	// lastAnswers bounds the wait for answers that are being written when the node begins to serve.
	lastAnswers = 5 * time.Second
)

// Wait starts answering on l. why returns what the node waits for.
func Wait(cfg Config, l net.Listener, basePath string, why func() string, refuse Refuser) *Waiting {
	w := &Waiting{base: basePath, why: why, refuse: refuse}
	w.shared = &sharedListener{Listener: l, accepted: make(chan accepted), closed: make(chan struct{})}
	rpc := grpc.NewServer(append(GRPCOptions(), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return w.refusal() }))...)
	grpc_health_v1.RegisterHealthServer(rpc, waitingHealth{w: w})
	w.server = New(cfg, rpc, w)
	w.server.web.SetKeepAlivesEnabled(false) // the next request is for the server that follows
	first := w.shared.turn(false)
	w.done.Go(w.shared.accept)
	w.done.Go(func() { _ = w.server.Serve(first) }) // the server that follows sees the listener's error
	return w
}

// Next stops answering, and returns the listener for the server that follows, which closes it. Drained must be called after that.
func (w *Waiting) Next() net.Listener {
	w.server.acceptor.close()
	return w.shared.turn(true)
}

// Drained returns when the last answers have been written.
func (w *Waiting) Drained() {
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	w.server.Shutdown(ctx)
}

// Close stops answering, and closes the listener.
func (w *Waiting) Close() {
	w.server.Abort()
	_ = w.shared.Close()
	w.Drained()
	w.done.Wait()
}

func (w *Waiting) err() *task.Error { return task.Unavailable(waitingRetry, "%s", w.why()) }

// refusal returns the status of a call.
func (w *Waiting) refusal() error {
	e := w.err()
	st := status.New(contract.StatusOf(e.Code).GRPC, e.Message)
	if with, err := st.WithDetails(contract.ErrorProto(e)); err == nil {
		st = with
	}
	return st.Err()
}

// ServeHTTP answers a request over HTTP/1.1.
func (w *Waiting) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	e := w.err()
	if w.refuse(to, r, e) {
		return
	}
	to.Header().Set("X-Content-Type-Options", "nosniff")
	path := r.URL.Path
	if below, ok := strings.CutPrefix(path, w.base); ok {
		path = below
	}
	switch path {
	case "/healthz":
		answer(to, http.StatusOK, "application/json", readiness{"ok"})
	case "/readyz":
		answer(to, http.StatusServiceUnavailable, "application/json", readiness{e.Message})
	default:
		to.Header().Set("Retry-After", "1")
		p := problemOf(e)
		answer(to, p.Status, "application/problem+json", p)
	}
}

// readiness is the answer to probes, as that of rest.
type readiness struct {
	Status string `json:"status"`
}

// problem is an error of HTTP, as those of rest.
type problem struct {
	Type       string    `json:"type"`
	Title      string    `json:"title"`
	Status     int       `json:"status"`
	Detail     string    `json:"detail"`
	Code       task.Code `json:"code"`
	RetryAfter string    `json:"retry_after,omitempty"`
}

func problemOf(e *task.Error) problem {
	as := contract.StatusOf(e.Code)
	p := problem{Type: "urn:pawl:error:" + string(e.Code), Title: as.Title, Status: as.HTTP, Detail: e.Message, Code: e.Code}
	if e.RetryAfter > 0 {
		p.RetryAfter = humanize.DurationText(e.RetryAfter)
	}
	return p
}

func answer(to http.ResponseWriter, code int, contentType string, body any) {
	to.Header().Set("Content-Type", contentType)
	to.WriteHeader(code)
	_ = json.NewEncoder(to).Encode(body) // if this fails, the caller is gone
}

// waitingHealth is gRPC's health service of a node that waits.
type waitingHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	w *Waiting
}

// Check implements grpc_health_v1.HealthServer.
func (waitingHealth) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
}

// Watch implements grpc_health_v1.HealthServer. It ends at once: a stream would have to end when the node begins to serve.
func (h waitingHealth) Watch(_ *grpc_health_v1.HealthCheckRequest, to grpc_health_v1.Health_WatchServer) error {
	_ = to.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING})
	return h.w.refusal()
}

// sharedListener lets one server after another accept the connections of a listener.
type sharedListener struct {
	net.Listener
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

// accept accepts connections until the listener is closed, for whichever server asks for one.
func (s *sharedListener) accept() {
	for {
		conn, err := s.Listener.Accept()
		select {
		case s.accepted <- accepted{conn, err}:
		case <-s.closed:
			if err == nil {
				_ = conn.Close()
			}
			return
		}
	}
}

// Close implements net.Listener.
func (s *sharedListener) Close() (err error) {
	s.once.Do(func() {
		close(s.closed)
		err = s.Listener.Close()
	})
	return err
}

// turn is the part of a server in a shared listener.
type turn struct {
	*sharedListener
	over chan struct{}
	once sync.Once
	last bool // the listener is closed with it
}

func (s *sharedListener) turn(last bool) *turn {
	return &turn{sharedListener: s, over: make(chan struct{}), last: last}
}

// Accept implements net.Listener.
func (t *turn) Accept() (net.Conn, error) {
	select {
	case a := <-t.accepted:
		return a.conn, a.err
	case <-t.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (t *turn) Close() (err error) {
	t.once.Do(func() {
		close(t.over)
		if t.last {
			err = t.sharedListener.Close()
		}
	})
	return err
}
