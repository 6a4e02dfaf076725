package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// pipes is a listener for in-memory connections.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7295} }

func (p *pipes) dial(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// serve runs a gateway on pipes until the test ends.
func serve(t testing.TB, f *fake) (*Gateway, *pipes) {
	g, l := newGateway(f), newPipes()
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return g, l
}

func dial(t testing.TB, l *pipes) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///pawl", grpc.WithContextDialer(l.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20),
			grpc.MaxCallSendMsgSize(32<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestGRPCAndRESTShareAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := serve(t, f)
		conn := dial(t, l)
		var trailer metadata.MD
		got, err := pawlv1.NewProducerServiceClient(conn).Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a",
			Payload: []byte(`{"n":1}`)}}, grpc.Trailer(&trailer))
		if err != nil {
			t.Fatal(err)
		}
		if s := trailer.Get("pawl-shard"); len(s) != 1 || s[0] != "1" || len(trailer.Get("pawl-index")) != 1 ||
			len(trailer.Get("pawl-time")) != 1 || len(trailer.Get("pawl-leader")) != 0 {
			t.Errorf("trailers = %v", trailer)
		}
		if n := g.access.Calls.InUse(); n != 0 {
			t.Errorf("%d calls are in use after the only one ended", n)
		}
		web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return l.dial(ctx, addr)
		}}}
		defer web.CloseIdleConnections()
		resp, err := web.Get(ours + "/api/v1/tasks/" + got.Task.TaskId)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(body), `"payload":{"n":1}`) {
			t.Errorf("REST got %s: %s", resp.Status, body)
		}
		h, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health = %v, %v, want serving", h, err)
		}
	})
}

// A node that is not ready reports so to both kinds of probes, but still serves calls.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := newGateway(f), newPipes()
		var why atomic.Pointer[task.Error]
		g.cfg.Ready = func() error {
			if e := why.Load(); e != nil {
				return e
			}
			return nil
		}
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		conn := dial(t, l)
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			why    *task.Error
			status grpc_health_v1.HealthCheckResponse_ServingStatus
			http   int
			says   string
		}{
			{nil, grpc_health_v1.HealthCheckResponse_SERVING, 200, `"status":"ok"`},
			{task.Unavailable(0, "the map of the cluster is 31s old"), grpc_health_v1.HealthCheckResponse_NOT_SERVING, 503,
				`"status":"the map of the cluster is 31s old"`},
			{nil, grpc_health_v1.HealthCheckResponse_SERVING, 200, `"status":"ok"`},
		} {
			why.Store(c.why)
			h, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			if err != nil || h.Status != c.status {
				t.Errorf("readiness %v: health = %v, %v", c.why, h, err)
			}
			if h, err := watch.Recv(); err != nil || h.Status != c.status {
				t.Errorf("readiness %v: health watch got %v, %v", c.why, h, err)
			}
			if all, err := grpc_health_v1.NewHealthClient(conn).List(t.Context(), &grpc_health_v1.HealthListRequest{}); err != nil ||
				all.Statuses[""].GetStatus() != c.status {
				t.Errorf("readiness %v: health list = %v, %v", c.why, all, err)
			}
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, httptest.NewRequest("GET", ours+"/readyz", nil))
			if w.Code != c.http || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("readiness %v: readyz = %d: %s", c.why, w.Code, w.Body)
			}
		}
		why.Store(task.Unavailable(0, "no map")) // no probe has asked since
		if all, err := grpc_health_v1.NewHealthClient(conn).List(t.Context(), &grpc_health_v1.HealthListRequest{}); err != nil ||
			all.Statuses[""].GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health list = %v, %v, want not serving", all, err)
		}
		why.Store(nil)
		again, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := again.Recv(); err != nil || h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("a new health watch got %v, %v, want serving", h, err)
		}
		conn.Close()
		g.Shutdown(t.Context())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// The health service knows its own node's name only, and lists none: whoever asks must know it.
func TestNodeIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := newGateway(f), newPipes()
		g.cfg.ClusterID, g.cfg.Node = "c1", "n1"
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		conn := dial(t, l)
		client := grpc_health_v1.NewHealthClient(conn)
		for name, want := range map[string]codes.Code{pawlv1.NodeService("c1", "n1"): codes.OK, pawlv1.NodeService("c1",
			"n2"): codes.NotFound,
			pawlv1.NodeService("c2", "n1"): codes.NotFound} {
			h, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
			if status.Code(err) != want || err == nil && h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
				t.Errorf("health of %q: %v, %v", name, h, err)
			}
		}
		if all, err := client.List(t.Context(), &grpc_health_v1.HealthListRequest{}); err != nil || len(all.Statuses) != 1 {
			t.Errorf("health list = %v, %v, want the status of the server only", all, err)
		}
		conn.Close()
		g.Shutdown(t.Context())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Queues are read from the system shard, and a call that can't read them returns the reason.
func TestUnreadableQueues(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	f.cluster = task.Unavailable(time.Second, "no leader")
	ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	o := g.services.operator
	for name, call := range map[string]func() error{
		"get":  func() error { _, err := o.GetQueue(ctx, &pawlv1.GetQueueRequest{Queue: "q"}); return err },
		"list": func() error { _, err := o.ListQueues(ctx, &pawlv1.ListQueuesRequest{}); return err },
		"tasks": func() error {
			_, err := g.services.producer.ListTasks(ctx, &pawlv1.ListTasksRequest{Filter: &pawlv1.Filter{Queue: new("q")}})
			return err
		},
	} {
		if err := call(); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
	}
}

// The table of errors, with the codes of each in gRPC and in REST.
func TestRefusalsAsCodes(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	for _, c := range []struct {
		err  error
		grpc codes.Code
		http int
	}{
		{task.Invalid("queue", "bad"), codes.InvalidArgument, 400},
		{&task.Error{Code: task.CodeUnauthenticated}, codes.Unauthenticated, 401},
		{&task.Error{Code: task.CodePermissionDenied}, codes.PermissionDenied, 403},
		{task.NotFound("task", "x"), codes.NotFound, 404},
		{&task.Error{Code: task.CodeConflict}, codes.AlreadyExists, 409},
		{&task.Error{Code: task.CodeStaleClaim, Reason: task.StaleReclaimed, Holder: "w7"}, codes.FailedPrecondition, 409},
		{task.WrongState("cancel", task.ID{}, task.Dead), codes.FailedPrecondition, 409},
		{&task.Error{Code: task.CodePayloadTooLarge}, codes.InvalidArgument, 413},
		{&task.Error{Code: task.CodeQueueFull}, codes.ResourceExhausted, 429},
		{&task.Error{Code: task.CodeRateLimited}, codes.ResourceExhausted, 429},
		{task.Unavailable(3*time.Second, "no leader"), codes.Unavailable, 503},
		{task.Unavailable(0, "no leader"), codes.Unavailable, 503},
		{context.Canceled, codes.Unavailable, 503},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), codes.Unavailable, 503},
		{fmt.Errorf("wrapped: %w", task.Invalid("x", "y")), codes.InvalidArgument, 400},
		{errors.New("secret"), codes.Internal, 500},
	} {
		st := status.Convert(g.Status(t.Context(), c.err))
		if st.Code() != c.grpc || len(st.Details()) != 1 || strings.Contains(st.Message(), "secret") {
			t.Errorf("%v: gRPC status = %v", c.err, st)
			continue
		}
		detail := st.Details()[0].(*pawlv1.Error)
		e := g.Refusal(c.err)
		if detail.Code != string(e.Code) || detail.Reason != e.Reason || detail.Holder != e.Holder || detail.Field != e.Field ||
			detail.State != apiproto.StateProto(e.State) || detail.RetryAfter.AsDuration() != e.RetryAfter {
			t.Errorf("%v: error detail = %v", c.err, detail)
		}
		if retry := c.grpc == codes.Unavailable || c.grpc == codes.ResourceExhausted; retry != (e.RetryAfter > 0) {
			t.Errorf("%v: retry after = %v", c.err, e.RetryAfter)
		}
		if contract.StatusOf(e.Code).HTTP != c.http {
			t.Errorf("%v: REST status = %d, want %d", c.err, contract.StatusOf(e.Code).HTTP, c.http)
		}
	}
}

func TestPanicEndsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f)
		p := pawlv1.NewProducerServiceClient(dial(t, l))
		f.panics = true
		_, err := p.Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}})
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "planted") {
			t.Errorf("call that panicked: %v, want an internal error", err)
		}
		f.panics = false
		if _, err := p.Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}}); err != nil {
			t.Errorf("call after a panic: %v", err)
		}
	})
}

// Connections that send nothing or too little are disconnected.
func TestSlowConnectionsAreCutOff(t *testing.T) {
	for name, say := range map[string]string{"nothing": "", "two bytes": "GE",
		"half a request": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "half a preface": "PRI * HTTP/2.0\r\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := serve(t, newFake())
				c, _ := l.dial(t.Context(), "")
				go io.WriteString(c, say)
				start := time.Now()
				_, err := io.Copy(io.Discard, c)
				if took := time.Since(start); took < headerTime || took > headerTime+time.Second {
					t.Errorf("disconnected after %v (%v), want %v", took, err, headerTime)
				}
			})
		})
	}
}

// A gRPC connection without calls is closed, although its client answers pings.
func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		conn := dial(t, l)
		client := grpc_health_v1.NewHealthClient(conn)
		call := func() {
			if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Error(err)
			}
		}
		for range 5 {
			call()
			pass(idleTime - time.Second)
			if s := conn.GetState(); s != connectivity.Ready {
				t.Fatalf("the connection is %v after less than %v without a call", s, idleTime)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		pass(10 * idleTime)
		if s := conn.GetState(); s != connectivity.Ready {
			t.Errorf("the connection of a call that goes on is %v", s)
		}
		cancel()
		pass(idleTime + time.Second)
		if s := conn.GetState(); s != connectivity.Idle {
			t.Errorf("the connection is %v after %v without a call", s, idleTime)
		}
		call() // connects again
		conn.Close()
	})
}

// This holds even if no handler reads the body, because the server keeps reading after the handler.
func TestSlowBodyIsRefused(t *testing.T) {
	for _, path := range []string{"/api/v1/tasks", "/api/v1/tasks?x=1", "/healthz"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := serve(t, newFake())
				c, _ := l.dial(t.Context(), "")
				go io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
				start := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || resp.StatusCode/100 != 4 || time.Since(start) > rest.BodyTimeout+time.Second {
					t.Errorf("response = %v, %v after %v, want status 4xx in time", resp, err, time.Since(start))
				}
				c.Close()
			})
		})
	}
}

// A long poll may outlast the time limits of other calls.
func TestLongPollOutlastsTheBodyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f)
		c, _ := l.dial(t.Context(), "")
		body := `{"queues":["q"],"wait":"60s"}`
		go fmt.Fprintf(c, "POST /api/v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		start := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 200 || time.Since(start) != time.Minute {
			t.Errorf("response = %v, %v after %v, want status 200 after 1m", resp, err, time.Since(start))
		}
		c.Close()
	})
}

func TestLargeBodiesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		for _, head := range []string{"Content-Length: 16777217\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"} {
			c, _ := l.dial(t.Context(), "")
			go func() {
				io.WriteString(c, "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n"+head)
				chunk := strings.Repeat("x", 1<<20)
				for range 17 {
					if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(chunk), chunk); err != nil {
						return
					}
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != 413 || resp.Header.Get("Connection") != "close" && !resp.Close {
				t.Errorf("%q: response = %v, %v, want status 413 and a closed connection", head, resp, err)
			}
			c.Close()
		}
		_, err := pawlv1.NewProducerServiceClient(dial(t, l)).Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a",
			Payload: make([]byte, 17<<20)}})
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("gRPC: %v, want resource exhausted", err)
		}
	})
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.maxConns = 2
		_, l := serve(t, f)
		var conns []net.Conn
		for range 3 {
			c, _ := l.dial(t.Context(), "")
			conns = append(conns, c)
		}
		if _, err := conns[2].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read from the third connection: %v, want EOF", err)
		}
		conns[0].Close()
		synctest.Wait()
		c, _ := l.dial(t.Context(), "")
		go io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if b, err := io.ReadAll(c); err != nil || !strings.Contains(string(b), "200 OK") {
			t.Errorf("connection after another was closed: %q, %v", b, err)
		}
		conns[1].Close()
	})
}

