package conformance

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/api/keda"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// text returns a text that is left out if it is empty.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// rpc calls the gRPC services through the generated clients.
type rpc struct {
	producer pawlv1.ProducerServiceClient
	worker   pawlv1.WorkerServiceClient
	operator pawlv1.OperatorServiceClient
	schedule pawlv1.ScheduleServiceClient
	group    pawlv1.GroupServiceClient
	mass     pawlv1.OperationServiceClient
	registry pawlv1.WorkerRegistryServiceClient
	events   pawlv1.EventServiceClient
	stats    pawlv1.StatsServiceClient
	access   pawlv1.AccessServiceClient
	webhook  pawlv1.WebhookServiceClient
	marker   pawlv1.MarkerServiceClient
	scaler   keda.ExternalScalerClient
	conn     *grpc.ClientConn // of all clients
}

func newRPC(t *testing.T, h *testNode) *rpc { return newRPCIn(t, h, "") }

// newRPCIn names the namespace ns in each call, unless it is "".
func newRPCIn(t *testing.T, h *testNode, ns string) *rpc {
	t.Helper()
	say := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		if ns != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "pawl-namespace", ns)
		}
		return call(ctx, method, req, reply, cc, opts...)
	}
	conn, err := grpc.NewClient("passthrough:///pawl", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithUnaryInterceptor(say), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return h.pipe.DialContext(ctx)
		}))
	must(t, err)
	closeAtEnd(t, conn)
	return &rpc{pawlv1.NewProducerServiceClient(conn), pawlv1.NewWorkerServiceClient(conn), pawlv1.NewOperatorServiceClient(conn),
		pawlv1.NewScheduleServiceClient(conn), pawlv1.NewGroupServiceClient(conn), pawlv1.NewOperationServiceClient(conn),
		pawlv1.NewWorkerRegistryServiceClient(conn), pawlv1.NewEventServiceClient(conn), pawlv1.NewStatsServiceClient(conn),
		pawlv1.NewAccessServiceClient(conn), pawlv1.NewWebhookServiceClient(conn), pawlv1.NewMarkerServiceClient(conn),
		keda.NewExternalScalerClient(conn), conn}
}

// ask makes one call, converts its refusal to the suite's terms, and checks the outer form of both against the contract.
func ask[Q, A any](ctx context.Context, method func(context.Context, Q, ...grpc.CallOption) (A, error), q Q) (A, error) {
	var trailer metadata.MD
	a, err := method(metadata.AppendToOutgoingContext(ctx, "pawl-actor", actor), q, grpc.Trailer(&trailer))
	if ctx.Err() != nil {
		return a, ctx.Err()
	}
	if err != nil {
		err = refusedByRPC(err)
	}
	return a, stamped(fmt.Sprintf("%T", q), err, func(name string) string { return strings.Join(trailer.Get(name), "") })
}

// statuses are the gRPC codes of the contract's codes.
var statuses = map[string]codes.Code{
	"invalid_argument": codes.InvalidArgument, "not_found": codes.NotFound, "conflict": codes.AlreadyExists,
	"stale_claim": codes.FailedPrecondition, "wrong_state": codes.FailedPrecondition, "payload_too_large": codes.InvalidArgument,
	"queue_full": codes.ResourceExhausted, "rate_limited": codes.ResourceExhausted, "unavailable": codes.Unavailable,
}

func refusedByRPC(err error) error {
	st := status.Convert(err)
	for _, d := range st.Details() {
		p, ok := d.(*pawlv1.Error)
		if !ok {
			continue
		}
		if st.Code() != statuses[p.GetCode()] || st.Message() != p.GetMessage() {
			return fmt.Errorf("status %v %q has the details %v", st.Code(), st.Message(), p)
		}
		return refusalProto(p)
	}
	return fmt.Errorf("status %v %q has no details", st.Code(), st.Message())
}

