package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/receive"
	"github.com/pawlq/pawl/internal/task"
)

// producer is the client's end of a Produce stream.
type producer struct {
	t      *testing.T
	stream pawlv1.ProducerService_ProduceClient
	ready  []*pawlv1.ProduceAnswer
}

func startProducer(t *testing.T, ctx context.Context, conn *grpc.ClientConn) *producer {
	t.Helper()
	stream, err := pawlv1.NewProducerServiceClient(conn).Produce(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &producer{t: t, stream: stream}
}

// sendTasks sends a frame with one task per queue.
func (p *producer) sendTasks(number uint64, queues ...string) {
	p.t.Helper()
	m := &pawlv1.ProduceRequest{Number: number}
	for _, q := range queues {
		m.Tasks = append(m.Tasks, &pawlv1.TaskSpec{Type: "a", Queue: new(q), Payload: []byte("1")})
	}
	p.send(m)
}

func (p *producer) send(m *pawlv1.ProduceRequest) {
	p.t.Helper()
	if err := p.stream.Send(m); err != nil {
		p.t.Fatalf("frame %d: %v", m.GetNumber(), err)
	}
}

// hear returns the next answer.
func (p *producer) hear() *pawlv1.ProduceAnswer {
	p.t.Helper()
	for len(p.ready) == 0 {
		m, err := p.stream.Recv()
		if err != nil {
			p.t.Fatalf("the stream ended: %v", err)
		}
		p.ready = m.GetAnswers()
	}
	a := p.ready[0]
	p.ready = p.ready[1:]
	return a
}

// wants expects an answer to the numbered frame, with the results of its tasks: "ok" or a code.
func (p *producer) wants(what string, number uint64, want string) {
	p.t.Helper()
	if a := p.hear(); a.GetNumber() != number || became(a) != want {
		p.t.Errorf("%s: answer %d is %s, want %d: %s", what, a.GetNumber(), became(a), number, want)
	}
}

func became(a *pawlv1.ProduceAnswer) string {
	if e := a.GetError(); e != nil {
		return fmt.Sprintf("%s of %s", e.GetCode(), e.GetField())
	}
	var all []string
	for _, r := range a.GetResults() {
		if r.GetError() != nil {
			all = append(all, r.GetError().GetCode())
		} else {
			all = append(all, "ok")
		}
	}
	return strings.Join(all, " ")
}

// ends expects the end of the stream.
func (p *producer) ends(what string, code codes.Code, words string) {
	p.t.Helper()
	m, err := p.stream.Recv()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if m != nil || status.Code(err) != code || err != nil && !strings.Contains(err.Error(), words) {
		p.t.Errorf("%s: the stream ended with %v (%v), want %v: %q", what, err, m, code, words)
	}
}

// byQueue makes the fake's enqueues wait until their queue is released.
type byQueue struct {
	held  map[string]chan struct{}
	began atomic.Int32
	most  atomic.Int32 // concurrently
	now   atomic.Int32
}

func holdQueues(f *fake, queues ...string) *byQueue {
	h := &byQueue{held: map[string]chan struct{}{}}
	for _, q := range queues {
		h.held[q] = make(chan struct{})
	}
	f.enqueues = func(ctx context.Context, specs []task.Spec) {
		h.began.Add(1)
		if n := h.now.Add(1); n > h.most.Load() {
			h.most.Store(n)
		}
		defer h.now.Add(-1)
		select {
		case <-h.held[specs[0].Queue]: // blocks forever if the queue is not held
		case <-ctx.Done():
		case <-h.free(specs[0].Queue):
		}
	}
	return h
}

var free = make(chan struct{})

func init() { close(free) }

// free returns a channel that can be received from if the queue is not held.
func (h *byQueue) free(queue string) <-chan struct{} {
	if h.held[queue] == nil {
		return free
	}
	return nil
}

func (h *byQueue) letGo(queue string) { close(h.held[queue]) }

// Frames are answered when they are done, in any order, including all that arrived before the client closed its side.
func TestProduceAnswersInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		h := holdQueues(f, "slow", "slower")
		_, l := serve(t, f)
		p := startProducer(t, t.Context(), dial(t, l))
		p.sendTasks(7, "slower", "slower")
		p.sendTasks(8, "slow")
		synctest.Wait()
		p.sendTasks(9, "a", "a", "a")
		p.wants("while two wait", 9, "ok ok ok")
		p.sendTasks(10, "a")
		p.wants("while two wait", 10, "ok")
		h.letGo("slow")
		p.wants("the second", 8, "ok")
		if err := p.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.letGo("slower")
		p.wants("the first, after the client closed its side", 7, "ok ok")
		p.ends("the client closed its side", codes.OK, "")
		if len(f.tasks) != 7 {
			t.Errorf("%d tasks were enqueued, want 7", len(f.tasks))
		}
	})
}