// Shutdown lets calls in progress end, and disconnects a stream at its deadline.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.busy = make(chan struct{})
		g, l := newGateway(f), newPipes()
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		conn := dial(t, l)
		health, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := health.Recv(); err != nil || h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health before Shutdown = %v, %v, want serving", h, err)
		}
		stuck, _ := l.dial(t.Context(), "")
		go io.WriteString(stuck, "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n"+`{"type":"a"}`)
		stream, err := pawlv1.NewWorkerServiceClient(conn).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pawlv1.WorkRequest{Hello: hello("q"), Grant: 1}); err != nil {
			t.Fatal(err)
		}
		polled := make(chan error, 1)
		go func() {
			_, err := pawlv1.NewWorkerServiceClient(conn).Claim(t.Context(), &pawlv1.ClaimRequest{Queues: hello("p").Queues,
				Wait: durationpb.New(time.Minute)})
			polled <- err
		}()
		synctest.Wait()
		close(f.draining)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		start := time.Now()
		g.Shutdown(ctx)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("Shutdown returned after %v, want 10s", took)
		}
		if err := <-polled; err != nil {
			t.Errorf("the long poll ended with %v, want an empty response", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
		if h, err := health.Recv(); err != nil || h.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health after Shutdown = %v, %v, want not serving", h, err)
		}
		if b, err := io.ReadAll(stuck); err != nil || len(b) != 0 {
			t.Errorf("a request in progress at the deadline got %q, %v, want nothing", b, err)
		}
		close(f.busy)
		if r, err := stream.Recv(); err != nil || !r.Draining {
			t.Errorf("the stream got %v, %v, want a draining notice", r, err)
		}
		if _, err := stream.Recv(); err == nil {
			t.Error("the stream continued after Shutdown")
		}
		if err := g.Serve(newPipes()); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve after Shutdown: %v", err)
		}
	})
}

// Abort disconnects all clients without waiting for calls, and accepts no new ones.
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		stream, err := pawlv1.NewWorkerServiceClient(dial(t, l)).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pawlv1.WorkRequest{Hello: hello("q"), Grant: 1}); err != nil {
			t.Fatal(err)
		}
		idle, _ := l.dial(t.Context(), "") // it has sent nothing yet
		web, _ := l.dial(t.Context(), "")
		go io.WriteString(web, "POST /api/v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: 29\r\n\r\n"+
			`{"queues":["q"],"wait":"30s"}`)
		synctest.Wait()
		start := time.Now()
		g.Abort()
		if _, err := stream.Recv(); err == nil {
			t.Error("the stream continued after Abort")
		}
		if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("idle connection: %v, want EOF", err)
		}
		if _, err := io.ReadAll(web); err != nil {
			t.Errorf("HTTP connection: %v", err)
		}
		if c, err := l.dial(t.Context(), ""); err == nil {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a new connection was served after Abort")
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Abort and the disconnections took %v", took)
		}
	})
}

// A client that watches a node's health is notified of a change within two seconds.
func TestReadinessIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := newGateway(newFake()), newPipes()
		var ready atomic.Bool
		ready.Store(true)
		g.cfg.Ready = func() error {
			if ready.Load() {
				return nil
			}
			return task.Unavailable(0, "no leader")
		}
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		conn := dial(t, l)
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{true, false, true} {
			ready.Store(want)
			began := time.Now()
			h, err := watch.Recv()
			if err != nil || (h.Status == grpc_health_v1.HealthCheckResponse_SERVING) != want || time.Since(began) > 2*readyEvery {
				t.Errorf("after %s health watch got %v, %v, want serving %t", time.Since(began), h, err, want)
			}
		}
		conn.Close()
		g.Shutdown(t.Context())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// A client in the process waits for a gateway no longer than its context, and not for one that has shut down.