func refusalProto(p *pawlv1.Error) *refusal {
	return &refusal{Code: p.GetCode(), Reason: p.GetReason(), Field: p.GetField(), Holder: p.GetHolder(),
		State: word(p.GetState(), "STATE_"), RetryAfter: span(p.GetRetryAfter().AsDuration()), Text: p.GetMessage()}
}

// word converts STATE_READY to "ready", and the unspecified value to "".
func word(value fmt.Stringer, prefix string) string {
	w := strings.ToLower(strings.TrimPrefix(value.String(), prefix))
	if w == "unspecified" {
		return ""
	}
	return w
}

// number is the inverse of word. An unknown word becomes an unknown number.
func number[E ~int32](values map[string]int32, prefix, word string) E {
	if word == "" {
		return 0
	}
	n, ok := values[prefix+strings.ToUpper(word)]
	if !ok {
		return 99
	}
	return E(n)
}

func priorityOf(word string) pawlv1.Priority {
	return number[pawlv1.Priority](pawlv1.Priority_value, "PRIORITY_", word)
}

func spanProto(s span) *durationpb.Duration {
	if s == 0 {
		return nil
	}
	return durationpb.New(s.std())
}

func timeProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeOf(p *timestamppb.Timestamp) time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.AsTime()
}

func (s spec) proto() *pawlv1.TaskSpec {
	p := &pawlv1.TaskSpec{Type: s.Type, Payload: []byte(s.Payload), ContentType: s.ContentType, Queue: text(s.Queue),
		Priority: priorityOf(s.Priority), Delay: spanProto(s.Delay), RunAt: timeProto(s.RunAt), IdempotencyKey: text(s.IdempotencyKey),
		IdempotencyTtl: spanProto(s.IdempotencyTTL), RequestId: text(s.RequestID), MaxAttempts: int32(s.MaxAttempts),
		Retry: s.Retry.proto(), Timeout: spanProto(s.Timeout), ExpiresIn: spanProto(s.ExpiresIn), Key: text(s.Key), Cost: int32(s.Cost),
		Tags: s.Tags, Headers: s.Headers, Unique: s.Unique.proto(), Then: specsProto(s.Then)}
	if s.Retention != nil {
		p.Retention = durationpb.New(s.Retention.std())
	}
	return p
}

func (r retry) proto() *pawlv1.RetryPolicy {
	if r == (retry{}) {
		return nil
	}
	p := &pawlv1.RetryPolicy{Initial: spanProto(r.Initial), Factor: r.Factor, Max: spanProto(r.Max)}
	if r.Jitter != 0 {
		p.Jitter = new(r.jitter())
	}
	return p
}

func (d *rpc) Enqueue(ctx context.Context, s spec) (accepted, error) {
	a, err := ask(ctx, d.producer.Enqueue, &pawlv1.EnqueueRequest{Task: s.proto()})
	return acceptedProto(a.GetTask()), err
}

func acceptedProto(p *pawlv1.Enqueued) accepted {
	return accepted{ID: p.GetTaskId(), State: word(p.GetState(), "STATE_"), CreatedAt: timeOf(p.GetCreatedAt()),
		Duplicate: p.GetDuplicate()}
}

func (d *rpc) EnqueueMany(ctx context.Context, specs []spec) ([]accepted, error) {
	q := &pawlv1.EnqueueBatchRequest{}
	for _, s := range specs {
		q.Tasks = append(q.Tasks, s.proto())
	}
	a, err := ask(ctx, d.producer.EnqueueBatch, q)
	var out []accepted
	for _, r := range a.GetResults() {
		if r.GetError() != nil {
			out = append(out, accepted{Err: refusalProto(r.GetError())})
			continue
		}
		out = append(out, acceptedProto(r.GetTask()))
	}
	return out, err
}

func (d *rpc) Get(ctx context.Context, id string) (view, error) { return d.WaitResult(ctx, id, 0) }

func (d *rpc) WaitResult(ctx context.Context, id string, wait span) (view, error) {
	a, err := ask(ctx, d.producer.GetTask, &pawlv1.GetTaskRequest{TaskId: id, Wait: spanProto(wait)})
	return viewProto(a.GetTask()), err
}

