package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// sdk calls the methods of the Go SDK, as a program with its own loop would.
type sdk struct{ client *pawl.Client }

func newSDK(t *testing.T, h *testNode) *sdk { return newSDKIn(t, h, "") }

func newSDKIn(t *testing.T, h *testNode, ns string) *sdk {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	client, err := pawl.Dial("house", pawl.DialOptions{Logger: log, Namespace: ns, Dialer: func(ctx context.Context, _ string) (net.Conn,
		error) {
		return h.pipe.DialContext(ctx)
	}})
	must(t, err)
	closeAtEnd(t, client)
	return &sdk{client}
}

// admin returns the operator's calls.
func (d *sdk) admin() admin.Client { return admin.New(d.client).WithActor(actor) }

// sentinels are the errors that programs test with errors.Is.
var sentinels = map[string]error{
	"invalid_argument": pawltype.ErrInvalidArgument, "not_found": pawltype.ErrNotFound, "conflict": pawltype.ErrConflict,
	"stale_claim": pawltype.ErrStaleClaim, "wrong_state": pawltype.ErrWrongState, "payload_too_large": pawltype.ErrPayloadTooLarge,
	"queue_full": pawltype.ErrQueueFull, "rate_limited": pawltype.ErrRateLimited, "unavailable": pawltype.ErrUnavailable,
}

func refusedBySDK(err error) error {
	e, ok := errors.AsType[*pawltype.Error](err)
	switch {
	case !ok:
		return err
	case !errors.Is(err, sentinels[string(e.Code)]):
		return fmt.Errorf("%w is not the sentinel of its code %q", err, e.Code)
	}
	return &refusal{Code: string(e.Code), Reason: e.Reason, Field: e.Field, Holder: e.Holder, State: string(e.State),
		RetryAfter: span(e.RetryAfter), Text: e.Message}
}

// item converts the spec to the SDK's arguments.
func (s spec) item() pawl.Item {
	var o []pawl.Option
	add := func(said bool, opt pawl.Option) {
		if said {
			o = append(o, opt)
		}
	}
	add(s.Queue != "", pawl.Queue(s.Queue))
	add(s.Priority != "", pawl.Priority(pawltype.Priority(s.Priority)))
	add(s.Delay != 0, pawl.In(s.Delay.std()))
	add(!s.RunAt.IsZero(), pawl.At(s.RunAt))
	add(s.IdempotencyKey != "", pawl.IdempotencyKey(s.IdempotencyKey))
	add(s.IdempotencyTTL != 0, pawl.IdempotencyTTL(s.IdempotencyTTL.std()))
	add(s.RequestID != "", pawl.RequestID(s.RequestID))
	add(s.MaxAttempts != 0, pawl.MaxAttempts(s.MaxAttempts))
	add(s.Retry != retry{}, pawl.Retry(s.Retry.policy()))
	add(s.Timeout != 0, pawl.Timeout(s.Timeout.std()))
	add(s.ExpiresIn != 0, pawl.ExpiresIn(s.ExpiresIn.std()))
	if s.Retention != nil {
		add(true, pawl.Retention(s.Retention.std()))
	}
	add(s.Key != "", pawl.Key(s.Key))
	add(s.Cost != 0, pawl.Cost(s.Cost))
	if s.Unique != nil {
		add(true, pawl.Unique(s.Unique.sdk()))
	}
	for _, next := range s.Then {
		i := next.item()
		add(true, pawl.Then(i.Args, i.Options...))
	}
	add(s.Tags != nil, pawl.Tags(s.Tags...))
	for name, value := range s.Headers {
		add(true, pawl.Header(name, value))
	}
	return pawl.Item{Args: pawl.RawTask{Type: s.Type, Payload: []byte(s.Payload), ContentType: s.ContentType}, Options: o}
}

func (r retry) policy() pawltype.RetryPolicy {
	return pawltype.RetryPolicy{Initial: r.Initial.std(), Factor: r.Factor, Max: r.Max.std(), Jitter: r.Jitter}
}

func retryPolicy(p pawltype.RetryPolicy) retry {
	r := retry{span(p.Initial), p.Factor, span(p.Max), p.Jitter}
	r.Jitter = r.jitter()
	return r
}

