package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/receive"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
)

// pipeStream is a Work stream without a network. Its sends block while nothing receives, as with flow control.
type pipeStream struct {
	grpc.ServerStream
	ctx     context.Context
	in      chan *pawlv1.WorkRequest
	closed  chan struct{} // the worker closed its side
	out     chan *pawlv1.WorkResponse
	sending sync.Mutex
	fails   func(*pawlv1.WorkResponse) bool // if set, reports which frames can't be sent
}

var errSend = errors.New("a send broke")

func (s *pipeStream) Context() context.Context    { return s.ctx }
func (*pipeStream) SetTrailer(metadata.MD)        {}
func (s *pipeStream) SetHeader(metadata.MD) error { return nil }

func (s *pipeStream) Recv() (*pawlv1.WorkRequest, error) {
	select {
	case r := <-s.in:
		return r, nil
	case <-s.closed:
		return nil, io.EOF
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *pipeStream) Send(r *pawlv1.WorkResponse) error {
	if !s.sending.TryLock() {
		panic("two senders at once")
	}
	defer s.sending.Unlock()
	if s.fails != nil && s.fails(r) {
		return errSend
	}
	select {
	case s.out <- r:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// workerClient is a worker with its stream.
type workerClient struct {
	t      *testing.T
	f      *fake
	g      *Gateway
	stream *pipeStream
	cut    context.CancelFunc
	ended  chan error
}

// startWorker opens a stream to a gateway over f, in a bubble.
func startWorker(t *testing.T, f *fake, first *pawlv1.WorkRequest) *workerClient {
	ctx, cut := context.WithCancel(context.Background())
	s := &workerClient{t: t, f: f, g: newGateway(f), cut: cut, ended: make(chan error, 1),
		stream: &pipeStream{in: make(chan *pawlv1.WorkRequest), closed: make(chan struct{}), out: make(chan *pawlv1.WorkResponse)}}
	var call *callinfo.Call
	s.stream.ctx, call = callinfo.Begin(ctx, "grpc", "test")
	call.Receiver = &receive.Receiver{Stream: ctx}
	go func() {
		err := s.g.services.worker.Work(s.stream)
		cut() // as gRPC does
		s.ended <- err
	}()
	s.send(first)
	return s
}

func hello(queues ...string) *pawlv1.WorkHello {
	h := &pawlv1.WorkHello{Worker: "w1"}
	for _, q := range queues {
		h.Queues = append(h.Queues, &pawlv1.QueueShare{Queue: q})
	}
	return h
}

func (s *workerClient) send(r *pawlv1.WorkRequest) {
	select {
	case s.stream.in <- r:
	case <-s.stream.ctx.Done():
	}
}

// hear returns the next frame, nil if there is none within ten seconds.
func (s *workerClient) hear() *pawlv1.WorkResponse {
	select {
	case r := <-s.stream.out:
		return r
	case <-time.After(10 * time.Second):
		return nil
	}
}

func (s *workerClient) enqueue(queue string, n int) {
	s.t.Helper()
	var specs []*pawlv1.TaskSpec
	for range n {
		specs = append(specs, &pawlv1.TaskSpec{Type: "a", Queue: new(queue)})
	}
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	got, err := s.g.services.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: specs})
	if err != nil || got.Results[0].Error != nil {
		s.t.Fatal(got, err)
	}
}

// tasks waits until n tasks have arrived.
func (s *workerClient) tasks(n int) (got []*pawlv1.ClaimedTask) {
	s.t.Helper()
	for len(got) < n {
		r := s.hear()
		if r == nil {
			s.t.Fatalf("%d tasks were pushed, want %d", len(got), n)
		}
		got = append(got, r.GetTasks()...)
	}
	if len(got) > n {
		s.t.Fatalf("%d tasks were pushed for %d slots", len(got), n)
	}
	return got
}

func (s *workerClient) quietFor(d time.Duration) {
	s.t.Helper()
	select {
	case r := <-s.stream.out:
		s.t.Fatalf("the worker got %v, want nothing", r)
	case <-time.After(d):
	}
}

// end closes the worker's side and returns how the stream ended.
func (s *workerClient) end() error {
	close(s.stream.closed)
	err := <-s.ended
	s.g.Shutdown(context.Background())
	return err
}

func ack(tasks ...*pawlv1.ClaimedTask) *pawlv1.SettleRequest {
	r := &pawlv1.SettleRequest{}
	for _, c := range tasks {
		r.Acks = append(r.Acks, &pawlv1.AckRequest{TaskId: c.TaskId, ClaimToken: c.ClaimToken})
	}
	return r
}

func TestWorkPushesWithinTheGrantedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startWorker(t, newFake(), &pawlv1.WorkRequest{Hello: hello("q"), Grant: 3})
		s.enqueue("q", 10)
		first := s.tasks(3)
		s.quietFor(5 * time.Minute)
		s.send(&pawlv1.WorkRequest{Settle: ack(first...), Grant: 2})
		frames := []*pawlv1.WorkResponse{s.hear(), s.hear()}
		var settled, pushed int
		for _, f := range frames {
			settled += len(f.GetSettled().GetAcks())
			pushed += len(f.GetTasks())
		}
		if settled != 3 || pushed != 2 {
			t.Fatalf("%d tasks were settled and %d pushed, want 3 and 2", settled, pushed)
		}
		s.quietFor(time.Minute)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWorkPushesToWaitingWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startWorker(t, newFake(), &pawlv1.WorkRequest{Hello: hello("q"), Grant: 5})
		s.quietFor(5 * time.Minute) // longer than several waits
		s.enqueue("q", 1)
		s.tasks(1)
		s.enqueue("q", 4)
		s.tasks(4)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWorkAnswersSettlesInOrderAndGathersThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 20})
		s.enqueue("q", 20)
		tasks := s.tasks(20)
		hold := make(chan struct{})
		f.set(func() { f.hold = hold })
		for _, c := range tasks {
			s.send(&pawlv1.WorkRequest{Settle: ack(c)})
			synctest.Wait()
		}
		close(hold)
		var got []*pawlv1.Settled
		for len(got) < len(tasks) {
			r := s.hear()
			if len(r.GetSettled().GetAcks()) == 0 {
				t.Fatalf("got %v after %d answers", r, len(got))
			}
			got = append(got, r.GetSettled().GetAcks()...)
		}
		for i, c := range tasks {
			if got[i].TaskId != c.TaskId || got[i].Error != nil {
				t.Fatalf("answer %d = %v, want the ack of %s", i, got[i], c.TaskId)
			}
		}
		if len(f.settles) != 2 || len(f.settles[0]) != 1 || len(f.settles[1]) != 19 {
			t.Fatalf("the broker got %d settle calls, want one with 1 and one with the other 19", len(f.settles))
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLostClaimsAreReportedAfterTheirTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 2})
		s.enqueue("q", 2)
		tasks := s.tasks(2)
		id, _ := task.ParseID(tasks[0].TaskId)
		if _, _, err := f.command(broker.TaskCommand{Verb: broker.Cancel, OnTask: broker.OnTask{Namespace: "default", ID: id}}); err !=
			nil {
			t.Fatal(err)
		}
		r := s.hear()
		if len(r.GetLost()) != 1 || r.Lost[0].ClaimToken != tasks[0].ClaimToken || r.Lost[0].TaskId != tasks[0].TaskId ||
			r.Lost[0].Reason != "cancelled" {
			t.Fatalf("the worker got %v, want the loss of %s", r, tasks[0].TaskId)
		}
		list := workerQuery(s.stream.ctx)
		list.Limit = 1
		if runs := s.g.cfg.Registry.List(list).Workers[0].Running; len(runs) != 1 || runs[0].Token.String() != tasks[1].ClaimToken {
			t.Errorf("the worker runs %+v, want only what it has not lost", runs)
		}
		s.send(&pawlv1.WorkRequest{Settle: ack(tasks...)})
		r = s.hear()
		if r.Settled.Acks[0].Error.GetCode() != "stale_claim" || r.Settled.Acks[1].Error != nil {
			t.Fatalf("the worker got %v, want a stale claim and an ack", r)
		}
		f.set(func() {
			for w := range f.watches {
				if len(w.held) > 0 {
					t.Errorf("claims that ended are still watched: %v", w.held)
				}
			}
		})
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if len(f.watches) > 0 {
			t.Errorf("%d watches are still open after the stream ended", len(f.watches))
		}
	})
}

func TestQuietWorkerMaySettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startWorker(t, newFake(), &pawlv1.WorkRequest{Hello: hello("q"), Grant: 5})
		s.enqueue("q", 1)
		tasks := s.tasks(1)
		s.send(&pawlv1.WorkRequest{Quiet: true})
		synctest.Wait()
		s.enqueue("q", 3)
		s.quietFor(time.Minute)
		s.send(&pawlv1.WorkRequest{Settle: ack(tasks...), Grant: 1})
		if r := s.hear(); len(r.GetSettled().GetAcks()) != 1 {
			t.Fatalf("the worker got %v, want the result of its ack", r)
		}
		s.quietFor(time.Minute)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDrainingServerStillSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 5})
		s.enqueue("q", 1)
		tasks := s.tasks(1)
		close(f.draining)
		if r := s.hear(); !r.GetDraining() {
			t.Fatalf("the worker got %v, want a draining notice", r)
		}
		s.enqueue("q", 1)
		s.quietFor(time.Minute)
		s.send(&pawlv1.WorkRequest{Settle: ack(tasks...)})
		if r := s.hear(); len(r.GetSettled().GetAcks()) != 1 || r.Settled.Acks[0].Error != nil {
			t.Fatalf("the worker got %v, want the result of its ack", r)
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A worker that vanishes while tasks are in flight to it must not hold them until their leases expire.
func TestUndeliveredClaimsAreGivenBack(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 5})
			s.enqueue("q", n)
			synctest.Wait() // the frame waits to be received
			s.cut()
			if err := <-s.ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			s.g.Shutdown(context.Background())
			if len(f.released) != n {
				t.Fatalf("%d tasks were given back, want %d", len(f.released), n)
			}
		})
	}
}

