package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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

	"github.com/pawlq/pawl/internal/admission"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// rudeClient speaks HTTP/2 frame by frame, as no gRPC client would.
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
			r.write(func() error { _ = r.f.WritePing(true, p.Data); return nil }) // it may be closed by now
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

// call starts a call, and sends nothing but its headers.
func (r *rudeClient) call(method, token string, more ...string) (stream uint32) {
	stream = r.next
	r.next += 2
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc", "te", "trailers"}, more...)
	if token != "" {
		fields = append(fields, metaToken, "Bearer "+token)
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
		r.t.Errorf("%s: it goes on, want %v %q", what, code, words)
	}
}

func (r *rudeClient) goesOn(what string, stream uint32) {
	r.t.Helper()
	synctest.Wait()
	select {
	case e := <-r.ended[stream]:
		r.t.Errorf("%s: ended with %v %q", what, e.code, e.said)
	default:
	}
}

const (
	rpcEnqueue = "/pawl.v1.ProducerService/Enqueue"
	rpcWork    = "/pawl.v1.WorkerService/Work"
	rpcWatch   = "/pawl.v1.EventService/WatchEvents"
	rpcCheck   = "/grpc.health.v1.Health/Check"
)

// A refused caller learns so from the headers alone, whatever message it announces and never sends.
func TestHeadersAreEnoughToRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		worker := k.add("worker", auth.Rights{Namespace: "team", Roles: auth.Consume})
		g, l := lockedGateway(t, k), newPipes()
		go func() { _ = g.Serve(l) }()
		c, began := newRudeClient(t, l.dial), time.Now()
		for _, method := range []string{rpcEnqueue, rpcWork, rpcWatch} {
			c.wants(method+" without a token", c.call(method, ""), codes.Unauthenticated, "token", 0, began)
			c.wants(method+" with an unknown one", c.call(method, auth.NewSecret()), codes.Unauthenticated, "", 0, began)
			if method != rpcWork {
				c.wants(method+" without the role", c.call(method, worker), codes.PermissionDenied, "this call needs", 0, began)
			}
		}
		c.close()
		g.Shutdown(context.Background())
		synctest.Wait()
	})
}

// A message has as long to arrive as a REST body, whatever is missing: all of it, its length, its rest, its end. What arrives later
// is not executed.
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
			t.Errorf("%d tasks were enqueued", n)
		}
		c.close()
	})
}

// A stream that takes one message refuses a second one, and starts once it is clear that there is none.
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

// A worker may be silent for as long as it likes, but a message that it has begun must arrive in time.
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

// roomOfHog is the memory of a message of 2 MiB that is announced and does not arrive.
const roomOfHog = 2<<20 + 1<<20 + 2<<20 + inFlight

// Before a large message arrives, memory is reserved for what it may become, and for what is in flight.
func TestRoomIsTakenBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		c, before := newRudeClient(t, l.dial), int64(0)
		for _, size := range []int{contract.SmallMessage, 20_000, 2 << 20, 4 << 20} {
			c.announce(c.call(rpcEnqueue, ""), 0, size, nil)
			synctest.Wait()
			now, _ := g.large.InUse()
			want := size + contract.MemoryFor(size) + min(size, fieldRoom) + min(size, inFlight)
			if size <= contract.SmallMessage {
				want = 0
			}
			if now-before != int64(want) {
				t.Errorf("a message of %d bytes takes %d, want %d", size, now-before, want)
			}
			before = now
		}
		c.close()
	})
}

// Large messages wait at their senders until there is memory, those of a namespace for its half.
func TestRoomForLargeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		k.add("a", auth.Rights{Namespace: "a", Roles: auth.Produce})
		k.add("b", auth.Rights{Namespace: "b", Roles: auth.Produce})
		g, l := lockedGateway(t, k), newPipes()
		k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"a", "b"}})
		g.large = admission.NewMemoryPool(2 * roomOfHog)
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
		for name, room := range map[string]*admission.MemoryPool{"large": g.large, "extra": g.extra} {
			if n, _ := room.InUse(); n != 0 {
				t.Errorf("%s: %d bytes are taken in the end", name, n)
			}
		}
		g.Shutdown(context.Background())
		synctest.Wait()
	})
}