func (d *rpc) List(ctx context.Context, f filter, p part) (page, error) {
	a, err := ask(ctx, d.producer.ListTasks, &pawlv1.ListTasksRequest{Filter: f.proto(), Limit: int32(p.Limit), Cursor: p.Cursor,
		WithPayload: p.WithPayload})
	return pageProto(a.GetItems(), a.GetNextCursor()), err
}

func (f filter) proto() *pawlv1.Filter {
	p := &pawlv1.Filter{Queue: text(f.Queue), Type: text(f.Type), Tag: text(f.Tag), Key: text(f.Key), Worker: text(f.Worker),
		Error: text(f.Error), Fingerprint: text(f.Fingerprint), Operation: text(f.Operation), CreatedAfter: timeProto(f.CreatedAfter),
		CreatedBefore: timeProto(f.CreatedBefore), Q: text(f.Text)}
	for _, s := range f.States {
		p.States = append(p.States, number[pawlv1.State](pawlv1.State_value, "STATE_", s))
	}
	for _, c := range f.fields() {
		p.Payload = append(p.Payload, &pawlv1.PayloadField{Path: c[0], Value: c[1]})
	}
	return p
}

func pageProto(items []*pawlv1.Task, next string) page {
	out := page{Next: next}
	for _, t := range items {
		out.Items = append(out.Items, viewProto(t))
	}
	return out
}

func (d *rpc) Cancel(ctx context.Context, id string) (view, error) {
	a, err := ask(ctx, d.producer.CancelTask, &pawlv1.CancelTaskRequest{TaskId: id})
	return viewProto(a.GetTask()), err
}

func (d *rpc) Update(ctx context.Context, id string, e edit) (view, error) {
	a, err := ask(ctx, d.producer.UpdateTask, &pawlv1.UpdateTaskRequest{TaskId: id, RunAt: timeProto(e.RunAt),
		Priority: priorityOf(e.Priority), Payload: e.Payload, MaxAttempts: int32(e.MaxAttempts), IfEtag: text(e.IfETag)})
	return viewProto(a.GetTask()), err
}

func (d *rpc) Claim(ctx context.Context, c claimCall) ([]claim, error) {
	q := &pawlv1.ClaimRequest{Types: c.Types, Max: int32(c.Max), MaxBytes: int64(c.MaxBytes), Lease: spanProto(c.Lease),
		Wait: spanProto(c.Wait), Worker: c.Worker, ClaimKey: text(c.Key), Runs: c.Runs}
	for _, name := range c.Queues {
		q.Queues = append(q.Queues, &pawlv1.QueueShare{Queue: name})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Weights)) {
		q.Order = pawlv1.Order_ORDER_WEIGHTED
		q.Queues = append(q.Queues, &pawlv1.QueueShare{Queue: name, Weight: int32(c.Weights[name])})
	}
	a, err := ask(ctx, d.worker.Claim, q)
	var out []claim
	for _, p := range a.GetTasks() {
		out = append(out, claim{ID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(), Payload: string(p.GetPayload()),
			ContentType: p.GetContentType(), Priority: word(p.GetPriority(), "PRIORITY_"), Attempt: int(p.GetAttempt()),
			MaxAttempts: int(p.GetMaxAttempts()), Token: p.GetClaimToken(), Fence: p.GetFence(),
			LeaseExpiresAt: timeOf(p.GetLeaseExpiresAt()), Lease: span(p.GetLease().AsDuration()),
			Timeout: span(p.GetTimeout().AsDuration()), Headers: p.GetHeaders(), Checkpoint: p.GetCheckpoint(),
			CreatedAt: timeOf(p.GetCreatedAt()), ReadyAt: timeOf(p.GetReadyAt()), Key: p.GetKey(), Tags: p.GetTags(),
			IdempotencyKey: p.GetIdempotencyKey(), GroupID: p.GetGroupId(), Parent: parentOfProto(p.GetParent())})
	}
	return out, err
}