// Settles that were received before a connection broke are run, so that the worker need not repeat them.
func TestSettlesOfABrokenStreamAreRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 5})
		s.enqueue("q", 5)
		tasks := s.tasks(5)
		hold := make(chan struct{})
		f.set(func() { f.hold = hold })
		for _, c := range tasks {
			s.send(&pawlv1.WorkRequest{Settle: ack(c)})
		}
		synctest.Wait()
		s.cut()
		synctest.Wait()
		close(hold)
		<-s.ended
		s.g.Shutdown(context.Background())
		done := 0
		for _, x := range f.tasks {
			if x.view.Exec.State == task.Succeeded {
				done++
			}
		}
		if done != 5 {
			t.Fatalf("%d of 5 acks were run", done)
		}
	})
}

func TestWorkRefusals(t *testing.T) {
	many := &pawlv1.SettleRequest{}
	for range contract.MaxSettle + 1 {
		many.Acks = append(many.Acks, &pawlv1.AckRequest{})
	}
	for _, c := range []struct {
		name   string
		frames []*pawlv1.WorkRequest
		field  string
	}{
		{"no hello", []*pawlv1.WorkRequest{{Grant: 1}}, "hello"},
		{"no queue", []*pawlv1.WorkRequest{{Hello: &pawlv1.WorkHello{}}}, "queues"},
		{"lease", []*pawlv1.WorkRequest{{Hello: &pawlv1.WorkHello{Queues: hello("q").Queues, Lease: durationpb.New(time.Millisecond)}}},
			"lease"},
		{"host", []*pawlv1.WorkRequest{{Hello: &pawlv1.WorkHello{Queues: hello("q").Queues, Host: "a\nb"}}}, "hello.host"},
		{"two hellos", []*pawlv1.WorkRequest{{Hello: hello("q")}, {Hello: hello("q")}}, "hello"},
		{"negative slots", []*pawlv1.WorkRequest{{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "q"}},
			Worker: "w", Slots: -1}}},
			"hello.slots"},
		{"too many slots", []*pawlv1.WorkRequest{{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "q"}}, Worker: "w",
			Slots: maxSlots + 1}}}, "hello.slots"},
		{"negative grant", []*pawlv1.WorkRequest{{Hello: hello("q")}, {Grant: -1}}, "grant"},
		{"large grant", []*pawlv1.WorkRequest{{Hello: hello("q"), Grant: maxSlots}, {Grant: 1}}, "grant"},
		{"large settle", []*pawlv1.WorkRequest{{Hello: hello("q")}, {Settle: many}}, "settle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startWorker(t, newFake(), c.frames[0])
				for _, f := range c.frames[1:] {
					s.send(f)
				}
				err := <-s.ended
				if e, ok := task.AsError(err); !ok || e.Field != c.field || e.Code != task.CodeInvalidArgument {
					t.Errorf("the stream ended with %v, want %s refused", err, c.field)
				}
				s.g.Shutdown(context.Background())
			})
		})
	}
}

