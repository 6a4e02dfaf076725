package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
)

// rudeClient speaks HTTP/2 frame by frame, in ways that no gRPC client does.
type rudeClient struct {
	t      *testing.T
	c      net.Conn
	f      *http2.Framer
	next   uint32
	ended  map[uint32]chan ending
	closed chan struct{}

	writing sync.Mutex
}

// ending is the status that a call ended with.
type ending struct {
	code codes.Code
	said string
	at   time.Time
}

func newRudeClient(t *testing.T, dial func(context.Context, string) (net.Conn, error)) *rudeClient {
	conn, err := dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r := &rudeClient{t: t, c: conn, f: http2.NewFramer(conn, conn), next: 1, ended: map[uint32]chan ending{}, closed: make(chan struct{})}
	r.f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for i := uint32(1); i < 100; i += 2 {
		r.ended[i] = make(chan ending, 1)
	}
	go r.read()
	_, _ = io.WriteString(conn, http2.ClientPreface)
	r.write(func() error { return r.f.WriteSettings() })
	return r
}

func (r *rudeClient) close() {
	_ = r.c.Close()
	<-r.closed
}

func (r *rudeClient) read() {
	defer close(r.closed)
	for {
		frame, err := r.f.ReadFrame()
		if err != nil {
			return
		}
		if p, ok := frame.(*http2.PingFrame); ok && !p.IsAck() {
			r.write(func() error { _ = r.f.WritePing(true, p.Data); return nil }) // the connection may be closed by now
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			e := ending{at: time.Now()}
			for _, field := range h.Fields {
				switch field.Name {
				case "grpc-status":
					n, _ := strconv.Atoi(field.Value)
					e.code = codes.Code(n)
				case "grpc-message":
					e.said = field.Value
				}
			}
			r.ended[h.StreamID] <- e
		}
	}
}

// call starts a call and sends only its headers.
func (r *rudeClient) call(method, token string, more ...string) (stream uint32) {
	stream = r.next
	r.next += 2
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc",
		"te", "trailers"}, more...)
	if token != "" {
		fields = append(fields, "authorization", "Bearer "+token)
	}
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	r.write(func() error {
		return r.f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true})
	})
	return stream
}

func (r *rudeClient) write(frame func() error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	if err := frame(); err != nil {
		r.t.Error(err)
	}
}

// announce sends the header of a message of the given size, and some of its bytes.
func (r *rudeClient) announce(stream uint32, flag byte, size int, some []byte) {
	head := append([]byte{flag}, binary.BigEndian.AppendUint32(nil, uint32(size))...)
	for piece := range slices.Chunk(append(head, some...), 16<<10) {
		r.write(func() error { return r.f.WriteData(stream, false, piece) })
	}
}

func (r *rudeClient) send(stream uint32, m proto.Message, end bool) {
	b, err := proto.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.announce(stream, 0, len(b), b)
	if end {
		r.write(func() error { return r.f.WriteData(stream, true, nil) })
	}
}

// wants waits for the end of a call.
func (r *rudeClient) wants(what string, stream uint32, code codes.Code, words string, after time.Duration, began time.Time) {
	r.t.Helper()
	select {
	case e := <-r.ended[stream]:
		if took := e.at.Sub(began); e.code != code || !strings.Contains(e.said, words) || took != after {
			r.t.Errorf("%s: %v %q after %v, want %v %q after %v", what, e.code, e.said, took, code, words, after)
		}
	case <-time.After(5 * time.Minute): // by the test's own clock
		r.t.Errorf("%s: the call has not ended, want %v %q", what, code, words)
	}
}

func (r *rudeClient) goesOn(what string, stream uint32) {
	r.t.Helper()
	synctest.Wait()
	select {
	case e := <-r.ended[stream]:
		r.t.Errorf("%s: ended with %v %q, want it to continue", what, e.code, e.said)
	default:
	}
}

const (
	rpcEnqueue = "/pawl.v1.ProducerService/Enqueue"
	rpcWork    = "/pawl.v1.WorkerService/Work"
	rpcWatch   = "/pawl.v1.EventService/WatchEvents"
	rpcCheck   = "/grpc.health.v1.Health/Check"
)