// A limited number of frames is in progress, and no more are read. All are answered in the end.
func TestProduceBoundsItsFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		h := holdQueues(f, "slow")
		g, l := serve(t, f)
		p := startProducer(t, t.Context(), dial(t, l))
		for n := range uint64(300) {
			p.sendTasks(n, "slow")
		}
		synctest.Wait()
		if n := h.began.Load(); n != maxFrames {
			t.Errorf("%d frames are in progress, want %d", n, maxFrames)
		}
		h.letGo("slow")
		seen := map[uint64]bool{}
		for range 300 {
			a := p.hear()
			if seen[a.GetNumber()] || became(a) != "ok" {
				t.Errorf("answer %d is %s, seen before: %v", a.GetNumber(), became(a), seen[a.GetNumber()])
			}
			seen[a.GetNumber()] = true
		}
		if n := h.most.Load(); n != maxFrames {
			t.Errorf("%d frames were in progress at once, want %d", n, maxFrames)
		}
		_ = p.stream.CloseSend()
		p.ends("the client closed its side", codes.OK, "")
		synctest.Wait()
		if ok, _ := g.access.Calls.TryAcquire("default"); !ok || len(f.tasks) != 300 {
			t.Errorf("%d tasks, want 300; a slot for a call is free: %v", len(f.tasks), ok)
		}
	})
}

// A frame that can't be accepted gets an error as answer, and the stream continues.
func TestProduceOutlastsBadFrames(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		token := k.add("p", auth.Rights{Namespace: "team", Roles: auth.Produce, Queues: []string{"mine", "slow"}})
		f := newFake(1)
		f.auth = k.auth
		g, l := serve(t, f)
		p := startProducer(t, with(t.Context(), token, ""), dial(t, l))
		check := func(what, want string) {
			t.Helper()
			p.wants(what, 1, want)
			p.sendTasks(2, "mine")
			p.wants("after "+what, 2, "ok")
		}
		p.sendTasks(1)
		check("no task", "invalid_argument of tasks")
		p.sendTasks(1, slices.Repeat([]string{"mine"}, 1001)...)
		check("1,001 tasks", "invalid_argument of tasks")
		p.sendTasks(1, "mine", "other", "mine")
		check("a queue that the token is not good for", "ok permission_denied ok")
		p.send(&pawlv1.ProduceRequest{Number: 1, Tasks: []*pawlv1.TaskSpec{{Payload: []byte("1")}}})
		check("a bad task", "invalid_argument")

		f.set(func() { f.down[1] = true })
		p.sendTasks(1, "mine")
		p.wants("a shard without a leader", 1, "unavailable")
		f.set(func() { f.down[1], f.panics = false, true })
		p.sendTasks(1, "mine")
		p.wants("a panic", 1, "internal")
		f.panics = false

		for range g.access.Calls.PerNamespace() - 1 { // the stream has one
			g.access.Calls.TryAcquire("team")
		}
		p.sendTasks(1, "mine")
		p.wants("more calls than a namespace may have", 1, "unavailable of ")
		g.access.Calls.Release("team")
		p.sendTasks(2, "mine")
		p.wants("after that", 2, "ok")
	})
}