// A shard without a leader does not disconnect a worker.
func TestWorkSurvivesElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 1})
		s.enqueue("q", 1)
		tasks := s.tasks(1)
		f.set(func() { f.down[1] = true })
		s.send(&pawlv1.WorkRequest{Settle: ack(tasks...), Grant: 1})
		if r := s.hear(); r.GetSettled().GetAcks()[0].GetError().GetCode() != "unavailable" {
			t.Fatalf("the worker got %v, want unavailable", r)
		}
		s.quietFor(time.Minute)
		f.set(func() { f.down[1] = false })
		s.enqueue("q", 1)
		s.tasks(1)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPanicEndsOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q")})
		synctest.Wait()
		f.panics = true
		s.send(&pawlv1.WorkRequest{Grant: 1})
		if err := <-s.ended; err == nil {
			t.Error("the stream continued after a panic")
		}
		s.g.Shutdown(context.Background())
	})
}

// Many workers and producers run at the same time: each task goes to one worker at a time, and all tasks are done.
func TestManyWorkersShareAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		f.home = map[string]uint32{"a": 1, "b": 2}
		const workers, n = 4, 200
		var mu sync.Mutex
		seen := map[string]int{}
		var all sync.WaitGroup
		var shifts []*workerClient
		for i := range workers {
			s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("a", "b"), Grant: int32(3 + i)})
			shifts = append(shifts, s)
			all.Go(func() {
				for {
					select {
					case r := <-s.stream.out:
						mu.Lock()
						for _, c := range r.GetTasks() {
							seen[c.TaskId]++
						}
						mu.Unlock()
						if tasks := r.GetTasks(); len(tasks) > 0 {
							go s.send(&pawlv1.WorkRequest{Settle: ack(tasks...), Grant: int32(len(tasks))})
						}
					case <-s.stream.ctx.Done():
						return
					}
				}
			})
		}
		for i := range n / 10 {
			shifts[0].enqueue([]string{"a", "b"}[i%2], 10)
		}
		pass(time.Minute)
		for _, s := range shifts {
			if err := s.end(); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		if len(seen) != n {
			t.Errorf("%d of %d tasks were delivered", len(seen), n)
		}
		for id, times := range seen {
			if times != 1 {
				t.Errorf("task %s was delivered %d times", id, times)
			}
		}
	})
}

// A stream ends when a claim definitely fails. It reports its free slots to the registry, and refuses more than the maximum.
func TestWorkEndsWhenClaimFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 3})
		synctest.Wait()
		list := workerQuery(s.stream.ctx)
		list.Limit = 1
		if w := f.registry.List(list).Workers; len(w) != 1 || w[0].Slots != 3 {
			t.Errorf("the registry has %+v, want a worker with 3 slots", w)
		}
		broken := errors.New("a claim broke")
		f.set(func() { f.fails = broken; f.notify() })
		if err := <-s.ended; !errors.Is(err, broken) {
			t.Errorf("the stream ended with %v, want the error of the claim", err)
		}
		s.g.Shutdown(context.Background())

		f = newFake() // a node that is not ready: the worker goes to another one
		s = startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 3})
		f.set(func() { f.fails = task.Unavailable(0, "no leader"); f.notify() })
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.ended) > 0 {
			t.Error("the stream ended while a shard had no leader")
		}
		f.set(func() { f.fails = task.NotReady("cut off"); f.notify() })
		if err := <-s.ended; !errors.Is(err, task.ErrNotReady) {
			t.Errorf("the stream ended with %v, want that the node is not ready", err)
		}
		s.g.Shutdown(context.Background())

		for _, c := range []struct {
			first *pawlv1.WorkRequest
			field string
		}{
			{&pawlv1.WorkRequest{Hello: hello("q"), Grant: maxSlots}, ""}, {&pawlv1.WorkRequest{Hello: hello("q"), Grant: maxSlots + 1},
				"grant"},
			{&pawlv1.WorkRequest{Hello: hello("q"), Grant: -1}, "grant"}, {&pawlv1.WorkRequest{}, "hello"},
			{&pawlv1.WorkRequest{Hello: hello()}, "queues"}, {&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: hello("q").Queues,
				Slots: maxSlots, Instance: strings.Repeat("x", maxInstance)}},
				""},
			{&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: hello("q").Queues, Slots: maxSlots + 1}}, "hello.slots"},
			{&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: hello("q").Queues, Slots: -1}}, "hello.slots"},
			{&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: hello("q").Queues, Instance: strings.Repeat("x", maxInstance+1)}},
				"hello.instance"}, {&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: hello("q").Queues,
				Host: strings.Repeat("x", 257)}},
				"hello.host"},
			{&pawlv1.WorkRequest{Hello: hello("q"), Settle: &pawlv1.SettleRequest{Acks: make([]*pawlv1.AckRequest, contract.MaxSettle+1)}},
				"settle"},
		} {
			s := startWorker(t, newFake(), c.first)
			synctest.Wait()
			err := s.end()
			if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && (e == nil || e.Field != c.field) {
				t.Errorf("%v: %v, want field %q refused", c.first, err, c.field)
			}
		}
	})
}