func (r result) proto(h hold) *pawlv1.AckRequest {
	return &pawlv1.AckRequest{TaskId: h.ID, ClaimToken: h.Token, Result: []byte(r.Data), ContentType: r.ContentType}
}

func (f failing) proto(h hold) *pawlv1.FailRequest {
	return &pawlv1.FailRequest{TaskId: h.ID, ClaimToken: h.Token, Error: &pawlv1.TaskError{Message: f.Message, Type: failureType},
		Outcome: number[pawlv1.FailOutcome](pawlv1.FailOutcome_value, "FAIL_OUTCOME_", f.Outcome), RetryIn: spanProto(f.RetryIn)}
}

func (d *rpc) Ack(ctx context.Context, h hold, r result) error {
	a, err := ask(ctx, d.worker.Ack, r.proto(h))
	if err == nil && (a.GetTaskId() != h.ID || a.GetState() != pawlv1.State_STATE_SUCCEEDED ||
		a.GetStatus() != pawlv1.Status_STATUS_COMPLETED) {
		return fmt.Errorf("acked, and %v", a)
	}
	return err
}

func (d *rpc) Fail(ctx context.Context, h hold, f failing) (settled, error) {
	a, err := ask(ctx, d.worker.Fail, f.proto(h))
	return settledProto(a), err
}

func (d *rpc) Release(ctx context.Context, h hold, delay span) (settled, error) {
	a, err := ask(ctx, d.worker.Release, &pawlv1.ReleaseRequest{TaskId: h.ID, ClaimToken: h.Token, Delay: spanProto(delay)})
	return settledProto(a), err
}

func settledProto(p interface {
	GetState() pawlv1.State
	GetNextRunAt() *timestamppb.Timestamp
}) settled {
	return settled{State: word(p.GetState(), "STATE_"), NextRunAt: timeOf(p.GetNextRunAt())}
}

func (d *rpc) Extend(ctx context.Context, h hold, e extension) (time.Time, error) {
	q := &pawlv1.ExtendRequest{TaskId: h.ID, ClaimToken: h.Token, Lease: spanProto(e.Lease), Checkpoint: e.Checkpoint}
	if e.Progress != nil {
		q.Progress = &pawlv1.Progress{Percent: e.Progress.Percent, Message: e.Progress.Message}
	}
	a, err := ask(ctx, d.worker.Extend, q)
	return timeOf(a.GetLeaseExpiresAt()), err
}

func (d *rpc) Settle(ctx context.Context, items []settlement) ([]settled, error) {
	q := &pawlv1.SettleRequest{}
	for _, i := range items {
		switch {
		case i.Fail != nil:
			q.Fails = append(q.Fails, i.Fail.proto(i.hold))
		case i.Release:
			q.Releases = append(q.Releases, &pawlv1.ReleaseRequest{TaskId: i.ID, ClaimToken: i.Token})
		default:
			q.Acks = append(q.Acks, i.Result.proto(i.hold))
		}
	}
	a, err := ask(ctx, d.worker.Settle, q)
	if err != nil {
		return nil, err
	}
	out := make([]settled, len(items))
	acks, fails, releases := a.GetAcks(), a.GetFails(), a.GetReleases()
	for n, i := range items {
		from := &acks
		switch {
		case i.Fail != nil:
			from = &fails
		case i.Release:
			from = &releases
		}
		if len(*from) == 0 {
			return nil, fmt.Errorf("%d items got the answers %v", len(items), a)
		}
		p := (*from)[0]
		*from = (*from)[1:]
		out[n] = settledProto(p)
		if p.GetError() != nil {
			out[n].Err = refusalProto(p.GetError())
		}
	}
	return out, nil
}

func (d *rpc) Queue(ctx context.Context, name string) (queueInfo, error) {
	a, err := ask(ctx, d.operator.GetQueue, &pawlv1.GetQueueRequest{Queue: name})
	return queueProto(a.GetQueue()), err
}