// A stream holds the memory of its one message for as long as it lasts, and no longer.
func TestRoomOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		s, err := pawlv1.NewEventServiceClient(dial(t, l)).WatchEvents(t.Context(), &pawlv1.WatchEventsRequest{Queue: strings.Repeat("x", 100_000)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a queue of a long name: %v", err)
		}
		synctest.Wait()
		if now, most := g.large.InUse(); now != 0 || most == 0 {
			t.Errorf("%d bytes are taken in the end, %d were at most", now, most)
		}
	})
}

// The size of a compressed message is unknown: it waits for the memory of the largest, and is refused if there is none.
func TestRoomForPackedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		g.large = admission.NewMemoryPool(2 * contract.MaxMessage) // half of it holds no compressed message
		c, began := newRudeClient(t, l.dial), time.Now()
		s := c.call(rpcEnqueue, "", "grpc-encoding", "gzip")
		c.announce(s, 1, 100, make([]byte, 100))
		c.wants("a packed message", s, codes.Unavailable, "too many large requests", rest.BodyTimeout, began)
		c.close()
	})
}

// Large requests over gRPC and REST are counted by their decompressed size and what is decoded from them, for as long as their
// calls run, and take no more than their namespace's half of the memory.
func TestLargeRequestsAreCounted(t *testing.T) {
	const tasks, size, half = 12, 1 << 20, maxRoom / 2
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
		return map[string]func() error{"plain": overGRPC(), "packed": overGRPC(grpc.UseCompressor("gzip")), "REST": overREST(int64(len(body))), "REST, chunked": overREST(-1)}
	}
	faces := []string{"packed", "REST, chunked", "plain", "REST"}
	if testing.Short() {
		faces = faces[:2]
	}
	for _, face := range faces {
		t.Run(face, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.busy = make(chan struct{})
				g, l := serve(t, f)
				call := enqueue(t, g, l)[face]
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
				if n, _ := g.large.InUse(); n < few*tasks*size || n > few*(tasks+1)*size {
					t.Errorf("%d requests of %d bytes that run count as %d", few, tasks*size, n)
				}
				add(many - few)
				if n, _ := g.large.InUse(); n > half || n < half/2 {
					t.Errorf("of %d requests %d bytes are there, at most %d may be", many, n, half)
				}
				close(f.busy)
				calls.Wait()
				synctest.Wait()
				for name, room := range map[string]*admission.MemoryPool{"large": g.large, "extra": g.extra} {
					if now, most := room.InUse(); now != 0 || most > half {
						t.Errorf("%s: %d bytes are taken in the end, %d were at most", name, now, most)
					}
				}
				if n := len(f.tasks); n != many*tasks {
					t.Errorf("%d tasks were enqueued, want %d", n, many*tasks)
				}
			})
		})
	}
}

// Calls that need no token are few per connection, and short.
func TestCallsWithoutATokenAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		conn := dial(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range maxPublicCalls {
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
			t.Errorf("one too many: %v", got)
		}
		if _, err := pawlv1.NewAccessServiceClient(conn).WhoAmI(t.Context(), &pawlv1.WhoAmIRequest{}); status.Code(err) == codes.Unavailable {
			t.Errorf("another call: %v", err)
		}
		if got := check(dial(t, l), ""); got != codes.OK {
			t.Errorf("on another connection: %v", got)
		}
		cancel()
		synctest.Wait()
		if got := check(conn, ""); got != codes.OK {
			t.Errorf("when the others have ended: %v", got)
		}
		if got := check(conn, strings.Repeat("x", contract.SmallMessage)); got != codes.ResourceExhausted {
			t.Errorf("a long one: %v", got)
		}
	})
}

// A namespace can't take all calls of a node from the others.
func TestCallsAtOnce(t *testing.T) {
	g := newGateway(newFake())
	defer g.Shutdown(context.Background())
	g.calls = admission.NewSlots(2)
	n := need{reach: ofQueues}
	enter := func() (func(), error) {
		ctx, c := begin(t.Context(), "grpc", "test")
		_, leave, err := g.admit(ctx, c, n, callCredentials{})
		return leave, err
	}
	leave, err := enter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enter(); err == nil || !strings.Contains(fmt.Sprint(err), "1 calls in progress") {
		t.Errorf("one too many: %v", err)
	}
	leave()
	if _, err := enter(); err != nil {
		t.Errorf("when it has ended: %v", err)
	}
}

