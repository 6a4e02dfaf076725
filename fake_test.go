package pawl_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// fake is a broker in a map, without a disk, retry delays or limits. It has the behavior that the SDK relies on, and
// hooks to make it misbehave.
type fake struct {
	pawlv1.UnimplementedProducerServiceServer
	pawlv1.UnimplementedWorkerServiceServer
	pawlv1.UnimplementedOperatorServiceServer
	pawlv1.UnimplementedScheduleServiceServer
	pawlv1.UnimplementedClusterServiceServer
	pawlv1.UnimplementedGroupServiceServer

	server *grpc.Server
	pipe   *bufconn.Listener

	mu        sync.Mutex
	tasks     map[string]*fakeTask
	requests  map[string]string // task by request id
	ready     []*fakeTask
	streams   map[*fakeStream]bool
	producers map[*fakeProducer]bool
	opened    int // producers' streams, so far
	conns     []net.Conn
	enqueues  [][]*pawlv1.TaskSpec // in each request
	hellos    []*pawlv1.WorkHello
	settles   []*pawlv1.SettleRequest // from streams and calls
	token     string                  // from the last call
	changed   chan struct{}           // closed and replaced whenever a task ends

	// Hooks.
	before      func(method string) error        // before a call is handled
	after       func(method string) error        // returns an error in place of the response
	settleIt    func(token string) *pawlv1.Error // refuses an ending, without any other effect
	loseAnswers bool                             // of settle frames
	// pushes nothing until a worker reports that it is quiet, and then pushes before handling that frame
	held          bool
	mute          bool                                 // streams accept frames, and send none
	greet         func(*pawlv1.WorkHello) error        // refuses a stream
	greetProducer error                                // refuses a producer's stream
	paused        chan struct{}                        // producers' streams are not read until it is closed
	refuse        func(*pawlv1.TaskSpec) *pawlv1.Error // refuses a task
	operator      func(method string, req any) (resp any, taken bool)
	lease         time.Duration
	newID         func(*pawlv1.TaskSpec) string // of a task. If nil: t1, t2, …

	// For benchmarks.
	lean         bool   // keep no records
	commit       func() // a settle frame waits for it
	requestCount atomic.Int64
}

type fakeTask struct {
	spec    *pawlv1.TaskSpec
	id      string
	state   pawlv1.State
	fence   int64
	attempt int32
	token   string
	settled map[string]*pawlv1.Settled // first answers, by token
	result  []byte
	// resultType is the result's content type.
	resultType string
	reason     string
	progress   *pawlv1.Progress
	check      []byte
	extends    []time.Time
	leaseEnd   time.Time
	log        []*pawlv1.Attempt
}

// start runs a fake and a client of it until the test ends.
func start(t testing.TB, opts ...pawl.DialOptions) (*fake, *pawl.Client) {
	t.Helper()
	f := newFake()
	t.Cleanup(f.stop)
	opts = append([]pawl.DialOptions{{Dialer: f.dial, Logger: slog.New(slog.DiscardHandler)}}, opts...)
	client, err := pawl.Dial("fake", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return f, client
}

func newFake() *fake {
	f := &fake{
		pipe: bufconn.Listen(1 << 20), tasks: map[string]*fakeTask{}, requests: map[string]string{}, streams: map[*fakeStream]bool{},
		producers: map[*fakeProducer]bool{}, changed: make(chan struct{}), lease: 30 * time.Second,
	}
	f.server = f.newServer(grpc.UnaryInterceptor(f.intercept))
	pawlv1.RegisterClusterServiceServer(f.server, f)
	go f.server.Serve(f.pipe)
	return f
}

// newServer returns a server with all services except the cluster's.
func (f *fake) newServer(opts ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20),
		grpc.StaticStreamWindowSize(2<<20), grpc.StaticConnWindowSize(8<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)...)
	pawlv1.RegisterProducerServiceServer(server, f)
	pawlv1.RegisterWorkerServiceServer(server, f)
	pawlv1.RegisterOperatorServiceServer(server, f)
	pawlv1.RegisterScheduleServiceServer(server, f)
	pawlv1.RegisterGroupServiceServer(server, f)
	return server
}

func (f *fake) stop() { f.server.Stop() }

func (f *fake) dial(ctx context.Context, _ string) (net.Conn, error) {
	c, err := f.pipe.DialContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, c)
	return c, err
}