func (d *rpc) Queues(ctx context.Context, p part) (names []string, next string, err error) {
	a, err := ask(ctx, d.operator.ListQueues, &pawlv1.ListQueuesRequest{Limit: int32(p.Limit), Cursor: p.Cursor})
	for _, q := range a.GetItems() {
		names = append(names, q.GetQueue())
	}
	return names, a.GetNextCursor(), err
}

// keyOrderProto converts a word; an unknown one becomes an unknown number.
func keyOrderProto(s string) pawlv1.KeyOrder {
	if o, known := pawlv1.KeyOrder_value["KEY_ORDER_"+strings.ToUpper(s)]; known || s == "" {
		return pawlv1.KeyOrder(o)
	}
	return 99
}

func (d *rpc) PutQueue(ctx context.Context, name string, s settings) (queueInfo, error) {
	r := s.Retention
	p := &pawlv1.QueueSettings{Retry: s.Retry.proto(), MaxAttempts: int32(s.MaxAttempts), Lease: spanProto(s.Lease),
		Timeout: spanProto(s.Timeout), MaxLength: s.MaxLength, MaxWait: spanProto(s.MaxWait), Retention: &pawlv1.Retention{
			Succeeded: spanProto(r.Succeeded), Discarded: spanProto(r.Discarded), Cancelled: spanProto(r.Cancelled),
			Dead: spanProto(r.Dead), Poisoned: spanProto(r.Poisoned)}}
	if s.Weights != (weights{}) {
		p.Weights = &pawlv1.PriorityWeights{High: int32(s.Weights.High), Normal: int32(s.Weights.Normal), Low: int32(s.Weights.Low)}
	}
	p.MaxRunning, p.Rate = s.limits.proto()
	p.KeyOrder = keyOrderProto(s.KeyOrder)
	if s.PerKey != nil {
		p.PerKey = &pawlv1.KeyRules{}
		p.PerKey.MaxRunning, p.PerKey.Rate = s.PerKey.proto()
	}
	for key, rules := range s.Keys {
		if p.Keys == nil {
			p.Keys = map[string]*pawlv1.KeyRules{}
		}
		p.Keys[key] = &pawlv1.KeyRules{Weight: int32(rules.Weight)}
		p.Keys[key].MaxRunning, p.Keys[key].Rate = rules.limits.proto()
	}
	s.protoBreakers(p)
	a, err := ask(ctx, d.operator.PutQueue, &pawlv1.PutQueueRequest{Queue: name, Settings: p})
	return queueProto(a.GetQueue()), err
}

func (l limits) proto() (running int32, r *pawlv1.Rate) {
	if l.Rate != nil {
		r = &pawlv1.Rate{Limit: int32(l.Rate.Limit), Period: spanProto(l.Rate.Period), Burst: int32(l.Rate.Burst)}
	}
	return int32(l.MaxRunning), r
}

func limitsProto(running int32, r *pawlv1.Rate) limits {
	out := limits{MaxRunning: int(running)}
	if r != nil {
		out.Rate = &rate{int(r.GetLimit()), span(r.GetPeriod().AsDuration()), int(r.GetBurst())}
	}
	return out
}

func (d *rpc) DeleteQueue(ctx context.Context, name string) error {
	_, err := ask(ctx, d.operator.DeleteQueue, &pawlv1.DeleteQueueRequest{Queue: name})
	return err
}

func (d *rpc) Pause(ctx context.Context, name string, of pause) (queueInfo, error) {
	a, err := ask(ctx, d.operator.PauseQueue, &pawlv1.PauseQueueRequest{Queue: name, Reason: of.Reason, Type: text(of.Type),
		Key: text(of.Key)})
	return queueProto(a.GetQueue()), err
}

func (d *rpc) Resume(ctx context.Context, name string, of pause) (queueInfo, error) {
	a, err := ask(ctx, d.operator.ResumeQueue, &pawlv1.ResumeQueueRequest{Queue: name, Reason: of.Reason, Type: text(of.Type),
		Key: text(of.Key)})
	return queueProto(a.GetQueue()), err
}