// A stream may end while another goroutine still receives from it: memory that is granted only then is released.
func TestRoomFoundAfterTheEnd(t *testing.T) {
	room := admission.NewMemoryPool(1000)
	in := &receiver{g: &Gateway{}, ctx: context.Background(), ns: "a", timer: time.NewTimer(time.Hour)}
	if err := in.reserve(&in.held, room, 10); err != nil {
		t.Fatal(err)
	}
	in.close()
	if n, _ := room.InUse(); n != 0 {
		t.Errorf("%d bytes are taken after the end", n)
	}
	if err := in.reserve(&in.held, room, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v, want %v", err, context.Canceled)
	}
	if n, _ := room.InUse(); n != 0 {
		t.Errorf("%d bytes stay taken", n)
	}
}

// The reason for a missing message is what happened first: the stream was cut off, the caller closed it, or is gone.
func TestWhyNoMessageCame(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	broken := errors.New("reset by peer")
	for _, c := range []struct {
		b    *receiver
		err  error
		want error
	}{
		{&receiver{ctx: t.Context()}, io.EOF, io.EOF}, {&receiver{ctx: t.Context()}, io.ErrUnexpectedEOF, task.ErrInvalidArgument}, {&receiver{ctx: t.Context()}, broken, broken}, {&receiver{ctx: t.Context()}, broken, context.Canceled},
		{&receiver{ctx: gone}, io.EOF, io.EOF}, {&receiver{ctx: gone, cut: errPlanted}, io.EOF, errPlanted},
	} {
		if got := c.b.failed(c.err); !errors.Is(got, c.want) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	if got := (&receiver{ctx: gone}).failed(broken); got != context.Canceled {
		t.Errorf("a caller who is gone: %v", got)
	}
}

// A small message gets no extra memory if it takes more than its length suggests; others get it once, and wait for it.
func TestExtraRoom(t *testing.T) {
	for most, large := range map[int]bool{contract.SmallMessage - 1: false, contract.SmallMessage: false, contract.SmallMessage + 1: true} {
		g := newGateway(newFake())
		in := &receiver{g: g, ctx: t.Context(), ns: "a", largest: most, timer: time.NewTimer(time.Hour)}
		err := in.reserveExtra()
		taken, _ := g.extra.InUse()
		if large && (err != nil || taken != contract.MaxExtra || in.extra == nil) || !large && (!strings.Contains(fmt.Sprint(err), "so many small parts") || taken != 0) {
			t.Errorf("a message of up to %d bytes: %v, %d bytes of extra room are taken", most, err, taken)
		}
		if others, _ := g.large.InUse(); others != 0 {
			t.Errorf("a message of up to %d bytes takes %d of the room for all", most, others)
		}
		if in.close(); in.extra != nil {
			t.Error("extra room is kept at the end")
		}
	}
}

// framed returns a message as it arrives over the wire.
func framed(flag byte, raw []byte) []byte {
	return append(append([]byte{flag}, binary.BigEndian.AppendUint32(nil, uint32(len(raw)))...), raw...)
}

// The single message of a call is read whole, or refused with what is wrong.
func TestTheOneMessageOfACall(t *testing.T) {
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good, broken := marshal(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}}), errors.New("reset by peer")
	ofSize := func(n int) []byte {
		spec := &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, n-20)}
		for ; proto.Size(&pawlv1.EnqueueRequest{Task: spec}) < n; spec.Payload = append(spec.Payload, 0) {
		}
		return marshal(&pawlv1.EnqueueRequest{Task: spec})
	}
	for _, c := range []struct {
		what  string
		wire  *scriptedWire
		most  int
		words string // in a refusal
	}{
		{"a message", &scriptedWire{b: framed(0, good)}, contract.MaxMessage, ""},
		{"none", &scriptedWire{}, contract.MaxMessage, "message: none came"},
		{"a broken stream", &scriptedWire{fails: broken}, contract.MaxMessage, "reset by peer"},
		{"half a head", &scriptedWire{b: []byte{0, 0}}, contract.MaxMessage, "did not arrive in full"},
		{"half a message", &scriptedWire{b: framed(0, good)[:7]}, contract.MaxMessage, "did not arrive in full"},
		{"half a large one", &scriptedWire{b: framed(0, ofSize(100_000))[:50_000]}, contract.MaxMessage, "did not arrive in full"},
		{"two", &scriptedWire{b: append(framed(0, good), framed(0, good)...)}, contract.MaxMessage, "a second one arrived"},
		{"one, and a broken stream", &scriptedWire{b: framed(0, good), fails: broken}, contract.MaxMessage, "reset by peer"},
		{"no message", &scriptedWire{b: framed(0, []byte{0, 1})}, contract.MaxMessage, "message: "},
		{"no large message", &scriptedWire{b: framed(0, make([]byte, 100_000))}, contract.MaxMessage, "invalid field number"},
		{"a large one with no text in it", &scriptedWire{b: framed(0, append(ofSize(100_000), 0x0a, 3, 0x0a, 1, 0xff))}, contract.MaxMessage, "UTF-8"},
		{"a packed one", &scriptedWire{b: framed(1, pack(t, good)), packed: "gzip"}, contract.MaxMessage, ""},
		{"one that is said to be packed", &scriptedWire{b: framed(1, good)}, contract.MaxMessage, "is marked as compressed"},
		{"one that is packed in a way that nobody knows", &scriptedWire{b: framed(1, good), packed: "zip"}, contract.MaxMessage, "is marked as compressed"},
		{"one that could be packed", &scriptedWire{b: framed(0, good), packed: "zip"}, contract.MaxMessage, ""},
		{"another flag", &scriptedWire{b: framed(2, good), packed: "gzip"}, contract.MaxMessage, "is marked as compressed"},
		{"a small one, as large as may be", &scriptedWire{b: framed(0, ofSize(contract.SmallMessage))}, contract.SmallMessage, ""},
		{"a larger one", &scriptedWire{b: framed(0, ofSize(contract.SmallMessage+1))}, contract.SmallMessage, "more than 16384 bytes"},
		{"a packed one that is larger", &scriptedWire{b: framed(1, pack(t, ofSize(contract.SmallMessage+1))), packed: "gzip"}, contract.SmallMessage, "more than 16384 bytes"},
		{"a large one", &scriptedWire{b: framed(0, ofSize(1_000_000))}, contract.MaxMessage, ""},
	} {
		g := newGateway(newFake())
		in := &receiver{g: g, ctx: t.Context(), wire: c.wire, ns: "a", largest: c.most}
		into := &pawlv1.EnqueueRequest{}
		err := in.only(into)
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) || err == nil && into.GetTask().GetType() != "a" {
			t.Errorf("%s: %v, want %q; got %.100s", c.what, err, c.words, into)
		}
		in.close()
		for name, room := range map[string]*admission.MemoryPool{"large": g.large, "extra": g.extra} {
			if n, _ := room.InUse(); n != 0 {
				t.Errorf("%s: %d bytes of the %s room are taken in the end", c.what, n, name)
			}
		}
		if n := c.wire.taken.n; n != 0 {
			t.Errorf("%s: %d buffers are taken in the end", c.what, n)
		}
	}
}