// cut breaks all connections.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

// set changes hooks.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	f.mu.Lock()
	before, after, operator := f.before, f.after, f.operator
	f.token = tokenOf(ctx)
	f.mu.Unlock()
	if before != nil {
		if err := before(method); err != nil {
			return nil, err
		}
	}
	if operator != nil {
		if resp, taken := operator(method, req); taken {
			return resp, nil
		}
	}
	resp, err := handle(ctx, req)
	if after != nil && err == nil {
		if err := after(method); err != nil {
			return nil, err
		}
	}
	return resp, err
}

// refusal returns a gRPC error with details.
func refusal(c codes.Code, e *pawlv1.Error) error {
	st, err := status.New(c, e.Message).WithDetails(e)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

var errUnavailable = refusal(codes.Unavailable, &pawlv1.Error{Code: "unavailable", Message: "no leader"})

func (f *fake) Enqueue(_ context.Context, r *pawlv1.EnqueueRequest) (*pawlv1.EnqueueResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record([]*pawlv1.TaskSpec{r.Task})
	task, e := f.enqueue(r.Task)
	f.pump()
	if e != nil {
		return nil, refusal(codes.InvalidArgument, e)
	}
	return &pawlv1.EnqueueResponse{Task: task}, nil
}

func (f *fake) EnqueueBatch(_ context.Context, r *pawlv1.EnqueueBatchRequest) (*pawlv1.EnqueueBatchResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.record(r.Tasks)
	out := &pawlv1.EnqueueBatchResponse{}
	for _, spec := range r.Tasks {
		task, e := f.enqueue(spec)
		out.Results = append(out.Results, &pawlv1.EnqueueResult{Task: task, Error: e})
	}
	f.pump()
	return out, nil
}

// Produce answers each frame like the corresponding call: Enqueue if it has one task, else EnqueueBatch.
func (f *fake) Produce(stream pawlv1.ProducerService_ProduceServer) error {
	return f.produce(stream, func(ctx context.Context, method string, req any) (any, []*pawlv1.ShardStamp, error) {
		resp, err := f.intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, f.run)
		return resp, nil, err
	})
}

// run handles the call that a frame represents.
func (f *fake) run(ctx context.Context, req any) (any, error) {
	if one, ok := req.(*pawlv1.EnqueueRequest); ok {
		return f.Enqueue(ctx, one)
	}
	return f.EnqueueBatch(ctx, req.(*pawlv1.EnqueueBatchRequest))
}

// produce serves a stream, each frame independently.
func (f *fake) produce(stream pawlv1.ProducerService_ProduceServer, call func(ctx context.Context, method string, req any) (any,
	[]*pawlv1.ShardStamp, error)) error {
	s := &fakeProducer{stream: stream, cut: make(chan error, 1)}
	f.mu.Lock()
	f.producers[s] = true
	f.opened++
	refused := f.greetProducer
	f.mu.Unlock()
	defer f.set(func() { delete(f.producers, s) })
	if refused != nil {
		return refused
	}
	received := make(chan error, 1)
	go func() { received <- s.receive(f, call) }()
	defer s.frames.Wait()
	select {
	case err := <-s.cut:
		return err
	case err := <-received:
		return err
	}
}

// fakeProducer is a producer's stream.
type fakeProducer struct {
	stream  pawlv1.ProducerService_ProduceServer
	frames  sync.WaitGroup
	cut     chan error // ends the stream
	sending sync.Mutex
}

func (s *fakeProducer) receive(f *fake, call func(ctx context.Context, method string, req any) (any, []*pawlv1.ShardStamp, error)) error {
	running := make(chan struct{}, 64) // as many as a gateway handles
	for {
		f.mu.Lock()
		paused := f.paused
		f.mu.Unlock()
		if paused != nil {
			<-paused
		}
		running <- struct{}{}
		r, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.frames.Go(func() {
			defer func() { <-running }()
			a, err := answerFrame(s.stream.Context(), r, call)
			if err != nil {
				select {
				case s.cut <- err:
				default:
				}
			} else if a != nil {
				s.send(&pawlv1.ProduceResponse{Answers: []*pawlv1.ProduceAnswer{a}})
			}
		})
	}
}

func (s *fakeProducer) send(r *pawlv1.ProduceResponse) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.stream.Send(r) // fails only if it has ended
}