func TestInProcessDialEnds(t *testing.T) {
	g := newGateway(newFake())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := g.DialInProcess(gone, "h"); c != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("DialInProcess with a cancelled context = %v, %v", c, err)
	}
	g.Shutdown(context.Background())
	if c, err := g.DialInProcess(t.Context(), "h"); c != nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("DialInProcess after Shutdown = %v, %v", c, err)
	}
}

// These have the values in package listen.
const (
	headerTime  = 5 * time.Second
	idleTime    = 120 * time.Second
	acceptPause = 50 * time.Millisecond
	pingPause   = 5 * time.Second
)

// badListener fails to accept as scripted, and then accepts in-memory connections.
type badListener struct {
	*pipes
	fails []error
}

func (l *badListener) Accept() (net.Conn, error) {
	if len(l.fails) > 0 {
		err := l.fails[0]
		l.fails = l.fails[1:]
		return nil, err
	}
	return l.pipes.Accept()
}

// A failed accept is retried after a while. A closed listener ends the server and its connections.
func TestFailingListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(newFake())
		l := &badListener{newPipes(), []error{errors.New("too many open files"), errors.New("too many open files")}}
		served, began := make(chan error, 1), time.Now()
		go func() { served <- g.Serve(l) }()
		c, err := l.dial(t.Context(), "")
		if took := time.Since(began); err != nil || took != 2*acceptPause {
			t.Errorf("accepted after %v, want %v (%v)", took, 2*acceptPause, err)
		}
		_ = l.Close()
		err = <-served
		if _, shut := g.DialInProcess(t.Context(), "h"); !errors.Is(err, net.ErrClosed) || !errors.Is(shut, net.ErrClosed) {
			t.Errorf("Serve with a closed listener = %v, DialInProcess after it %v", err, shut)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection that had sent nothing is still open")
		}
		if l, err := newPipes(), g.Serve(newPipes()); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("second Serve on %v = %v, want server closed", l, err)
		}
		for _, end := range []error{io.EOF, net.ErrClosed} {
			g := newGateway(newFake())
			if err := g.Serve(&badListener{newPipes(), []error{end}}); err != end {
				t.Errorf("Serve = %v, want %v", err, end)
			}
		}
	})
}

// panickyLeaders panics when asked for a leader.
type panickyLeaders struct{ Broker }

func (panickyLeaders) Leader(context.Context, uint32) (node, term, index uint64) { panic("planted") }

// A caller who may not see the cluster learns whether a node is ready, and nothing about its shards. The same holds for a caller with a
// wrong token.
func TestReadinessHidesDetails(t *testing.T) {
	k := newTokenSet()
	k.add("boss", auth.Everything)
	k.add("team", auth.Rights{Namespace: "team", Roles: auth.Admin})
	g := lockedGateway(t, k)
	g.cfg.Broker = panickyLeaders{g.cfg.Broker}
	g.wire()
	if w := knock(g, "GET", "/readyz", k.secret["boss"], ""); w.Code != http.StatusInternalServerError {
		t.Errorf("readyz when the broker panics: %d %s", w.Code, w.Body)
	}
	for name, knows := range map[string]bool{"": false, "nobody": false, "team": false, "boss": true} {
		g := lockedGateway(t, k)
		secret := k.secret[name]
		if name == "nobody" {
			secret = bearer.New()
		}
		w := knock(g, "GET", "/readyz", secret, "")
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "shard") != knows {
			t.Errorf("token %q, ready node: %d %s", name, w.Code, w.Body)
		}
		f := g.cfg.Broker.(*fake)
		f.set(func() { f.leader = 0 })
		w = knock(g, "GET", "/readyz", secret, "")
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "shard") != knows ||
			strings.Contains(w.Body.String(),
				"not ready") == knows {
			t.Errorf("token %q, node that is not ready: %d %s", name, w.Code, w.Body)
		}
	}
}