func (d *sdk) Enqueue(ctx context.Context, s spec) (accepted, error) {
	i := s.item()
	ref, err := d.client.Enqueue(ctx, i.Args, i.Options...)
	if err != nil {
		return accepted{}, refusedBySDK(err)
	}
	return acceptedRef(ref), nil
}

func acceptedRef(r *pawl.Ref) accepted {
	return accepted{ID: r.ID, State: string(r.State), CreatedAt: r.CreatedAt, Duplicate: r.Duplicate}
}

func (d *sdk) EnqueueMany(ctx context.Context, specs []spec) ([]accepted, error) {
	var items []pawl.Item
	for _, s := range specs {
		items = append(items, s.item())
	}
	got, err := d.client.EnqueueBatch(ctx, items)
	if err != nil {
		return nil, refusedBySDK(err)
	}
	out := make([]accepted, len(got))
	for i, e := range got {
		if e.Err != nil {
			out[i].Err = refusedBySDK(e.Err)
			continue
		}
		out[i] = acceptedRef(e.Ref)
	}
	return out, nil
}

// task converts an answer of the SDK to the suite's terms.
func (d *sdk) task(t *pawltype.Task, err error) (view, error) {
	if err != nil {
		return view{}, refusedBySDK(err)
	}
	return viewInfo(t), nil
}

func (d *sdk) Get(ctx context.Context, id string) (view, error) {
	return d.task(d.client.Task(ctx, id))
}

// WaitResult limits the SDK's Wait, which waits until its context is done, and reports a task's end as an error.
func (d *sdk) WaitResult(ctx context.Context, id string, wait span) (view, error) {
	bounded, cancel := context.WithTimeout(ctx, wait.std())
	defer cancel()
	t, err := d.client.Wait(bounded, id)
	if ended, ok := errors.AsType[*pawltype.EndedError](err); ok {
		if t == nil || t.ID != ended.Task.ID || t.State == pawltype.StateSucceeded {
			return view{}, fmt.Errorf("%w beside the task %v", err, t)
		}
		err = nil
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return d.Get(ctx, id)
	}
	return d.task(t, err)
}

func (d *sdk) Cancel(ctx context.Context, id string) (view, error) {
	return d.task(d.admin().Tasks().Cancel(ctx, id))
}

func (d *sdk) Retry(ctx context.Context, id string) (view, error) {
	return d.task(d.admin().Tasks().Retry(ctx, id))
}

func (d *sdk) RunNow(ctx context.Context, id string) (view, error) {
	return d.task(d.admin().Tasks().RunNow(ctx, id))
}

func (d *sdk) Discard(ctx context.Context, id string) (view, error) {
	return d.task(d.admin().Tasks().Discard(ctx, id))
}

func (d *sdk) Update(ctx context.Context, id string, e edit) (view, error) {
	change := admin.TaskUpdate{RunAt: e.RunAt, Priority: pawltype.Priority(e.Priority), MaxAttempts: e.MaxAttempts, IfETag: e.IfETag}
	if e.Payload != nil {
		change.Payload = e.Payload
	}
	return d.task(d.admin().Tasks().Update(ctx, id, change))
}

func (d *sdk) List(ctx context.Context, f filter, p part) (page, error) {
	return pageInfos(d.admin().Tasks().ListPage(ctx, f.sdk(), p.sdk()))
}

func (f filter) sdk() admin.Filter {
	out := admin.Filter{Queue: f.Queue, Type: f.Type, Tag: f.Tag, Key: f.Key, Worker: f.Worker, Error: f.Error, Fingerprint: f.Fingerprint,
		Operation: f.Operation, CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore, Text: f.Text}
	for _, s := range f.States {
		out.States = append(out.States, pawltype.State(s))
	}
	for _, c := range f.fields() {
		out.Payload = append(out.Payload, admin.PayloadField{Path: c[0], Value: c[1]})
	}
	if out.String() == "" {
		return *admin.AllTasks()
	}
	return out
}

func (p part) sdk() pawltype.PageRequest {
	return pawltype.PageRequest{Limit: p.Limit, Cursor: p.Cursor, WithPayload: p.WithPayload}
}

func pageInfos(got pawltype.Page[*pawltype.Task], err error) (page, error) {
	out := page{Next: got.NextCursor}
	for _, t := range got.Items {
		out.Items = append(out.Items, viewInfo(t))
	}
	return out, refusedBySDK(err)
}