// answerFrame returns no answer to a frame for which a hook returns errMute. A gateway that is not ready answers a
// frame with that, or ends the stream when it notices it: here, at a frame with several tasks.
func answerFrame(ctx context.Context, r *pawlv1.ProduceRequest, call func(ctx context.Context, method string, req any) (any,
	[]*pawlv1.ShardStamp, error)) (*pawlv1.ProduceAnswer, error) {
	method, req := "/EnqueueBatch", any(&pawlv1.EnqueueBatchRequest{Tasks: r.Tasks})
	if len(r.Tasks) == 1 {
		method, req = "/Enqueue", &pawlv1.EnqueueRequest{Task: r.Tasks[0]}
	}
	resp, stamps, err := call(ctx, method, req)
	a := &pawlv1.ProduceAnswer{Number: r.Number, Stamps: stamps}
	switch {
	case errors.Is(err, errMute):
		return nil, nil
	case err != nil && len(r.Tasks) > 1 && detailsOf(err).Reason == "node_not_ready":
		return nil, err
	case err != nil:
		a.Error = detailsOf(err)
	case len(r.Tasks) == 1:
		a.Results = []*pawlv1.EnqueueResult{{Task: resp.(*pawlv1.EnqueueResponse).Task}}
	default:
		a.Results = resp.(*pawlv1.EnqueueBatchResponse).Results
	}
	return a, nil
}

// errMute suppresses the answer to a frame.
var errMute = errors.New("no answer")

// detailsOf converts a gRPC error to its form in a frame.
func detailsOf(err error) *pawlv1.Error {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if e, ok := d.(*pawlv1.Error); ok {
			return e
		}
	}
	code := map[codes.Code]string{codes.Unavailable: "unavailable", codes.Unauthenticated: "unauthenticated",
		codes.PermissionDenied: "permission_denied"}[st.Code()]
	return &pawlv1.Error{Code: cmp.Or(code, "internal"), Message: st.Message()}
}

func (f *fake) record(tasks []*pawlv1.TaskSpec) {
	f.requestCount.Add(1)
	if !f.lean {
		f.enqueues = append(f.enqueues, tasks)
	}
}

// fill enqueues n tasks without a call.
func (f *fake) fill(n int, raw pawl.RawTask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range n {
		f.enqueue(&pawlv1.TaskSpec{Type: raw.Type, Payload: raw.Payload, RequestId: new(strconv.Itoa(i))})
	}
}

func (f *fake) enqueue(spec *pawlv1.TaskSpec) (*pawlv1.Enqueued, *pawlv1.Error) {
	if f.refuse != nil {
		if e := f.refuse(spec); e != nil {
			return nil, e
		}
	}
	key := spec.GetQueue() + "/" + spec.GetIdempotencyKey()
	id, duplicate := f.requests[spec.GetRequestId()]
	if !duplicate && spec.IdempotencyKey != nil {
		id, duplicate = f.requests[key]
	}
	if !duplicate {
		id = "t" + strconv.Itoa(len(f.tasks)+1)
		if f.newID != nil {
			id = f.newID(spec)
		}
		t := &fakeTask{spec: spec, id: id, state: pawlv1.State_STATE_READY, attempt: 1, settled: map[string]*pawlv1.Settled{}}
		f.tasks[id], f.requests[spec.GetRequestId()] = t, id
		f.ready = append(f.ready, t)
		if spec.IdempotencyKey != nil {
			f.requests[key] = id
		}
	}
	return &pawlv1.Enqueued{TaskId: id, State: f.tasks[id].state, CreatedAt: timestamppb.Now(), Duplicate: duplicate}, nil
}