// A caller is refused after its headers alone, whatever message it announces and never sends.
func TestHeadersAreEnoughToRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		worker := k.add("worker", auth.Rights{Namespace: "team", Roles: auth.Consume})
		g, l := lockedGateway(t, k), newPipes()
		go func() { _ = g.Serve(l) }()
		c, began := newRudeClient(t, l.dial), time.Now()
		for _, method := range []string{rpcEnqueue, rpcWork, rpcWatch} {
			c.wants(method+" without a token", c.call(method, ""), codes.Unauthenticated, "token", 0, began)
			c.wants(method+" with an unknown one", c.call(method, bearer.New()), codes.Unauthenticated, "", 0, began)
			if method != rpcWork {
				c.wants(method+" without the role", c.call(method, worker), codes.PermissionDenied, "this call needs", 0, began)
			}
		}
		c.close()
		g.Shutdown(context.Background())
		synctest.Wait()
	})
}

// A message has as long to arrive as a REST body, whether all of it is missing, its length, its rest or its end. If it arrives later, it is
// not executed.
func TestSlowMessagesAreRefused(t *testing.T) {
	const late = "did not arrive in full within 30s"
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		_, l := serve(t, f)
		c, began := newRudeClient(t, l.dial), time.Now()
		calls := map[string]uint32{}
		for _, method := range []string{rpcEnqueue, rpcWork, rpcWatch, rpcCheck} {
			calls[method+" with headers"] = c.call(method, "")
			part := c.call(method, "")
			c.announce(part, 0, 10_000, make([]byte, 100))
			calls[method+" with a piece"] = part
		}
		whole := c.call(rpcEnqueue, "")
		c.send(whole, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}}, false)
		calls["a message without an end"] = whole
		for what, stream := range calls {
			c.wants(what, stream, codes.InvalidArgument, late, rest.BodyTimeout, began)
		}
		if n := len(f.tasks); n != 0 {
			t.Errorf("%d tasks were enqueued, want none", n)
		}
		c.close()
	})
}

// A stream that takes one message refuses a second one, and starts only when it is clear that there is none.
func TestStreamsOfOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		c, began := newRudeClient(t, l.dial), time.Now()
		s := c.call(rpcWatch, "")
		c.send(s, &pawlv1.WatchEventsRequest{}, false)
		c.send(s, &pawlv1.WatchEventsRequest{}, true)
		c.wants("two messages", s, codes.InvalidArgument, "a second one arrived", 0, began)
		c.close()
	})
}

// A worker may be silent for as long as it likes, but a message that it has begun to send must arrive in time.
func TestWorkersMayBeQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		c := newRudeClient(t, l.dial)
		s := c.call(rpcWork, "")
		c.send(s, &pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "mail"}}, Worker: "w"}}, false)
		pass(10 * time.Minute)
		c.goesOn("a quiet worker", s)
		small := c.call(rpcWork, "")
		c.send(small, &pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "mail"}}, Worker: "w"}}, false)
		c.announce(small, 0, contract.SmallMessage, make([]byte, 10))
		pass(10 * time.Minute)
		c.goesOn("a piece of a small frame, which takes no room", small)
		began := time.Now()
		c.announce(s, 0, 1<<20, make([]byte, 1000))
		c.wants("a piece of a frame", s, codes.InvalidArgument, "did not arrive in full", rest.BodyTimeout, began)
		c.close()
	})
}

// roomOfHog is the memory of a message of 2 MiB that is announced and never arrives.
const roomOfHog = 2<<20 + 1<<20 + 2<<20 + inTransit

// Before a large message arrives, memory is reserved for what it may become, and for what is in flight.
func TestMemoryIsReservedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		c, before := newRudeClient(t, l.dial), int64(0)
		for _, size := range []int{contract.SmallMessage, 20_000, 2 << 20, 4 << 20} {
			c.announce(c.call(rpcEnqueue, ""), 0, size, nil)
			synctest.Wait()
			now, _ := g.memory.Large.InUse()
			want := size + contract.MemoryFor(size) + min(size, fieldMemory) + min(size, inTransit)
			if size <= contract.SmallMessage {
				want = 0
			}
			if now-before != int64(want) {
				t.Errorf("memory for a message of %d bytes = %d, want %d", size, now-before, want)
			}
			before = now
		}
		c.close()
	})
}