// The spans of a stream's tasks, for their claims and ends, belong to the traces that the tasks name, whatever the stream's own trace.
func TestStreamTasksHaveTheirTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q")})
		told := restStory{t: t, spans: tracetest.NewSpanRecorder()}
		synctest.Wait()
		s.g.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(told.spans)).Tracer("test")
		s.g.wire()
		ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
		for range 4 {
			if _, err := (s.g.services.producer).Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Queue: new("q"),
				Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}); err != nil {
				t.Fatal(err)
			}
		}
		told.spans.Reset()
		pass(time.Second)
		s.send(&pawlv1.WorkRequest{Grant: 4})
		got := s.tasks(4)
		pass(time.Second)
		stale := ack(got[3])
		stale.Acks[0].ClaimToken = claimToken
		s.send(&pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: append(ack(got[0]).Acks, stale.Acks...),
			Fails: []*pawlv1.FailRequest{
				{TaskId: got[1].TaskId, ClaimToken: got[1].ClaimToken}},
			Releases: []*pawlv1.ReleaseRequest{{TaskId: got[2].TaskId, ClaimToken: got[2].ClaimToken}}, Extends: []*pawlv1.ExtendRequest{
				{TaskId: got[0].TaskId, ClaimToken: got[0].ClaimToken}}}})
		s.hear()
		s.send(&pawlv1.WorkRequest{Settle: ack(got[0])}) // again: its span has ended
		s.hear()
		golden(t, "testdata/stream_spans.txt", []byte(told.ended()))
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}

// onDemand runs its function once at a time, once more for all pokes meanwhile, and not after the end.
func TestOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, goOn := 0, make(chan struct{})
		o := &onDemand{do: func() { began++; <-goOn }}
		poke := func() { o.poke() }
		for _, c := range []struct {
			do   func()
			want int // starts of the function by then
		}{{func() {}, 0}, {poke, 1}, {poke, 1}, {poke, 1}, {func() { goOn <- struct{}{} }, 2}, {func() { goOn <- struct{}{} }, 2},
			{poke, 3}, {poke, 3}} {
			if c.do(); true {
				synctest.Wait()
			}
			if began != c.want {
				t.Fatalf("the function started %d times, want %d", began, c.want)
			}
		}
		stopped := false
		go func() { o.stop(); stopped = true }()
		if synctest.Wait(); stopped {
			t.Error("stop returned while the function runs")
		}
		close(goOn)
		if synctest.Wait(); !stopped || began != 4 {
			t.Errorf("stopped: %t, the function started %d times", stopped, began)
		}
		if does := o.poke(); does {
			t.Error("poke promised to do something after the end")
		}
		if synctest.Wait(); began != 4 {
			t.Error("the function started after the end")
		}
	})
}