func (d *sdk) Claim(ctx context.Context, c claimCall) ([]claim, error) {
	r := claims.Request{Queues: pawl.Strict(c.Queues), Types: c.Types, Max: c.Max, MaxBytes: int64(c.MaxBytes), Lease: c.Lease.std(),
		Wait: c.Wait.std(), Worker: c.Worker, Key: c.Key, Runs: c.Runs}
	if c.Weights != nil {
		r.Queues = pawl.Weighted(c.Weights)
	}
	got, err := claims.New(d.client).Claim(ctx, r)
	if err != nil {
		return nil, refusedBySDK(err)
	}
	out := make([]claim, len(got))
	for i, g := range got {
		out[i] = claim{ID: g.ID, Type: g.Type, Queue: g.Queue, Payload: string(g.Payload), ContentType: g.ContentType,
			Priority: string(g.Priority), Attempt: g.Attempt, MaxAttempts: g.MaxAttempts, Token: g.Token, Fence: g.Fence,
			LeaseExpiresAt: g.LeaseExpiresAt, Lease: span(g.Lease), Timeout: span(g.Timeout), Headers: g.Headers, CreatedAt: g.CreatedAt,
			ReadyAt: g.ReadyAt, Key: g.Key, Tags: g.Tags, IdempotencyKey: g.IdempotencyKey, GroupID: g.GroupID,
			Parent: parentOfSDK(g.Parent)}
		var checkpoint json.RawMessage
		if _, err := g.LastCheckpoint(&checkpoint); err != nil {
			return nil, err
		}
		out[i].Checkpoint = checkpoint
	}
	return out, nil
}

// claim returns the claim that the SDK returned, with what is needed to settle it.
func (h hold) claim() *pawl.Claim { return &pawl.Claim{ID: h.ID, Token: h.Token} }

func (r result) claim(h hold) *pawl.Claim {
	c := h.claim()
	if r != (result{}) {
		c.SetRawResult(r.ContentType, []byte(r.Data))
	}
	return c
}

// steer returns the error that a handler would return.
func (f failing) steer() error {
	err := handlerError(f.Message)
	switch {
	case f.Outcome == "dead":
		return pawl.DeadLetter(err)
	case f.Outcome == "discard":
		return pawl.Discard(err)
	case f.Outcome == "poison":
		return pawl.Poison(err)
	case f.RetryIn != 0:
		return pawl.RetryIn(f.RetryIn.std(), err)
	}
	return err
}

func (d *sdk) Ack(ctx context.Context, h hold, r result) error {
	return refusedBySDK(claims.New(d.client).Ack(ctx, r.claim(h)))
}

func (d *sdk) Fail(ctx context.Context, h hold, f failing) (settled, error) {
	return settledBySDK(claims.New(d.client).Fail(ctx, h.claim(), f.steer()))
}

func (d *sdk) Release(ctx context.Context, h hold, delay span) (settled, error) {
	return settledBySDK(claims.New(d.client).Release(ctx, h.claim(), delay.std()))
}

func settledBySDK(s claims.Settled, err error) (settled, error) {
	return settled{State: string(s.State), NextRunAt: s.NextRunAt}, refusedBySDK(err)
}

func (d *sdk) Extend(ctx context.Context, h hold, e extension) (time.Time, error) {
	x := claims.Extension{Lease: e.Lease.std(), Checkpoint: e.Checkpoint}
	if e.Progress != nil {
		x.Progress = &pawltype.Progress{Percent: e.Progress.Percent, Message: e.Progress.Message}
	}
	got, err := claims.New(d.client).Extend(ctx, h.claim(), x)
	return got, refusedBySDK(err)
}

func (d *sdk) Settle(ctx context.Context, items []settlement) ([]settled, error) {
	var all []claims.Settlement
	for _, i := range items {
		s := claims.Settlement{Claim: i.Result.claim(i.hold)}
		switch {
		case i.Fail != nil:
			s.Err = i.Fail.steer()
		case i.Release: // a handler can't release; snoozing for no time is the same
			s.Err = pawl.Snooze(0)
		}
		all = append(all, s)
	}
	got, err := claims.New(d.client).SettleAll(ctx, all)
	if err != nil {
		return nil, refusedBySDK(err)
	}
	out := make([]settled, len(got))
	for i, s := range got {
		out[i], out[i].Err = settled{State: string(s.State), NextRunAt: s.NextRunAt}, refusedBySDK(s.Err)
	}
	return out, nil
}