// In a stream each message has its own memory, which is released at the next one unless it is kept. Only protobuf messages can be
// read.
func TestRoomOfEachMessage(t *testing.T) {
	raw, err := proto.Marshal(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, 1_000_000)}})
	if err != nil {
		t.Fatal(err)
	}
	small, err := proto.Marshal(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(newFake())
	in := &receiver{g: g, ctx: t.Context(), ns: "a", largest: contract.MaxMessage, wire: &scriptedWire{b: slices.Concat(framed(0, small), framed(0, raw), framed(0, raw), framed(0, small), framed(0, raw))}}
	made := weigh(t, &pawlv1.EnqueueRequest{}, raw)
	taken := func(what string, want int) {
		t.Helper()
		if n, _ := g.large.InUse(); n != int64(want) {
			t.Errorf("%s: %d bytes are taken, want %d", what, n, want)
		}
	}
	next := func() {
		t.Helper()
		if err := in.next(&pawlv1.EnqueueRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	next()
	taken("a small message", 0)
	exact := &receiver{g: g, ctx: t.Context(), ns: "a", largest: contract.MaxMessage, wire: &scriptedWire{b: framed(0, append([]byte{10, 0xfd, 0x7f}, make([]byte, contract.SmallMessage-3)...))}}
	if err := exact.next(&pawlv1.EnqueueRequest{}); err == nil || exact.held != nil {
		t.Errorf("what is just small, and no message: %v, it took room: %t", err, exact.held != nil)
	}
	next()
	taken("a large one", made)
	next()
	taken("another instead", made)
	kept := in.keep()
	next()
	taken("one that is kept, and a small one", made)
	next()
	taken("one that is kept, and another", 2*made)
	in.empty()
	taken("the one that is kept", made)
	kept.give()
	taken("none", 0)
	if err := in.next(&pawlv1.EnqueueRequest{}); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	parts, err := proto.Marshal(manyOf(1000, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Headers: manyHeaders(64)} }))
	if err != nil {
		t.Fatal(err)
	}
	of := &receiver{g: g, ctx: t.Context(), ns: "a", largest: contract.MaxMessage, wire: &scriptedWire{b: framed(0, parts)}}
	if err := of.next(&pawlv1.EnqueueBatchRequest{}); err != nil {
		t.Fatal(err)
	}
	expected := len(parts) + contract.MemoryFor(len(parts)) + min(len(parts), fieldRoom)
	if extra, _ := g.extra.InUse(); extra != int64(weigh(t, &pawlv1.EnqueueBatchRequest{}, parts)-expected) {
		t.Errorf("one of many parts takes %d bytes more than the %d that are expected of it, and weighs %d", extra, expected, weigh(t, &pawlv1.EnqueueBatchRequest{}, parts))
	}
	of.close()
	if err := in.readLarge(3, false, "no message"); err == nil || !strings.Contains(err.Error(), "string is no message") {
		t.Errorf("what is no message: %v", err)
	}
	if _, err := g.newReceiver(t.Context(), newCall(), need{}); err == nil {
		t.Error("a receiver is made of no stream")
	}
}