// Large messages wait at their senders until there is memory. Those of one namespace get at most half.
func TestLargeMessagesWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		k.add("a", auth.Rights{Namespace: "a", Roles: auth.Produce})
		k.add("b", auth.Rights{Namespace: "b", Roles: auth.Produce})
		g, l := lockedGateway(t, k), newPipes()
		k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"a", "b"}})
		g.memory.Large = admission.NewMemoryPool(2 * roomOfHog)
		go func() { _ = g.Serve(l) }()
		c, began := newRudeClient(t, l.dial), time.Now()
		large := &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: []byte(`"` + strings.Repeat("x", 30_000) + `"`)}}
		hog := c.call(rpcEnqueue, k.secret["a"])
		c.announce(hog, 0, 2<<20, nil)
		synctest.Wait()

		second, small, other := c.call(rpcEnqueue, k.secret["a"]), c.call(rpcEnqueue, k.secret["a"]), c.call(rpcEnqueue, k.secret["b"])
		c.send(second, large, true)
		c.send(small, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}}, true)
		c.send(other, large, true)
		c.wants("a small message", small, codes.OK, "", 0, began)
		c.wants("another namespace", other, codes.OK, "", 0, began)
		c.goesOn("a message without room", second)
		c.write(func() error { return c.f.WriteRSTStream(hog, http2.ErrCodeCancel) })
		c.wants("a message when there is room again", second, codes.OK, "", 0, began)

		hog = c.call(rpcEnqueue, k.secret["a"])
		c.announce(hog, 0, 2<<20, nil)
		pass(time.Second)
		waits := c.call(rpcEnqueue, k.secret["a"])
		began = time.Now()
		c.announce(waits, 0, 1<<20, nil)
		pass(rest.BodyTimeout - 2*time.Second)
		k.auth.Refreshed(time.Now())
		c.goesOn("a message without room", waits)
		<-c.ended[hog]
		k.auth.Refreshed(time.Now())
		c.wants("one that has got room late", waits, codes.InvalidArgument, "did not arrive in full", 2*rest.BodyTimeout-time.Second, began)
		c.close()
		synctest.Wait()
		for name, room := range map[string]*admission.MemoryPool{"large": g.memory.Large, "extra": g.memory.Extra} {
			if n, _ := room.InUse(); n != 0 {
				t.Errorf("%s: %d bytes are in use at the end", name, n)
			}
		}
		g.Shutdown(context.Background())
		synctest.Wait()
	})
}

// A stream holds the memory of its single message as long as it lasts, and no longer.
func TestStreamMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		s, err := pawlv1.NewEventServiceClient(dial(t, l)).WatchEvents(t.Context(), &pawlv1.WatchEventsRequest{
			Queue: new(strings.Repeat("x", 100_000))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("queue with a long name: %v, want an invalid argument", err)
		}
		synctest.Wait()
		if now, most := g.memory.Large.InUse(); now != 0 || most == 0 {
			t.Errorf("%d bytes are in use at the end, %d at the peak", now, most)
		}
	})
}

// The size of a compressed message is unknown, so it waits for the memory of the largest, and is refused if there is none.
func TestCompressedMessagesWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		g.memory.Large = admission.NewMemoryPool(2 * contract.MaxMessage) // half of it is too little for a compressed message
		c, began := newRudeClient(t, l.dial), time.Now()
		s := c.call(rpcEnqueue, "", "grpc-encoding", "gzip")
		c.announce(s, 1, 100, make([]byte, 100))
		c.wants("a packed message", s, codes.Unavailable, "too many large requests", rest.BodyTimeout, began)
		c.close()
	})
}