func (d *sdk) queue(q *admin.Queue, err error) (queueInfo, error) {
	if err != nil {
		return queueInfo{}, refusedBySDK(err)
	}
	s := q.Settings
	out := queueInfo{Queue: q.Name, Paused: q.Paused, PausedReason: q.PausedReason, PausedBy: q.PausedBy, PausedAt: q.PausedAt,
		Depth: depth(q.Depth), Ready: byPrio(q.ReadyByPriority), OldestReady: q.OldestReady.Seconds(), Version: q.Version,
		CreatedAt: q.CreatedAt, Settings: settings{Retry: retryPolicy(s.Retry), MaxAttempts: s.MaxAttempts, Lease: span(s.Lease),
			Timeout: span(s.Timeout), MaxLength: s.MaxLength, MaxWait: span(s.MaxWait), KeyOrder: string(s.KeyOrder),
			Retention: retention{span(s.Retention.Succeeded),
				span(s.Retention.Discarded), span(s.Retention.Cancelled), span(s.Retention.Dead), span(s.Retention.Poisoned)}}}
	if s.Weights != nil {
		out.Settings.Weights = weights(*s.Weights)
	}
	out.Settings.limits = limitsSDK(s.QueueLimits)
	if s.PerKey != (admin.QueueLimits{}) {
		out.Settings.PerKey = new(limitsSDK(s.PerKey))
	}
	for key, rules := range s.Keys {
		if out.Settings.Keys == nil {
			out.Settings.Keys = map[string]keyRules{}
		}
		out.Settings.Keys[key] = keyRules{limitsSDK(rules.QueueLimits), rules.Weight}
	}
	for _, h := range q.PausedSubsets {
		out.Holds = append(out.Holds, held{pause{h.Reason, h.Type, h.Key}, h.By, h.At})
	}
	out.breakersSDK(q)
	return out, nil
}

func limitsSDK(l admin.QueueLimits) limits {
	out := limits{MaxRunning: l.MaxRunning}
	if r := l.Rate; r != (admin.RateLimit{}) {
		out.Rate = &rate{r.Limit, span(r.Period), r.Burst}
	}
	return out
}

func (l limits) sdk() admin.QueueLimits {
	out := admin.QueueLimits{MaxRunning: l.MaxRunning}
	if l.Rate != nil {
		out.Rate = admin.RateLimit{Limit: l.Rate.Limit, Period: l.Rate.Period.std(), Burst: l.Rate.Burst}
	}
	return out
}

func (d *sdk) Queue(ctx context.Context, name string) (queueInfo, error) {
	return d.queue(d.admin().Queues().Get(ctx, name))
}

func (d *sdk) Queues(ctx context.Context, p part) (names []string, next string, err error) {
	got, err := d.admin().Queues().ListPage(ctx, admin.QueueFilter{}, p.sdk())
	for _, q := range got.Items {
		names = append(names, q.Name)
	}
	return names, got.NextCursor, refusedBySDK(err)
}

func (d *sdk) PutQueue(ctx context.Context, name string, s settings) (queueInfo, error) {
	r := s.Retention
	out := admin.QueueSettings{Retry: s.Retry.policy(), MaxAttempts: s.MaxAttempts, Lease: s.Lease.std(), Timeout: s.Timeout.std(),
		MaxLength: s.MaxLength, MaxWait: s.MaxWait.std(), Retention: admin.Retention{Succeeded: r.Succeeded.std(),
			Discarded: r.Discarded.std(), Cancelled: r.Cancelled.std(), Dead: r.Dead.std(), Poisoned: r.Poisoned.std()}}
	if s.Weights != (weights{}) {
		out.Weights = new(admin.PriorityWeights(s.Weights))
	}
	out.QueueLimits, out.KeyOrder = s.limits.sdk(), admin.KeyOrder(s.KeyOrder)
	if s.PerKey != nil {
		out.PerKey = s.PerKey.sdk()
	}
	for key, rules := range s.Keys {
		if out.Keys == nil {
			out.Keys = map[string]admin.KeyLimits{}
		}
		out.Keys[key] = admin.KeyLimits{QueueLimits: rules.limits.sdk(), Weight: rules.Weight}
	}
	s.sdkBreakers(&out)
	return d.queue(d.admin().Queues().Put(ctx, name, out))
}