// A frame counts towards its namespace's rates like a call.
func TestFramesCountAsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		token := k.add("p", auth.Rights{Namespace: "team", Roles: auth.Produce})
		f, meter := newFake(1), &recordingMeter{}
		f.auth, f.meter = k.auth, meter
		_, l := serve(t, f)
		k.auth.Replace(auth.Access{Tokens: k.tokens, Namespaces: []string{"team"}, Quotas: map[string]task.Quotas{"team": {Requests: 4}}})
		p := startProducer(t, with(t.Context(), token, ""), dial(t, l)) // the stream itself counts as one call
		p.sendTasks(1, "a", "a")
		p.wants("the second and third", 1, "ok ok")
		p.sendTasks(2, "a", "a")
		p.wants("the fourth, and one more", 2, "ok rate_limited")
		p.sendTasks(3, "a")
		p.wants("one more", 3, "rate_limited of ")
		time.Sleep(time.Minute)
		uses, reported := k.auth.Uses()
		reported()
		p.sendTasks(4, "a")
		p.wants("after a minute", 4, "ok")
		if again, _ := k.auth.Uses(); len(uses) != 1 || len(again) != 1 || !again[0].At.Time().After(uses[0].At.Time()) {
			t.Errorf("uses of the token = %v, after another frame %v", uses, again)
		}
		_ = p.stream.CloseSend()
		p.ends("the client closed its side", codes.OK, "")
		synctest.Wait()
		said, open := meter.heard()
		const frame = "grpc ProducerService/Produce.frame "
		want := "[" + frame + "ok 0s false " + frame + "ok 0s false " + frame + "rate_limited 0s false " + frame +
			"ok 0s false grpc ProducerService/Produce ok -1ns false]"
		if said != want || open != "map[grpc ProducerService/Produce:0]" {
			t.Errorf("reported %s, streams %s, want %s", said, open, want)
		}
	})
}

// A message that is too long or malformed ends the stream. Frames in progress are answered first.
func TestInvalidMessagesEndProduce(t *testing.T) {
	garbage := &pawlv1.ProduceRequest{}
	garbage.ProtoReflect().SetUnknown([]byte{0x12, 0x02, 0xff, 0xff}) // malformed tasks
	long := &pawlv1.ProduceRequest{Tasks: []*pawlv1.TaskSpec{{Payload: make([]byte, 17<<20)}}}
	for _, c := range []struct {
		what  string
		m     *pawlv1.ProduceRequest
		code  codes.Code
		words string
	}{{"garbage", garbage, codes.InvalidArgument, "message"}, {"a long one", long, codes.ResourceExhausted, "more than 16777216 bytes"}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(1)
			h := holdQueues(f, "slow")
			_, l := serve(t, f)
			p := startProducer(t, t.Context(), dial(t, l))
			p.sendTasks(1, "slow")
			_ = p.stream.Send(c.m) // fails if the stream has ended by then
			synctest.Wait()
			h.letGo("slow")
			p.wants(c.what, 1, "ok")
			p.ends(c.what, c.code, c.words)
		})
	}
}

// A stream ends with its token. Frames in progress are answered first, and no other is started.
func TestProduceEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTokenSet()
		token := k.add("p", auth.Rights{Namespace: "team", Roles: auth.Produce})
		f := newFake(1)
		f.auth = k.auth
		h := holdQueues(f, "slow")
		_, l := serve(t, f)
		p := startProducer(t, with(t.Context(), token, ""), dial(t, l))
		p.sendTasks(1, "slow")
		synctest.Wait()
		k.tokens = nil
		k.publish()
		synctest.Wait()
		p.sendTasks(2, "a")
		synctest.Wait()
		h.letGo("slow")
		p.wants("what was under way", 1, "ok")
		p.ends("the token was revoked", codes.Unauthenticated, "was revoked")
		if len(f.tasks) != 1 {
			t.Errorf("%d tasks were enqueued, want only the one in progress", len(f.tasks))
		}
	})
}