// Both ends of a wait count: a message that arrives in time is executed, and a late one fails for being late.
func TestMessagesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire, late := &scriptedWire{}, errors.New("x")
		in := &receiver{g: newGateway(newFake()), ctx: t.Context(), wire: wire}
		came := in.within(time.Second)
		pass(time.Second - 1)
		if err := came(late); err != late || wire.ended != nil {
			t.Errorf("in time: %v, %v", err, wire.ended)
		}
		pass(time.Minute)
		if wire.ended != nil {
			t.Errorf("one that came in time was ended with %v", wire.ended)
		}
		for what, want := range map[string]string{"": "did not arrive in full within 1s", "for room": "too many large requests"} {
			in.cut = nil
			came = in.within(time.Second)
			in.setWaiting(what != "")
			pass(time.Second + 1)
			if err := came(nil); err == nil || !strings.Contains(err.Error(), want) || wire.ended == nil || !strings.Contains(wire.ended.Message(), want) {
				t.Errorf("late, and waiting %s: %v, %v", what, err, wire.ended)
			}
			in.setWaiting(false)
		}
		wire.ended = nil
		if err := in.reserve(&in.held, in.g.large, 10); err != nil { // its time was over before
			t.Errorf("room: %v", err)
		}
		if pass(rest.BodyTimeout + 1); wire.ended != nil {
			t.Errorf("a stream that has ended is ended again with %v", wire.ended)
		}
		in.cut = nil
		came = in.within(time.Second)
		in.timer.Stop() // it is over, and has not started to end the stream
		if err := came(late); err != late {
			t.Errorf("just in time: %v", err)
		}
		in.timer.Reset(time.Second)
		if pass(2 * time.Second); in.cut != nil || wire.ended != nil {
			t.Errorf("a stream whose message came just in time is ended with %v", wire.ended)
		}
		in.close()
	})
}

// A long message is refused with gRPC's own code, and with ours in the details.
func TestLongMessages(t *testing.T) {
	err := tooLong(7)
	st, ok := status.FromError(err)
	if e, known := task.AsError(err); !ok || st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 || !known || e.Code != task.CodePayloadTooLarge || e.Field != "message" || !strings.Contains(st.Message(), "more than 7 bytes") {
		t.Errorf("got %v, %v", st, err)
	}
}

// A connection is told how many concurrent calls it may have.
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
					t.Errorf("it may run %d calls", n)
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
			pass(pingMin + time.Second)
			c.write(func() error { return c.f.WritePing(false, [8]byte{1}) })
		}
		synctest.Wait()
		select {
		case <-c.closed:
			t.Error("it was cut off")
		default:
		}
		c.close()
	})
}