func (d *sdk) DeleteQueue(ctx context.Context, name string) error {
	return refusedBySDK(d.admin().Queues().Delete(ctx, name))
}

func (d *sdk) Pause(ctx context.Context, name string, of pause) (queueInfo, error) {
	if of.Type == "" && of.Key == "" {
		return d.queue(d.admin().WithReason(of.Reason).Queues().Pause(ctx, name))
	}
	return d.queue(d.admin().WithReason(of.Reason).Queues().PauseSubset(ctx, name, admin.Subset{Type: of.Type, Key: of.Key}))
}

func (d *sdk) Resume(ctx context.Context, name string, of pause) (queueInfo, error) {
	if of.Type == "" && of.Key == "" {
		return d.queue(d.admin().WithReason(of.Reason).Queues().Resume(ctx, name))
	}
	return d.queue(d.admin().WithReason(of.Reason).Queues().ResumeSubset(ctx, name, admin.Subset{Type: of.Type, Key: of.Key}))
}

func (d *sdk) Purge(ctx context.Context, name string) (int64, error) {
	n, err := d.admin().Queues().Purge(ctx, name)
	return n, refusedBySDK(err)
}

func (d *sdk) Dead(ctx context.Context, f filter, p part) (page, error) {
	return pageInfos(d.admin().DeadLetters().ListPage(ctx, f.sdk(), p.sdk()))
}

func (d *sdk) Poisoned(ctx context.Context, f filter, p part) (page, error) {
	return pageInfos(d.admin().DeadLetters().ListPoisonedPage(ctx, f.sdk(), p.sdk()))
}

func (d *sdk) DeadGroups(ctx context.Context, queue string) ([]group, error) {
	got, err := d.admin().DeadLetters().Groups(ctx, queue, false)
	if err != nil {
		return nil, refusedBySDK(err)
	}
	var out []group
	for _, g := range got.Groups {
		out = append(out, group{Fingerprint: g.Fingerprint, Type: g.Type, Message: g.Message, Count: g.Count, FirstAt: g.FirstAt,
			LastAt: g.LastAt, Sample: g.SampleTaskID, Queues: g.Queues, Queue: g.Queue, Trend: g.Trend})
	}
	return out, nil
}

func viewInfo(t *pawltype.Task) view {
	v := view{ID: t.ID, Type: t.Type, Queue: t.Queue, Status: string(t.Status), State: string(t.State), Reason: t.Reason,
		Priority: string(t.Priority), Payload: string(t.Payload), ContentType: t.ContentType, Result: string(t.Result),
		ResultType: t.ResultContentType, Attempts: t.Attempts, MaxAttempts: t.MaxAttempts, Failures: t.Failures, Crashes: t.Crashes,
		Releases: t.Releases, Snoozes: t.Snoozes, Fence: t.Fence, Progress: progress(t.Progress), Checkpoint: t.Checkpoint,
		Worker: t.Worker, CreatedAt: t.CreatedAt, RunAt: t.RunAt, ClaimedAt: t.ClaimedAt, LeaseExpiresAt: t.LeaseExpiresAt,
		EndedAt: t.EndedAt, ExpiresAt: t.ExpiresAt, KeptUntil: t.KeptUntil, IdempotencyKey: t.IdempotencyKey, Key: t.Key, Tags: t.Tags,
		Headers: t.Headers, Retry: retryPolicy(t.Retry), Timeout: span(t.Timeout), Retention: span(t.Retention),
		Unique: uniqueSDK(t.Unique), WaitsFor: t.WaitsFor, GroupID: t.GroupID, Parent: parentOfSDK(t.Parent), Then: followersOfSDK(t.Then),
		MovedTo: t.MovedTo, MovedFrom: t.MovedFrom, ETag: t.ETag}
	for _, a := range t.AttemptLog {
		line := attempt{Attempt: a.Attempt, Fence: a.Fence, Worker: a.Worker, StartedAt: a.StartedAt, EndedAt: a.EndedAt,
			Outcome: string(a.Outcome), Waited: span(a.Waited), NextRunAt: a.NextRunAt}
		if a.Error != nil {
			line.Error = failure{a.Error.Message, a.Error.Type}
		}
		v.Log = append(v.Log, line)
	}
	return v
}