// A stream ends when a frame can't be sent, whatever it contains. Tasks in it are given back.
func TestWorkEndsWhenSendFails(t *testing.T) {
	for what, c := range map[string]struct {
		fails   func(*pawlv1.WorkResponse) bool
		happens func(s *workerClient, id task.ID)
		back    int
	}{
		"that the node drains": {func(r *pawlv1.WorkResponse) bool { return r.GetDraining() }, func(s *workerClient, _ task.ID) {
			close(s.f.draining)
		}, 0},
		"an operator's word": {func(r *pawlv1.WorkResponse) bool { return r.GetQuiet() != nil }, func(s *workerClient, _ task.ID) {
			steer(t, s.g, one(t, s.f).ID, true)
		}, 0},
		"a lost claim": {func(r *pawlv1.WorkResponse) bool { return len(r.GetLost()) > 0 }, func(s *workerClient, id task.ID) {
			_, _, _ = s.f.command(broker.TaskCommand{Verb: broker.Cancel, OnTask: broker.OnTask{Namespace: "default", ID: id}})
		}, 0},
		"tasks": {func(r *pawlv1.WorkResponse) bool { return len(r.GetTasks()) > 0 }, func(s *workerClient, _ task.ID) {
			s.enqueue("q", 3)
		}, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := startWorker(t, newFake(), &pawlv1.WorkRequest{Hello: hello("q"), Grant: 5})
			s.enqueue("q", 1)
			id, _ := task.ParseID(s.tasks(1)[0].TaskId)
			synctest.Wait()
			s.stream.fails = c.fails
			c.happens(s, id)
			if err := <-s.ended; !errors.Is(err, errSend) {
				t.Errorf("%s: the stream ended with %v, want the send error", what, err)
			}
			s.g.Shutdown(context.Background())
			if len(s.f.released) != c.back {
				t.Errorf("%s: %d tasks were given back, want %d", what, len(s.f.released), c.back)
			}
		})
	}
}

// Claims that arrive when the worker must get none, or when a frame that must precede them can't be sent, are given
// back and not sent. Other claims follow that frame.
func TestLateClaimsAreGivenBack(t *testing.T) {
	for what, c := range map[string]struct {
		change func(w *work)
		err    error
		frames string
	}{
		"in time":                   {func(*work) {}, nil, "tasks"},
		"the worker drains":         {func(w *work) { w.stopPush() }, nil, ""},
		"an operator made it quiet": {func(w *work) { w.quiet.quiet = true }, nil, ""},
		"an operator's word waits":  {func(w *work) { w.quiet.notice = &pawlv1.QuietNotice{} }, nil, "word tasks"},
		"it can't be told": {func(w *work) {
			w.quiet.notice = &pawlv1.QuietNotice{}
			w.stream.(*pipeStream).fails = func(r *pawlv1.WorkResponse) bool { return r.GetQuiet() != nil }
		}, errSend, ""},
	} {
		f := newFake()
		g := newGateway(f)
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		put(t, g, ctx, "q", 2, "1")
		got, _, err := f.Claim(ctx, 1, broker.ClaimCall{Queues: []broker.Share{{Queue: "q"}}, Worker: "w", Max: 2, MaxBytes: 1000}, 0)
		if err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		w := &work{g: &g.services.worker, stream: &pipeStream{ctx: ctx, out: make(chan *pawlv1.WorkResponse, 9)}, slots: 3}
		w.pushing, w.stopPush = context.WithCancel(ctx)
		w.watch, w.quiet.me = f.WatchClaims(func(broker.Lost) {}), f.registry.Join(registry.Hello{Namespace: "default", Name: "w"}, "", 0,
			func() {})
		c.change(w)
		if err := w.deliver(got, nil); !errors.Is(err, c.err) {
			t.Errorf("%s: deliver = %v", what, err)
		}
		w.stopPush()
		g.Shutdown(context.Background())
		var frames []string
		for close(w.stream.(*pipeStream).out); ; {
			r, more := <-w.stream.(*pipeStream).out
			if !more {
				break
			}
			if r.GetQuiet() != nil {
				frames = append(frames, "word")
			}
			if len(r.GetTasks()) == 2 {
				frames = append(frames, "tasks")
			}
		}
		sent := strings.Contains(c.frames, "tasks")
		if back := len(f.released); strings.Join(frames, " ") != c.frames || sent != (back == 0) || !sent && back != 2 ||
			sent != (w.slots == 1) {
			t.Errorf("%s: sent %q, gave back %d tasks, %d slots left", what, frames, back, w.slots)
		}
	}
}

// ackIn returns an ack of an unknown task of a shard.
func ackIn(shard uint32, n int) *pawlv1.AckRequest {
	return &pawlv1.AckRequest{TaskId: task.NewID(shard, 1, uint64(n)).String(), ClaimToken: task.Token{Fence: 1, Nonce: 1}.String()}
}