func (f *fake) GetTask(ctx context.Context, r *pawlv1.GetTaskRequest) (*pawlv1.GetTaskResponse, error) {
	end := time.After(r.Wait.AsDuration())
	for {
		f.mu.Lock()
		t, changed := f.tasks[r.TaskId], f.changed
		var info *pawlv1.Task
		if t != nil {
			info = t.info()
		}
		f.mu.Unlock()
		if t == nil {
			return nil, refusal(codes.NotFound, &pawlv1.Error{Code: "not_found", Message: "no task " + r.TaskId})
		}
		if info.State >= pawlv1.State_STATE_SUCCEEDED {
			return &pawlv1.GetTaskResponse{Task: info}, nil
		}
		select {
		case <-changed:
		case <-end:
			return &pawlv1.GetTaskResponse{Task: info}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *fakeTask) info() *pawlv1.Task {
	return &pawlv1.Task{
		TaskId: t.id, Type: t.spec.Type, Queue: cmp.Or(t.spec.GetQueue(), "default"), State: t.state, Reason: t.reason,
		Payload: t.spec.Payload, ContentType: t.spec.ContentType, Result: t.result, ResultContentType: t.resultType,
		Attempts: t.attempt, Fence: t.fence, AttemptLog: slices.Clone(t.log), Progress: t.progress, Checkpoint: t.check,
		Headers: t.spec.Headers, Tags: t.spec.Tags, Priority: t.spec.Priority,
	}
}

func (f *fake) CancelTask(_ context.Context, r *pawlv1.CancelTaskRequest) (*pawlv1.CancelTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tasks[r.TaskId]
	if t.state >= pawlv1.State_STATE_SUCCEEDED {
		return nil, refusal(codes.FailedPrecondition, &pawlv1.Error{Code: "wrong_state", State: t.state})
	}
	f.take(t, pawlv1.State_STATE_CANCELLED, "cancelled")
	return &pawlv1.CancelTaskResponse{Task: t.info()}, nil
}

// take takes a task away from its holder, and notifies the holder.
func (f *fake) take(t *fakeTask, to pawlv1.State, reason string) {
	t.state = to
	for s := range f.streams {
		if t.token != "" {
			s.send(&pawlv1.WorkResponse{Lost: []*pawlv1.LostClaim{{TaskId: t.id, ClaimToken: t.token, Reason: reason}}})
		}
	}
	t.token = ""
	f.wake()
}

// expire releases claims whose leases have expired.
func (f *fake) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tasks {
		if t.token != "" && time.Now().After(t.leaseEnd) {
			f.take(t, pawlv1.State_STATE_READY, "expired")
			f.ready = append(f.ready, t)
		}
	}
	f.pump()
}

func (f *fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) ListTasks(_ context.Context, r *pawlv1.ListTasksRequest) (*pawlv1.ListTasksResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out, first := &pawlv1.ListTasksResponse{}, 1
	fmt.Sscanf(r.Cursor, "t%d", &first)
	for n := first; n < first+2 && n <= len(f.tasks); n++ {
		out.Items = append(out.Items, f.tasks[fmt.Sprintf("t%d", n)].info())
	}
	if first+2 <= len(f.tasks) {
		out.NextCursor = fmt.Sprintf("t%d", first+2)
	}
	return out, nil
}

// PutSchedule stores no schedules, so each one is new.
func (f *fake) PutSchedule(_ context.Context, r *pawlv1.PutScheduleRequest) (*pawlv1.PutScheduleResponse, error) {
	return &pawlv1.PutScheduleResponse{Change: "created", Schedule: &pawlv1.Schedule{Spec: r.GetSpec()}}, nil
}

// claim takes the first ready task.
func (f *fake) claim() *pawlv1.ClaimedTask {
	t := f.ready[0]
	f.ready = f.ready[1:]
	t.fence++
	t.leaseEnd = time.Now().Add(f.lease)
	t.state, t.token = pawlv1.State_STATE_CLAIMED, t.id+"."+strconv.FormatInt(t.fence, 10)
	return &pawlv1.ClaimedTask{
		TaskId: t.id, Type: t.spec.Type, Queue: cmp.Or(t.spec.GetQueue(), "default"), Payload: t.spec.Payload,
		ContentType: t.spec.ContentType, Attempt: t.attempt, MaxAttempts: 5, ClaimToken: t.token, Fence: t.fence,
		Lease: durationpb.New(f.lease), LeaseExpiresAt: timestamppb.New(time.Now().Add(f.lease)), Timeout: t.spec.Timeout,
		Headers: t.spec.Headers, Checkpoint: t.check,
	}
}

func (f *fake) Claim(_ context.Context, r *pawlv1.ClaimRequest) (*pawlv1.ClaimResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &pawlv1.ClaimResponse{}
	for len(f.ready) > 0 && len(out.Tasks) < max(1, int(r.Max)) {
		out.Tasks = append(out.Tasks, f.claim())
	}
	return out, nil
}

// end settles a claim with state to, or returns the reason for a refusal.
func (f *fake) end(id, token string, to pawlv1.State, change func(*fakeTask)) *pawlv1.Settled {
	if f.settleIt != nil {
		if e := f.settleIt(token); e != nil {
			return &pawlv1.Settled{TaskId: id, ClaimToken: token, Error: e}
		}
	}
	t := f.tasks[id]
	if first := t.settled[token]; first != nil {
		return first
	}
	if t.token != token {
		return &pawlv1.Settled{TaskId: id, ClaimToken: token, Error: &pawlv1.Error{Code: "stale_claim", Reason: "reclaimed", Holder: "w2"}}
	}
	t.state, t.token = to, ""
	change(t)
	if to == pawlv1.State_STATE_READY {
		f.ready = append(f.ready, t)
	}
	if f.lean {
		delete(f.requests, t.spec.GetRequestId())
		return &pawlv1.Settled{TaskId: id, ClaimToken: token, State: to}
	}
	t.settled[token] = &pawlv1.Settled{TaskId: id, ClaimToken: token, State: to}
	f.wake()
	return t.settled[token]
}

func (f *fake) ack(r *pawlv1.AckRequest) *pawlv1.Settled {
	if len(r.Result) > 1<<20 {
		return &pawlv1.Settled{TaskId: r.TaskId, ClaimToken: r.ClaimToken, Error: &pawlv1.Error{Code: "payload_too_large"}}
	}
	return f.end(r.TaskId, r.ClaimToken, pawlv1.State_STATE_SUCCEEDED, func(t *fakeTask) {
		t.result, t.resultType = r.Result, r.ContentType
	})
}

func (f *fake) fail(r *pawlv1.FailRequest) *pawlv1.Settled {
	to := map[pawlv1.FailOutcome]pawlv1.State{
		pawlv1.FailOutcome_FAIL_OUTCOME_RETRY: pawlv1.State_STATE_RETRYING, pawlv1.FailOutcome_FAIL_OUTCOME_DEAD: pawlv1.State_STATE_DEAD,
		pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD: pawlv1.State_STATE_DISCARDED,
		pawlv1.FailOutcome_FAIL_OUTCOME_POISON:  pawlv1.State_STATE_POISONED,
	}[r.Outcome]
	return f.end(r.TaskId, r.ClaimToken, to, func(t *fakeTask) {
		t.log = append(t.log, &pawlv1.Attempt{Attempt: t.attempt, Error: r.Error})
		t.attempt++
	})
}

func (f *fake) release(r *pawlv1.ReleaseRequest) *pawlv1.Settled {
	to := pawlv1.State_STATE_READY
	if r.Delay.AsDuration() > 0 {
		to = pawlv1.State_STATE_SCHEDULED
	}
	return f.end(r.TaskId, r.ClaimToken, to, func(*fakeTask) {})
}

func (f *fake) extend(r *pawlv1.ExtendRequest) *pawlv1.Settled {
	t := f.tasks[r.TaskId]
	if t.token != r.ClaimToken {
		return &pawlv1.Settled{TaskId: r.TaskId, ClaimToken: r.ClaimToken, Error: &pawlv1.Error{Code: "stale_claim", Reason: "expired"}}
	}
	t.extends = append(t.extends, time.Now())
	t.leaseEnd = time.Now().Add(f.lease)
	if r.Progress != nil {
		t.progress = r.Progress
	}
	if r.Checkpoint != nil {
		t.check = r.Checkpoint
	}
	return &pawlv1.Settled{TaskId: r.TaskId, ClaimToken: r.ClaimToken, LeaseExpiresAt: timestamppb.New(time.Now().Add(f.lease))}
}

func (f *fake) settle(r *pawlv1.SettleRequest) *pawlv1.SettleResponse {
	f.requestCount.Add(1)
	if !f.lean {
		f.settles = append(f.settles, r)
	}
	out := &pawlv1.SettleResponse{}
	for _, a := range r.Acks {
		out.Acks = append(out.Acks, f.ack(a))
	}
	for _, a := range r.Fails {
		out.Fails = append(out.Fails, f.fail(a))
	}
	for _, a := range r.Releases {
		out.Releases = append(out.Releases, f.release(a))
	}
	for _, a := range r.Extends {
		out.Extends = append(out.Extends, f.extend(a))
	}
	return out
}

func (f *fake) Settle(_ context.Context, r *pawlv1.SettleRequest) (*pawlv1.SettleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settle(r), nil
}

func (f *fake) Ack(_ context.Context, r *pawlv1.AckRequest) (*pawlv1.AckResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.ack(r)
	if s.Error != nil {
		return nil, refusal(codes.FailedPrecondition, s.Error)
	}
	return &pawlv1.AckResponse{TaskId: s.TaskId, State: s.State}, nil
}

func (f *fake) Fail(_ context.Context, r *pawlv1.FailRequest) (*pawlv1.FailResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &pawlv1.FailResponse{TaskId: r.TaskId, State: f.fail(r).State}, nil
}

func (f *fake) Release(_ context.Context, r *pawlv1.ReleaseRequest) (*pawlv1.ReleaseResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &pawlv1.ReleaseResponse{TaskId: r.TaskId, State: f.release(r).State}, nil
}

func (f *fake) Extend(_ context.Context, r *pawlv1.ExtendRequest) (*pawlv1.ExtendResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.extend(r)
	if s.Error != nil {
		return nil, refusal(codes.FailedPrecondition, s.Error)
	}
	return &pawlv1.ExtendResponse{TaskId: r.TaskId, LeaseExpiresAt: s.LeaseExpiresAt}, nil
}

func (f *fake) GetServer(ctx context.Context, _ *pawlv1.GetServerRequest) (*pawlv1.GetServerResponse, error) {
	return &pawlv1.GetServerResponse{Version: "fake", Node: "n1", Shards: []*pawlv1.ShardInfo{{Shard: 1, Leader: "n1", Index: 7, Term: 2}}},
		nil
}

// fakeStream is a worker's stream. Guarded by fake.mu, except for out.
type fakeStream struct {
	out    chan *pawlv1.WorkResponse
	credit int
	quiet  bool
	mute   *bool
}

func (s *fakeStream) send(r *pawlv1.WorkResponse) {
	if !*s.mute {
		s.out <- r
	}
}

func (f *fake) Work(stream grpc.BidiStreamingServer[pawlv1.WorkRequest, pawlv1.WorkResponse]) error {
	s := &fakeStream{out: make(chan *pawlv1.WorkResponse, 10_000), mute: &f.mute}
	received := make(chan error, 1)
	go func() { received <- f.listen(s, stream) }()
	defer f.set(func() { delete(f.streams, s) })
	for {
		select {
		case r := <-s.out:
			if err := stream.Send(r); err != nil {
				return err
			}
		case err := <-received:
			for len(s.out) > 0 && err == nil {
				err = stream.Send(<-s.out)
			}
			return err
		}
	}
}

func (f *fake) listen(s *fakeStream, stream grpc.BidiStreamingServer[pawlv1.WorkRequest, pawlv1.WorkResponse]) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.commit != nil && r.Settle != nil {
			f.commit()
		}
		f.mu.Lock()
		err = f.frame(s, r)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (f *fake) frame(s *fakeStream, r *pawlv1.WorkRequest) error {
	if r.Hello != nil {
		f.hellos = append(f.hellos, r.Hello)
		f.streams[s] = true
		if f.greet != nil {
			if err := f.greet(r.Hello); err != nil {
				return err
			}
		}
	}
	s.credit += int(r.Grant)
	if r.Quiet && f.held {
		f.held = false
		f.pump() // crosses with the worker's frame
	}
	s.quiet = s.quiet || r.Quiet
	if r.Settle != nil {
		if answer := f.settle(r.Settle); !f.loseAnswers {
			s.send(&pawlv1.WorkResponse{Settled: answer})
		}
	}
	f.pump()
	return nil
}

// pump pushes ready tasks into granted slots.
func (f *fake) pump() {
	for s := range f.streams {
		if s.quiet || *s.mute || f.held {
			continue
		}
		var out *pawlv1.WorkResponse
		for s.credit > 0 && len(f.ready) > 0 {
			if out == nil {
				out = &pawlv1.WorkResponse{}
			}
			out.Tasks = append(out.Tasks, f.claim())
			s.credit--
		}
		if out != nil {
			s.send(out)
		}
	}
}

// task returns a task of the fake.
func (f *fake) task(t testing.TB, id string) fakeTask {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tasks[id] == nil {
		t.Fatalf("the fake has no task %q", id)
	}
	return *f.tasks[id]
}

// frames returns the settle requests so far.
func (f *fake) frames() []*pawlv1.SettleRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.settles)
}