// A node that shuts down says so, and keeps its streams until their clients close them.
func TestProduceWhileTheNodeDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		_, l := serve(t, f)
		p := startProducer(t, t.Context(), dial(t, l))
		p.sendTasks(1, "a")
		p.wants("before", 1, "ok")
		close(f.draining)
		if m, err := p.stream.Recv(); err != nil || !m.GetDraining() {
			t.Fatalf("got %v, %v, want a draining notice", m, err)
		}
		p.sendTasks(2, "a")
		p.wants("while it drains", 2, "ok")
		_ = p.stream.CloseSend()
		p.ends("the client closed its side", codes.OK, "")
	})
}

// When a client disappears, its frames in progress end, and their slots are freed.
func TestProduceOfGoneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, meter := newFake(1), &recordingMeter{}
		f.meter = meter
		holdQueues(f, "slow")
		g, l := serve(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		p := startProducer(t, ctx, dial(t, l))
		p.sendTasks(1, "slow")
		synctest.Wait()
		for range g.access.Calls.PerNamespace() - 2 {
			g.access.Calls.TryAcquire("default")
		}
		if ok, _ := g.access.Calls.TryAcquire("default"); ok {
			t.Error("a frame in progress takes no slot")
		}
		cancel()
		synctest.Wait()
		if _, open := meter.heard(); open != "map[grpc ProducerService/Produce:0]" {
			t.Errorf("open streams = %s", open)
		}
		for range 2 {
			if ok, _ := g.access.Calls.TryAcquire("default"); !ok {
				t.Error("the stream or its frame still holds its slot")
			}
		}
	})
}

// The memory of a large frame is held until the frame is answered, whatever arrives meanwhile.
func TestFrameMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		h := holdQueues(f, "slow")
		g, l := serve(t, f)
		p := startProducer(t, t.Context(), dial(t, l))
		large := func(number uint64, queue string) {
			p.send(&pawlv1.ProduceRequest{Number: number, Tasks: []*pawlv1.TaskSpec{{Type: "a", Queue: new(queue), ContentType: "b",
				Payload: make([]byte, 500<<10)}}})
			synctest.Wait()
		}
		large(1, "slow")
		one, _ := g.memory.Large.InUse()
		large(2, "slow")
		two, _ := g.memory.Large.InUse()
		if one < 500<<10 || two != 2*one {
			t.Errorf("memory for one frame of 500 KiB: %d bytes, for two: %d", one, two)
		}
		large(3, "a")
		p.wants("a large one meanwhile", 3, "ok")
		synctest.Wait()
		if now, _ := g.memory.Large.InUse(); now != two {
			t.Errorf("%d bytes are in use after a third frame was answered, want %d", now, two)
		}
		h.letGo("slow")
		p.hear()
		p.hear()
		synctest.Wait()
		if now, _ := g.memory.Large.InUse(); now != 0 {
			t.Errorf("%d bytes are in use at the end", now)
		}
	})
}

// An answer has a stamp for each shard, which names the shard's leader if that is another node.
func TestFramesAreStamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		f.home["b"] = 2
		_, l := serve(t, f)
		p := startProducer(t, t.Context(), dial(t, l))
		for _, c := range []struct {
			leader uint64
			queues []string
			want   string
		}{{1, []string{"a"}, "1@"}, {2, []string{"a"}, "1@n2"}, {2, []string{"b", "b"}, "2@n2"}, {2, []string{"a", "b"}, "1@n2 2@n2"},
			{0, []string{"a"}, "1@"}, {2, nil, ""}} {
			f.set(func() { f.leader = c.leader })
			p.sendTasks(1, c.queues...)
			var got []string
			for _, s := range p.hear().GetStamps() {
				got = append(got, fmt.Sprintf("%d@%s", s.GetShard(), s.GetLeader()))
				if s.GetIndex() == 0 || !s.GetTime().AsTime().Equal(time.Now()) {
					t.Errorf("stamp = %v at %s", s, time.Now())
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("tasks in %v while node %d leads: stamps %v, want %s", c.queues, c.leader, got, c.want)
			}
		}
	})
}