func (d *rpc) Purge(ctx context.Context, name string) (int64, error) {
	a, err := ask(ctx, d.operator.PurgeQueue, &pawlv1.PurgeQueueRequest{Queue: name})
	return a.GetDiscarded(), err
}

func (d *rpc) Dead(ctx context.Context, f filter, p part) (page, error) {
	a, err := ask(ctx, d.operator.ListDead, &pawlv1.ListDeadRequest{Filter: f.proto(), Limit: int32(p.Limit), Cursor: p.Cursor})
	return pageProto(a.GetItems(), a.GetNextCursor()), err
}

func (d *rpc) Poisoned(ctx context.Context, f filter, p part) (page, error) {
	a, err := ask(ctx, d.operator.ListPoisoned, &pawlv1.ListPoisonedRequest{Filter: f.proto(), Limit: int32(p.Limit), Cursor: p.Cursor})
	return pageProto(a.GetItems(), a.GetNextCursor()), err
}

func (d *rpc) DeadGroups(ctx context.Context, queue string) ([]group, error) {
	a, err := ask(ctx, d.operator.GroupDead, &pawlv1.GroupDeadRequest{Queue: text(queue)})
	var out []group
	for _, g := range a.GetGroups() {
		out = append(out, group{Fingerprint: g.GetFingerprint(), Type: g.GetType(), Message: g.GetMessage(), Count: g.GetCount(),
			FirstAt: timeOf(g.GetFirstAt()), LastAt: timeOf(g.GetLastAt()), Sample: g.GetSampleTaskId(), Queues: int(g.GetQueues()),
			Queue: g.GetQueue(), Trend: g.GetTrend()})
	}
	return out, err
}

func (d *rpc) Retry(ctx context.Context, id string) (view, error) {
	a, err := ask(ctx, d.operator.RetryTask, &pawlv1.RetryTaskRequest{TaskId: id})
	return viewProto(a.GetTask()), err
}

func (d *rpc) RunNow(ctx context.Context, id string) (view, error) {
	a, err := ask(ctx, d.operator.RunTaskNow, &pawlv1.RunTaskNowRequest{TaskId: id})
	return viewProto(a.GetTask()), err
}

func (d *rpc) Discard(ctx context.Context, id string) (view, error) {
	a, err := ask(ctx, d.operator.DiscardTask, &pawlv1.DiscardTaskRequest{TaskId: id})
	return viewProto(a.GetTask()), err
}

func viewProto(p *pawlv1.Task) view {
	v := view{ID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(), Status: word(p.GetStatus(), "STATUS_"),
		State: word(p.GetState(), "STATE_"), Reason: p.GetReason(), Priority: word(p.GetPriority(), "PRIORITY_"),
		Payload: string(p.GetPayload()), ContentType: p.GetContentType(), Result: string(p.GetResult()),
		ResultType: p.GetResultContentType(), Attempts: int(p.GetAttempts()), MaxAttempts: int(p.GetMaxAttempts()),
		Failures: int(p.GetFailures()), Crashes: int(p.GetCrashes()), Releases: int(p.GetReleases()), Snoozes: int(p.GetSnoozes()),
		Fence: p.GetFence(), Progress: progress{p.GetProgress().GetPercent(), p.GetProgress().GetMessage()}, Checkpoint: p.GetCheckpoint(),
		Worker: p.GetWorker(), CreatedAt: timeOf(p.GetCreatedAt()), RunAt: timeOf(p.GetRunAt()), ClaimedAt: timeOf(p.GetClaimedAt()),
		LeaseExpiresAt: timeOf(p.GetLeaseExpiresAt()), EndedAt: timeOf(p.GetEndedAt()), ExpiresAt: timeOf(p.GetExpiresAt()),
		KeptUntil: timeOf(p.GetKeptUntil()), IdempotencyKey: p.GetIdempotencyKey(), Key: p.GetKey(), Tags: p.GetTags(),
		Headers: p.GetHeaders(), Retry: retryProto(p.GetRetry()), Timeout: span(p.GetTimeout().AsDuration()),
		Retention: span(p.GetRetention().AsDuration()), Unique: uniqueProto(p.GetUnique()), WaitsFor: p.GetWaitsFor(),
		GroupID: p.GetGroupId(), Parent: parentOfProto(p.GetParent()), Then: followersOfProto(p.GetThen()), MovedTo: p.GetMovedTo(),
		MovedFrom: p.GetMovedFrom(), ETag: p.GetEtag()}
	for _, a := range p.GetAttemptLog() {
		v.Log = append(v.Log, attempt{Attempt: int(a.GetAttempt()), Fence: a.GetFence(), Worker: a.GetWorker(),
			StartedAt: timeOf(a.GetStartedAt()), EndedAt: timeOf(a.GetEndedAt()), Outcome: word(a.GetOutcome(), "OUTCOME_"),
			Error: failure{a.GetError().GetMessage(), a.GetError().GetType()}, Waited: span(a.GetWaited().AsDuration()),
			NextRunAt: timeOf(a.GetNextRunAt())})
	}
	return v
}