// Large requests over gRPC and REST are counted by their decompressed size and what is decoded from them, for as long as their calls run,
// and take no more than their namespace's half of the memory.
func TestLargeRequestsAreCounted(t *testing.T) {
	const tasks, size, half = 12, 1 << 20, allMemory / 2
	const few, many = 2, 8 // about five fit into the half
	text := []byte(`{"to":"` + strings.Repeat("x", size-9) + `"}`)
	batch := manyOf(tasks, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Payload: text} })
	body := bytes.Repeat(append([]byte(`{"type":"a","payload":`), append(text, `},`...)...), tasks)
	body = append(append([]byte(`{"tasks":[`), body[:len(body)-1]...), `]}`...)
	enqueue := func(t *testing.T, g *Gateway, l *pipes) map[string]func() error {
		conn := pawlv1.NewProducerServiceClient(dial(t, l))
		overGRPC := func(opts ...grpc.CallOption) func() error {
			return func() error {
				got, err := conn.EnqueueBatch(t.Context(), batch, opts...)
				if err == nil && (len(got.Results) != tasks || got.Results[tasks-1].GetTask() == nil) {
					err = fmt.Errorf("the answer is %v", got)
				}
				return err
			}
		}
		overREST := func(length int64) func() error {
			return func() error {
				r := httptest.NewRequest("POST", ours+"/api/v1/tasks/batch", bytes.NewReader(body))
				r.ContentLength = length
				w := httptest.NewRecorder()
				g.Handler().ServeHTTP(w, r)
				if strings.Count(w.Body.String(), "task_id") != tasks {
					return fmt.Errorf("%d %.300s", w.Code, w.Body)
				}
				return nil
			}
		}
		return map[string]func() error{"plain": overGRPC(), "packed": overGRPC(grpc.UseCompressor("gzip")),
			"REST": overREST(int64(len(body))), "REST, chunked": overREST(-1)}
	}
	ways := []string{"REST, chunked", "plain", "packed", "REST"}
	if testing.Short() {
		ways = ways[:2]
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.busy = make(chan struct{})
				g, l := serve(t, f)
				call := enqueue(t, g, l)[way]
				var calls sync.WaitGroup
				add := func(n int) {
					for range n {
						calls.Go(func() {
							if err := call(); err != nil {
								t.Error(err)
							}
						})
					}
					synctest.Wait()
				}
				add(few)
				if n, _ := g.memory.Large.InUse(); n < few*tasks*size || n > few*(tasks+1)*size {
					t.Errorf("%d running requests of %d bytes are counted as %d", few, tasks*size, n)
				}
				add(many - few)
				if n, _ := g.memory.Large.InUse(); n > half || n < half/2 {
					t.Errorf("%d requests use %d bytes, want at most %d", many, n, half)
				}
				close(f.busy)
				calls.Wait()
				synctest.Wait()
				for name, room := range map[string]*admission.MemoryPool{"large": g.memory.Large, "extra": g.memory.Extra} {
					if now, most := room.InUse(); now != 0 || most > half {
						t.Errorf("%s: %d bytes are in use at the end, %d at the peak", name, now, most)
					}
				}
				if n := len(f.tasks); n != many*tasks {
					t.Errorf("%d tasks were enqueued, want %d", n, many*tasks)
				}
			})
		})
	}
}

// Calls that need no token are limited in number per connection and in size.
func TestPublicCallsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		conn := dial(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 8 {
			s, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			if err != nil {
				t.Fatalf("watch %d: %v", i, err)
			}
		}
		check := func(conn *grpc.ClientConn, service string) codes.Code {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			return status.Code(err)
		}
		if got := check(conn, ""); got != codes.Unavailable {
			t.Errorf("call over the limit: %v, want unavailable", got)
		}
		if _, err := pawlv1.NewAccessServiceClient(conn).WhoAmI(t.Context(), &pawlv1.WhoAmIRequest{}); status.Code(err) ==
			codes.Unavailable {
			t.Errorf("call with another limit: %v", err)
		}
		if got := check(dial(t, l), ""); got != codes.OK {
			t.Errorf("call on another connection: %v, want OK", got)
		}
		cancel()
		synctest.Wait()
		if got := check(conn, ""); got != codes.OK {
			t.Errorf("call after the others ended: %v, want OK", got)
		}
		if got := check(conn, strings.Repeat("x", contract.SmallMessage)); got != codes.ResourceExhausted {
			t.Errorf("call with a long message: %v, want resource exhausted", got)
		}
	})
}

// The server announces how many concurrent calls a connection may have.
func TestStreamsOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		conn, err := l.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		f := http2.NewFramer(conn, conn)
		go func() {
			_, _ = io.WriteString(conn, http2.ClientPreface)
			_ = f.WriteSettings()
		}()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
				if n, ok := s.Value(http2.SettingMaxConcurrentStreams); !ok || n != 2000 { // as in docs/limits.md
					t.Errorf("the server allows %d calls on a connection, want 2000", n)
				}
				return
			}
		}
	})
}

// A client may ping the server at intervals, even without calls.
func TestIdleClientsMayPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		c := newRudeClient(t, l.dial)
		for range 6 {
			pass(pingPause + time.Second)
			c.write(func() error { return c.f.WritePing(false, [8]byte{1}) })
		}
		synctest.Wait()
		select {
		case <-c.closed:
			t.Error("an idle client that pings was disconnected")
		default:
		}
		c.close()
	})
}

// These have the values in package receive.
const (
	fieldMemory = 5 << 19
	inTransit   = 256<<10 + 64<<10
	allMemory   = 128 << 20
)