// A shard that does not answer holds up no settles of the others, also if they came in one frame with settles for it.
func TestSettlesDontWaitForOtherShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		hold := make(chan struct{})
		f.hold, f.holds = hold, 1
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q")})
		for n := range 3 {
			began := time.Now()
			s.send(&pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{ackIn(1, n), ackIn(2, n)}}})
			got := s.hear().GetSettled().GetAcks()
			if len(got) != 1 || got[0].GetTaskId() != ackIn(2, n).TaskId || time.Since(began) != 0 {
				t.Fatalf("after %v, the answer to frame %d was %v, want that of shard 2", time.Since(began), n, got)
			}
		}
		close(hold)
		for n := 0; n < 3; {
			got := s.hear().GetSettled().GetAcks()
			if len(got) == 0 {
				t.Fatalf("%d of 3 answers of shard 1 came", n)
			}
			for _, a := range got {
				if a.GetTaskId() != ackIn(1, n).TaskId {
					t.Errorf("answer %d of shard 1 is for %s", n, a.GetTaskId())
				}
				n++
			}
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// The lane of a shard that does not answer is bounded: then it refuses settles, and those for other shards get through.
func TestFullLaneRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		hold := make(chan struct{})
		f.hold, f.holds = hold, 1
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q")})
		for n := range 1 + laneFrames { // the first runs
			s.send(&pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{ackIn(1, n)}}})
			synctest.Wait()
		}
		began := time.Now()
		for n := 100; n < 103; n++ {
			s.send(&pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{ackIn(2, n), ackIn(1, n)}}})
			codes := map[string]string{}
			for _, a := range append(s.hear().GetSettled().GetAcks(), s.hear().GetSettled().GetAcks()...) {
				codes[a.GetTaskId()] = a.GetError().GetCode()
			}
			want := map[string]string{ackIn(1, n).TaskId: string(task.CodeUnavailable), ackIn(2, n).TaskId: string(task.CodeNotFound)}
			if !maps.Equal(codes, want) {
				t.Errorf("frame %d was answered with %v, want %v", n, codes, want)
			}
		}
		if took := time.Since(began); took != laneWait {
			t.Errorf("three frames took %v, want %v for the first and nothing for the others", took, laneWait)
		}
		close(hold)
		for n := 0; n < 1+laneFrames; {
			got := s.hear().GetSettled().GetAcks()
			if len(got) == 0 {
				t.Fatalf("%d of %d answers came", n, 1+laneFrames)
			}
			n += len(got)
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A full lane that moves makes the stream wait. A stream that ends meanwhile gives back the frame's memory.
func TestSettlesWaitForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			end  func(*work, context.CancelFunc)
			want error
		}{
			"the worker is gone":   {func(_ *work, leave context.CancelFunc) { leave() }, context.Canceled},
			"the stream has ended": {func(w *work, _ context.CancelFunc) { w.err = errSend; close(w.ended) }, errSend},
			"the lane moves":       {func(w *work, _ context.CancelFunc) { w.lanes[1].take() }, nil},
		} {
			ctx, leave := context.WithCancel(t.Context())
			kept, given := 0, 0
			w := &work{g: &newGateway(newFake()).services.worker, ended: make(chan struct{}), lanesEnd: true,
				keep: func() func() { kept++; return func() { given++ } }}
			w.quiet.me = newFake().registry.Join(registry.Hello{}, "", 0, func() {})
			full := settleBatch{calls: make([]broker.Settle, laneItems), answers: make([]*pawlv1.Settled, laneItems)}
			if _, added := w.lane(1).tryAdd(&full, &heldFrame{give: func() {}}); !added {
				t.Fatal("the lane of a new stream is full")
			}
			var err error
			done := false
			go func() {
				err = w.accept(ctx, &pawlv1.WorkRequest{Settle: &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{ackIn(1, 1)}}})
				done = true
			}()
			if synctest.Wait(); done {
				t.Errorf("%s: a full lane took a frame, or refused it at once: %v", what, err)
			}
			c.end(w, leave)
			if synctest.Wait(); !done || err != c.want || kept != 1 || given != 1 {
				t.Errorf("%s: accepted: %t, %v, want %v; the memory was kept %d times and given back %d times", what, done, err,
					c.want, kept, given)
			}
			leave()
		}
	})
}

// A lane takes frames up to the limits of items and frames. A frame that is larger than the lane is taken alone.
func TestLaneIsBounded(t *testing.T) {
	for _, c := range []struct {
		items []int // of each frame
		want  int   // frames taken
	}{{[]int{1, 1, 1}, 3}, {[]int{laneItems, 1}, 1}, {[]int{laneItems - 1, 1, 1}, 2}, {[]int{laneItems + 1}, 1},
		{slices.Repeat([]int{1}, laneFrames+1), laneFrames}} {
		l := &settleLane{taken: make(chan struct{}, 1)}
		got := 0
		for _, n := range c.items {
			if _, added := l.tryAdd(&settleBatch{make([]broker.Settle, n), make([]*pawlv1.Settled, n)}, &heldFrame{}); added {
				got++
			}
		}
		if b, frames := l.take(); got != c.want || len(frames) != got || len(b.calls) != len(b.answers) {
			t.Errorf("of frames with %d … items, %d were taken, want %d", c.items[0], got, c.want)
		}
		if b, frames := l.take(); len(b.calls) != 0 || len(frames) != 0 {
			t.Errorf("%d items are still there after they were taken", len(b.calls))
		}
	}
}