func retryProto(p *pawlv1.RetryPolicy) retry {
	return retry{span(p.GetInitial().AsDuration()), p.GetFactor(), span(p.GetMax().AsDuration()), p.GetJitter()}
}

func queueProto(p *pawlv1.Queue) queueInfo {
	d, r, s := p.GetDepth(), p.GetReadyByPriority(), p.GetSettings()
	k, w := s.GetRetention(), s.GetWeights()
	out := queueInfo{Queue: p.GetQueue(), Paused: p.GetPaused(), PausedReason: p.GetPausedReason(), PausedBy: p.GetPausedBy(),
		PausedAt: timeOf(p.GetPausedAt()), Depth: depth{d.GetScheduled(), d.GetReady(), d.GetClaimed(), d.GetRetrying(), d.GetHeld(),
			d.GetDead(), d.GetPoisoned()},
		Ready:       byPrio{r.GetHigh(), r.GetNormal(), r.GetLow()},
		OldestReady: p.GetOldestReadyAgeSeconds(), Version: p.GetVersion(), CreatedAt: timeOf(p.GetCreatedAt()),
		Settings: settings{Weights: weights{int(w.GetHigh()), int(w.GetNormal()), int(w.GetLow())}, Retry: retryProto(s.GetRetry()),
			MaxAttempts: int(s.GetMaxAttempts()), Lease: span(s.GetLease().AsDuration()), Timeout: span(s.GetTimeout().AsDuration()),
			MaxLength: s.GetMaxLength(), MaxWait: span(s.GetMaxWait().AsDuration()),
			Retention: retention{span(k.GetSucceeded().AsDuration()),
				span(k.GetDiscarded().AsDuration()), span(k.GetCancelled().AsDuration()), span(k.GetDead().AsDuration()),
				span(k.GetPoisoned().AsDuration())}, limits: limitsProto(s.GetMaxRunning(), s.GetRate())}}
	if o := s.GetKeyOrder(); o != 0 {
		out.Settings.KeyOrder = word(o, "KEY_ORDER_")
	}
	if each := s.GetPerKey(); each != nil {
		out.Settings.PerKey = new(limitsProto(each.GetMaxRunning(), each.GetRate()))
	}
	for key, rules := range s.GetKeys() {
		if out.Settings.Keys == nil {
			out.Settings.Keys = map[string]keyRules{}
		}
		out.Settings.Keys[key] = keyRules{limitsProto(rules.GetMaxRunning(), rules.GetRate()), int(rules.GetWeight())}
	}
	for _, h := range p.GetHolds() {
		out.Holds = append(out.Holds, held{pause{h.GetReason(), h.GetType(), h.GetKey()}, h.GetBy(), timeOf(h.GetAt())})
	}
	out.breakersProto(p)
	return out
}