// The trace in the headers of a stream does not become that of its tasks, because the stream may last for days.
func TestTasksDoNotJoinTheTraceOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		var headers map[string]string
		f.enqueues = func(_ context.Context, specs []task.Spec) { headers = specs[0].Headers }
		_, l := serve(t, f)
		p := startProducer(t, metadata.AppendToOutgoingContext(t.Context(), "traceparent", someTrace), dial(t, l))
		p.sendTasks(1, "a")
		p.wants("with a trace", 1, "ok")
		if len(headers) != 0 {
			t.Errorf("the task has headers %v, want none", headers)
		}
	})
}

// pipeProducer is a Produce stream whose sends block while nothing receives.
type pipeProducer struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *pawlv1.ProduceRequest
	out chan *pawlv1.ProduceResponse
}

func (s *pipeProducer) Context() context.Context { return s.ctx }

func (s *pipeProducer) Recv() (*pawlv1.ProduceRequest, error) {
	into := &pawlv1.ProduceRequest{}
	return into, s.RecvMsg(into)
}

func (s *pipeProducer) RecvMsg(into any) error {
	r, ok := <-s.in
	if !ok {
		return io.EOF
	}
	m := into.(*pawlv1.ProduceRequest)
	m.Number, m.Tasks = r.Number, r.Tasks
	return nil
}

func (s *pipeProducer) Send(m *pawlv1.ProduceResponse) error {
	s.out <- m
	return nil
}

// Answers that are ready while another is being sent are sent together, up to the limit of results in a message. While the client doesn't
// receive, the stream is read only up to its limit of frames in progress.
func TestAnswersGoTogether(t *testing.T) {
	for _, c := range []struct {
		tasks       int // per frame
		least, most int // answers in the second message
	}{{1, maxFrames - 1, maxFrames}, {400, 3, 3}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(newFake(1))
			s := &pipeProducer{in: make(chan *pawlv1.ProduceRequest), out: make(chan *pawlv1.ProduceResponse)}
			ctx, call := callinfo.Begin(t.Context(), "grpc", "test")
			s.ctx, call.Receiver = ctx, &receive.Receiver{Stream: ctx}
			ended := make(chan error)
			go func() { ended <- g.services.producer.Produce(s) }()
			taken := atomic.Int32{}
			go func() {
				for n := range uint64(100) {
					m := &pawlv1.ProduceRequest{Number: n}
					for range c.tasks {
						m.Tasks = append(m.Tasks, &pawlv1.TaskSpec{Type: "a", Payload: []byte("1")})
					}
					s.in <- m
					taken.Add(1)
				}
				close(s.in)
			}()
			synctest.Wait()
			if n := taken.Load(); n != maxFrames {
				t.Errorf("%d frames were read while no answer was received, want %d", n, maxFrames)
			}
			var sizes []int
			for seen := 0; seen < 100; {
				synctest.Wait()
				m := <-s.out
				seen += len(m.Answers)
				sizes = append(sizes, len(m.Answers))
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if sizes[0] != 1 || sizes[1] < c.least || slices.Max(sizes) > c.most {
				t.Errorf("frames of %d tasks: messages have %v answers, want 1, then at least %d, and never more than %d", c.tasks,
					sizes, c.least, c.most)
			}
		})
	}
}

// A few goroutines of a stream stay to receive, and no frame is started once the stream has ended.
func TestIdleReceivers(t *testing.T) {
	for idle, stays := range map[int]bool{0: true, spareReceivers: true, spareReceivers + 1: false} {
		s := &produceStream{idle: idle, running: 9, ended: make(chan struct{})}
		left := map[bool]int{true: 9, false: 8}[stays]
		if got := s.goOn(); got != stays || s.running != left || (s.idle == idle+1) != stays {
			t.Errorf("with %d receivers idle another stays = %t, then %d of %d are idle", idle, got, s.idle, s.running)
		}
		if s.end(io.EOF); s.begin() {
			t.Error("a frame was started after the end")
		}
		if s.end(io.ErrClosedPipe); s.err != io.EOF {
			t.Errorf("the stream ended with %v, want EOF", s.err)
		}
	}
}