// Settles are limited in number, malformed ones are answered too, and each shard is asked once for its own.
func TestSettlesInShards(t *testing.T) {
	for n, good := range map[int]bool{contract.MaxSettle: true, contract.MaxSettle + 1: false} {
		if err := checkSettle(&pawlv1.SettleRequest{Acks: make([]*pawlv1.AckRequest, n)}); (err == nil) != good {
			t.Errorf("checkSettle of %d items: %v", n, err)
		}
	}
	g := newGateway(newFake())
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	if got, err := (g.services.worker).Settle(ctx, &pawlv1.SettleRequest{Acks: []*pawlv1.AckRequest{{TaskId: "x"}}}); err != nil ||
		got.GetAcks()[0].GetError().GetField() != "task_id" {
		t.Errorf("Settle with an invalid task id = %v, %v", got, err)
	}
	for _, c := range []struct{ shards, want []uint32 }{{nil, nil}, {[]uint32{1, 1}, []uint32{1}}, {[]uint32{1, 2, 1}, []uint32{1, 2}},
		{[]uint32{2, 1}, []uint32{2, 1}}} {
		var b settleBatch
		for i, shard := range c.shards {
			b.calls, b.answers = append(b.calls, broker.Settle{Hold: broker.Hold{ID: task.NewID(shard, 1, uint64(i))}}),
				append(b.answers, &pawlv1.Settled{})
		}
		var got []uint32
		items := 0
		for _, p := range b.byShard() {
			got = append(got, p.calls[0].Hold.ID.Shard())
			items += len(p.calls)
			for i := range p.calls {
				if p.calls[i].Hold.ID.Shard() != p.calls[0].Hold.ID.Shard() || len(p.answers) != len(p.calls) {
					t.Errorf("shards %v: a part has the calls %v", c.shards, p.calls)
				}
			}
		}
		if !slices.Equal(got, c.want) || items != len(c.shards) {
			t.Errorf("shards %v: %d items in parts for %v, want %v", c.shards, items, got, c.want)
		}
	}
}

// A refused claim is repeated after the pause in the error, within limits. The pause ends early when nothing should be claimed any more.
func TestPausesBetweenClaims(t *testing.T) {
	for want, err := range map[time.Duration]error{pushPause: errors.New("x"), pushPause + 1: task.Unavailable(pushPause+1, "x"),
		pushPauseMax: task.Unavailable(pushPauseMax+1, "x"), pushPauseMax - 1: task.Unavailable(pushPauseMax-1, "x")} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			w := &work{g: &newGateway(f).services.worker, pushing: t.Context()}
			began := time.Now()
			if w.pause(err); time.Since(began) != want {
				t.Errorf("%v: pause of %v, want %v", err, time.Since(began), want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		w := &work{g: &newGateway(f).services.worker}
		w.pushing, w.stopPush = context.WithCancel(t.Context())
		w.stopPush()
		began := time.Now()
		w.pause(errPlanted)
		close(f.draining)
		w.pushing = t.Context()
		if w.pause(errPlanted); time.Since(began) != 0 {
			t.Errorf("pause at the end took %v, want none", time.Since(began))
		}
	})
}

// Notifications of lost claims wait up to their limit.
func TestNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := &work{}
		w.notifier.do = func() { told++ }
		for i := range maxNotices + 2 {
			if w.onLost(broker.Lost{}); len(w.lost) != min(i+1, maxNotices) {
				t.Fatalf("%d notifications wait after %d lost claims", len(w.lost), i+1)
			}
		}
		synctest.Wait()
		if told == 0 {
			t.Error("the notifier was not started for waiting notifications")
		}
		told = 0
		w.onLost(broker.Lost{})
		if synctest.Wait(); told != 0 {
			t.Error("the notifier was started for a dropped notification")
		}
		w.notifier.stop()
	})
}
