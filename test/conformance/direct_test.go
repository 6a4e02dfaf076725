package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// direct calls the router as the gateway does. What the broker expects to be checked already, this API checks with
// package task; rules that only the gateway has do not apply here.
type direct struct {
	broker *router.Router
	queues *enqueue.Directory
	hooks  onlyHooks
}

func newDirect(h *testNode) *direct { return &direct{h.router, h.router.Queues, h.hooks} }

// refused converts an error to the suite's terms.
func refused(err error) error {
	e, ok := task.AsError(err)
	if !ok {
		return err
	}
	r := &refusal{Code: string(e.Code), Reason: e.Reason, Field: e.Field, Holder: e.Holder, RetryAfter: span(e.RetryAfter), Text: e.Message}
	if e.State != 0 {
		r.State = e.State.String()
	}
	return r
}

func (d *direct) Enqueue(ctx context.Context, s spec) (accepted, error) {
	all, err := d.EnqueueMany(ctx, []spec{s})
	if err == nil {
		err = all[0].Err
	}
	if err != nil {
		return accepted{}, err
	}
	return all[0], nil
}

func (d *direct) EnqueueMany(ctx context.Context, specs []spec) ([]accepted, error) {
	out := make([]accepted, len(specs))
	var good []task.Spec
	var at []int // good[i] is specs[at[i]]
	for i, s := range specs {
		t, err := s.task()
		if err == nil {
			_, err = d.queues.Place(ctx, namespace, t.Queue)
		}
		if err != nil {
			out[i].Err = refused(err)
			continue
		}
		good, at = append(good, t), append(at, i)
	}
	if len(good) == 0 {
		return out, nil
	}
	got, _, err := d.broker.Enqueue(ctx, dataShard, namespace, good)
	if err != nil {
		return nil, refused(err)
	}
	for i, e := range got {
		if e.Err != nil {
			out[at[i]].Err = refused(e.Err)
			continue
		}
		out[at[i]] = accepted{ID: e.ID.String(), State: e.State.String(), CreatedAt: when(e.CreatedAt), Duplicate: e.Duplicate}
	}
	return out, nil
}

// task returns the spec, filled in and checked, as the broker expects it.
func (s spec) task() (task.Spec, error) {
	t := task.Spec{Type: s.Type, Payload: []byte(s.Payload), ContentType: s.ContentType, Queue: s.Queue, Delay: s.Delay.std(),
		RunAt: s.RunAt, IdempotencyKey: s.IdempotencyKey, IdempotencyTTL: s.IdempotencyTTL.std(), MaxAttempts: s.MaxAttempts,
		Timeout: s.Timeout.std(), ExpiresIn: s.ExpiresIn.std(), Retention: (*time.Duration)(s.Retention), Key: s.Key, Cost: s.Cost,
		Tags: s.Tags, Headers: s.Headers, Unique: s.Unique.task()}
	if s.Priority != "" {
		p, ok := task.ParsePriority(s.Priority)
		if !ok {
			return t, fmt.Errorf("this API can't express %q", s.Priority)
		}
		t.Priority = p
	}
	if s.RequestID != "" {
		id, err := task.ParseID(s.RequestID)
		if err != nil {
			return t, task.Invalid("request_id", "%v", err)
		}
		t.RequestID = id
	}
	if s.Retry != (retry{}) {
		r := s.Retry.task()
		t.Retry = &r
	}
	for _, next := range s.Then {
		f, err := next.task()
		if _, ok := task.AsError(err); err != nil && !ok {
			return t, err
		}
		t.Then = append(t.Then, f) // checked with the task itself
	}
	t.Fill()
	return t, t.Check(task.DefaultLimits())
}

// task returns the policy with its defaults.
func (r retry) task() task.Retry {
	out := task.DefaultRetry
	if r.Initial != 0 {
		out.Initial = r.Initial.std()
		out.Max = max(out.Max, out.Initial)
	}
	if r.Max != 0 {
		out.Max = r.Max.std()
	}
	if r.Factor != 0 {
		out.Factor = r.Factor
	}
	if r.Jitter != 0 {
		out.Jitter = r.jitter()
	}
	return out
}

func (d *direct) Get(ctx context.Context, id string) (view, error) { return d.WaitResult(ctx, id, 0) }

func (d *direct) WaitResult(ctx context.Context, id string, wait span) (view, error) {
	return d.onTask(id, func(id task.ID) (*broker.View, broker.Stamp, error) {
		return d.broker.Task(ctx, namespace, id, wait.std())
	})
}

// onTask makes a call that answers with its task.
func (d *direct) onTask(id string, call func(task.ID) (*broker.View, broker.Stamp, error)) (view, error) {
	parsed, err := parseID(id)
	if err != nil {
		return view{}, err
	}
	v, _, err := call(parsed)
	if err != nil {
		return view{}, refused(err)
	}
	return viewOf(v, true), nil
}

// command makes an operator's call on a task.
func (d *direct) command(ctx context.Context, id string, c broker.TaskCommand) (view, error) {
	return d.onTask(id, func(id task.ID) (*broker.View, broker.Stamp, error) {
		c.By, c.Namespace, c.ID = directly, namespace, id
		out, err := broker.OperateTask.Call(ctx, d.broker, c)
		return out.View, out.At, err
	})
}

// onShard and onQueue address the data shard, and a queue in it.
func onShard() broker.OnShard { return broker.OnShard{Shard: dataShard, Namespace: namespace} }

func onQueue(name string) broker.OnQueue { return broker.OnQueue{OnShard: onShard(), Queue: name} }

func parseID(s string) (task.ID, error) {
	id, err := task.ParseID(s)
	if err != nil {
		return id, refused(task.Invalid("task_id", "%v", err))
	}
	return id, nil
}

func (d *direct) Cancel(ctx context.Context, id string) (view, error) {
	return d.command(ctx, id, broker.TaskCommand{Verb: broker.Cancel})
}

func (d *direct) Retry(ctx context.Context, id string) (view, error) {
	return d.command(ctx, id, broker.TaskCommand{Verb: broker.Retry})
}

func (d *direct) RunNow(ctx context.Context, id string) (view, error) {
	return d.command(ctx, id, broker.TaskCommand{Verb: broker.RunNow})
}

func (d *direct) Discard(ctx context.Context, id string) (view, error) {
	return d.command(ctx, id, broker.TaskCommand{Verb: broker.Discard})
}

func (d *direct) Update(ctx context.Context, id string, e edit) (view, error) {
	change := broker.Edit{MaxAttempts: e.MaxAttempts, IfETag: e.IfETag}
	if !e.RunAt.IsZero() {
		change.RunAt = &e.RunAt
	}
	if e.Priority != "" {
		change.Priority, _ = task.ParsePriority(e.Priority)
	}
	if e.Payload != nil {
		change.Payload = (*[]byte)(&e.Payload)
	}
	return d.command(ctx, id, broker.TaskCommand{Verb: broker.Update, Edit: change})
}

func (d *direct) List(ctx context.Context, f filter, p part) (page, error) {
	got, err := broker.ListTasks.Call(ctx, d.broker, broker.TaskList{OnShard: onShard(), Filter: f.broker(), Cursor: cursorOf(p),
		Limit: limitOf(p)})
	if err != nil {
		return page{}, refused(err)
	}
	return pageOf(got.Page, p.WithPayload), nil
}

func (f filter) broker() broker.Filter {
	out := broker.Filter{Queue: f.Queue, Type: f.Type, Tag: f.Tag, Key: f.Key, Worker: f.Worker, Error: f.Error, Fingerprint: f.Fingerprint,
		Text: f.Text}
	if f.Operation != "" {
		out.Operation, _ = task.ParseID(f.Operation)
	}
	for _, name := range f.States {
		s, _ := task.ParseState(name)
		out.States = append(out.States, s)
	}
	for _, c := range f.fields() {
		out.Payload = append(out.Payload, broker.PayloadField{Path: c[0], Value: c[1]})
	}
	if !f.CreatedAfter.IsZero() {
		out.CreatedAfter = broker.TimeOf(f.CreatedAfter)
	}
	if !f.CreatedBefore.IsZero() {
		out.CreatedBefore = broker.TimeOf(f.CreatedBefore)
	}
	return out
}

func cursorOf(p part) []byte {
	if p.Cursor == "" {
		return nil
	}
	return []byte(p.Cursor)
}

func limitOf(p part) int {
	if p.Limit == 0 {
		return 100
	}
	return p.Limit
}

func pageOf(got broker.Page, withPayload bool) page {
	out := page{Next: string(got.Next)}
	for _, v := range got.Tasks {
		out.Items = append(out.Items, viewOf(v, withPayload))
	}
	return out
}

func (d *direct) Claim(ctx context.Context, c claimCall) ([]claim, error) {
	call := broker.ClaimCall{Namespace: namespace, Weighted: c.Weights != nil, Types: c.Types, Max: max(c.Max, 1), MaxBytes: c.MaxBytes,
		Lease: c.Lease.std(), Worker: c.Worker, ClaimKey: c.Key, Runs: c.Runs}
	if call.MaxBytes == 0 {
		call.MaxBytes = 4 << 20
	}
	for _, q := range c.Queues {
		call.Queues = append(call.Queues, broker.Share{Queue: q})
	}
	for _, q := range slices.Sorted(maps.Keys(c.Weights)) {
		call.Queues = append(call.Queues, broker.Share{Queue: q, Weight: c.Weights[q]})
	}
	for _, q := range call.Queues {
		if _, err := d.queues.Place(ctx, namespace, q.Queue); err != nil {
			return nil, refused(err)
		}
	}
	got, _, err := d.broker.Claim(ctx, dataShard, call, c.Wait.std())
	if err != nil {
		return nil, refused(err)
	}
	out := make([]claim, len(got))
	for i, g := range got {
		out[i] = claim{ID: g.ID.String(), Type: g.Type, Queue: g.Queue, Payload: string(g.Payload), ContentType: g.ContentType,
			Priority: g.Exec.Priority.String(), Attempt: g.Exec.Attempt(), MaxAttempts: g.LastAttempt, Token: g.Token.String(),
			Fence: int64(g.Exec.Fence), LeaseExpiresAt: when(g.Exec.Claim.Until), Lease: span(g.Exec.Claim.Lease), Timeout: span(g.Timeout),
			Headers: g.Headers, Checkpoint: g.Checkpoint, CreatedAt: when(g.Exec.CreatedAt), ReadyAt: when(g.Exec.ReadyAt),
			Key: g.Key, Tags: g.Tags, IdempotencyKey: g.IdempotencyKey, Parent: parentOf(g.Parent)}
		if links := g.Exec.Links; links != nil && links.Group != (task.ID{}) {
			out[i].GroupID = links.Group.String()
		}
	}
	return out, nil
}

// settle makes one settling call.
func (d *direct) settle(ctx context.Context, h hold, s broker.Settle) (broker.Settled, error) {
	id, err := parseID(h.ID)
	if err != nil {
		return broker.Settled{}, err
	}
	token, err := task.ParseToken(h.Token)
	if err != nil {
		return broker.Settled{}, refused(err)
	}
	s.Hold = broker.Hold{Namespace: namespace, ID: id, Token: token}
	got, _, err := d.broker.Settle(ctx, id.Shard(), []broker.Settle{s})
	if err == nil {
		err = got[0].Err
	}
	if err != nil {
		return broker.Settled{}, refused(err)
	}
	return got[0], nil
}

func (d *direct) Ack(ctx context.Context, h hold, r result) error {
	got, err := d.settle(ctx, h, r.broker())
	if err == nil && got.State != task.Succeeded {
		return fmt.Errorf("acked, and %s", got.State)
	}
	return err
}

func (r result) broker() broker.Settle {
	return broker.Settle{Verb: broker.Ack, Result: broker.Result{Data: []byte(r.Data), ContentType: r.ContentType}}
}

func (d *direct) Fail(ctx context.Context, h hold, f failing) (settled, error) {
	got, err := d.settle(ctx, h, f.broker())
	return settled{State: stateName(got.State), NextRunAt: when(got.NextRunAt)}, err
}

func (f failing) broker() broker.Settle {
	s := broker.Settle{Verb: broker.Fail, Fail: broker.Failing{Failure: broker.Failure{Message: f.Message, Type: failureType}}}
	s.Fail.Action = map[string]broker.FailResult{"": broker.FailRetry, "retry": broker.FailRetry, "dead": broker.FailDead,
		"discard": broker.FailDiscard, "poison": broker.FailPoison}[f.Outcome]
	if f.RetryIn != 0 {
		in := f.RetryIn.std()
		s.Fail.RetryIn = &in
	}
	return s
}

func (d *direct) Release(ctx context.Context, h hold, delay span) (settled, error) {
	got, err := d.settle(ctx, h, broker.Settle{Verb: broker.Release, Delay: delay.std()})
	return settled{State: stateName(got.State), NextRunAt: when(got.NextRunAt)}, err
}

func (d *direct) Extend(ctx context.Context, h hold, e extension) (time.Time, error) {
	s := broker.Settle{Verb: broker.Extend, Extend: broker.Extension{Lease: e.Lease.std()}}
	if e.Progress != nil {
		s.Extend.Progress = &broker.Progress{Percent: e.Progress.Percent, Text: e.Progress.Message}
	}
	if e.Checkpoint != nil {
		s.Extend.Checkpoint = &e.Checkpoint
	}
	got, err := d.settle(ctx, h, s)
	return when(got.LeaseUntil), err
}

func (d *direct) Settle(ctx context.Context, items []settlement) ([]settled, error) {
	out := make([]settled, len(items))
	for i, item := range items { // the broker's own batch needs valid ids and tokens
		s := item.Result.broker()
		switch {
		case item.Fail != nil:
			s = item.Fail.broker()
		case item.Release:
			s = broker.Settle{Verb: broker.Release}
		}
		got, err := d.settle(ctx, item.hold, s)
		out[i] = settled{State: stateName(got.State), NextRunAt: when(got.NextRunAt), Err: err}
	}
	return out, nil
}

func stateName(s task.State) string {
	if s == 0 {
		return ""
	}
	return s.String()
}

// when converts a shard's time. 0 is the zero time.
func when(t broker.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return t.Time()
}

func (d *direct) Queue(ctx context.Context, name string) (queueInfo, error) {
	out, err := broker.DescribeQueue.Call(ctx, d.broker, onQueue(name))
	info := out.Info
	if err != nil {
		return queueInfo{}, refused(err)
	}
	q, _, err := d.queues.Queue(ctx, namespace, name)
	if err != nil {
		return queueInfo{}, refused(err)
	}
	var holds []held
	for _, h := range q.Config.Holds {
		holds = append(holds, held{pause{h.Reason, h.Type, h.Key}, h.By, h.At})
	}
	return queueInfo{Queue: name, Holds: holds, Breakers: brokenOf(info.Breakers), BreakersOpen: info.BreakersOpen, Paused: q.Config.Paused,
		PausedReason: q.Config.PausedReason, PausedBy: q.Config.PausedBy, PausedAt: q.Config.PausedAt,
		Depth: depth{Scheduled: info.Scheduled,
			Ready: info.Ready[0] + info.Ready[1] + info.Ready[2], Claimed: info.Claimed, Retrying: info.Retrying,
			Held: info.Held, Dead: info.Dead, Poisoned: info.Poisoned},
		Ready:       byPrio{info.Ready[0], info.Ready[1], info.Ready[2]},
		OldestReady: info.OldestReady.Seconds(), Settings: settingsOf(q.Config.Settings),
		Version: int64(q.Config.Version), CreatedAt: q.Config.CreatedAt}, nil
}

func settingsOf(s task.Settings) settings {
	r := s.Retention
	out := settings{Weights: weights{s.Weights[0], s.Weights[1], s.Weights[2]}, Retry: retryOf(s.Retry), MaxAttempts: s.MaxAttempts,
		Lease: span(s.Lease), Timeout: span(s.Timeout), MaxLength: s.MaxLength, MaxWait: span(s.MaxWait), KeyOrder: string(s.KeyOrder),
		Retention: retention{span(r.Succeeded), span(r.Discarded), span(r.Cancelled), span(r.Dead), span(r.Poisoned)},
		limits:    limitsOf(s.Rules)}
	if s.PerKey != (task.KeyRules{}) {
		out.PerKey = new(limitsOf(s.PerKey.Rules))
	}
	for key, rules := range s.Keys {
		if out.Keys == nil {
			out.Keys = map[string]keyRules{}
		}
		out.Keys[key] = keyRules{limitsOf(rules.Rules), max(rules.Weight, 1)}
	}
	out.breakersOf(s)
	return out
}

func limitsOf(r task.Rules) limits {
	out := limits{MaxRunning: r.MaxRunning}
	if r.Rate.IsSet() {
		out.Rate = &rate{r.Rate.Limit, span(r.Rate.Period), r.Rate.Capacity()}
	}
	return out
}

func (l limits) task() task.Rules {
	out := task.Rules{MaxRunning: l.MaxRunning}
	if l.Rate != nil {
		out.Rate = task.Rate{Limit: l.Rate.Limit, Period: l.Rate.Period.std(), Burst: l.Rate.Burst}
	}
	return out
}

func retryOf(r task.Retry) retry { return retry{span(r.Initial), r.Factor, span(r.Max), r.Jitter} }

func (d *direct) Queues(ctx context.Context, p part) (names []string, next string, err error) {
	queues, err := d.queues.Queues(ctx, namespace, queues.Query{After: p.Cursor, Limit: limitOf(p) + 1})
	if err != nil {
		return nil, "", refused(err)
	}
	if len(queues) > limitOf(p) {
		queues = queues[:limitOf(p)]
		next = queues[len(queues)-1].Name
	}
	for _, q := range queues {
		names = append(names, q.Name)
	}
	return names, next, nil
}

// configure changes a queue's configuration and reads the queue.
func (d *direct) configure(ctx context.Context, action task.Action, name string, change func(*task.QueueConfig) error) (queueInfo, error) {
	if _, err := d.queues.PutQueue(ctx, auditlog.Action{By: directly, Action: action}, namespace, name, change); err != nil {
		return queueInfo{}, refused(err)
	}
	return d.Queue(ctx, name)
}

func (d *direct) PutQueue(ctx context.Context, name string, s settings) (queueInfo, error) {
	rules := s.task()
	if err := rules.Check(); err != nil {
		return queueInfo{}, refused(err)
	}
	return d.configure(ctx, task.QueuePut, name, func(c *task.QueueConfig) error { c.Settings = rules; return nil })
}

// task returns the settings with their defaults.
func (s settings) task() task.Settings {
	out := task.DefaultSettings()
	out.Weights, out.MaxLength, out.Timeout, out.Retry = [3]int{s.Weights.High, s.Weights.Normal, s.Weights.Low}, s.MaxLength,
		s.Timeout.std(), s.Retry.task()
	if s.MaxAttempts != 0 {
		out.MaxAttempts = s.MaxAttempts
	}
	for to, from := range map[*time.Duration]span{&out.Lease: s.Lease, &out.MaxWait: s.MaxWait,
		&out.Retention.Succeeded: s.Retention.Succeeded, &out.Retention.Discarded: s.Retention.Discarded,
		&out.Retention.Cancelled: s.Retention.Cancelled, &out.Retention.Dead: s.Retention.Dead,
		&out.Retention.Poisoned: s.Retention.Poisoned} {
		if from != 0 {
			*to = from.std()
		}
	}
	out.Rules, out.KeyOrder = s.limits.task(), task.KeyOrder(s.KeyOrder)
	if s.PerKey != nil {
		out.PerKey.Rules = s.PerKey.task()
	}
	for key, rules := range s.Keys {
		if out.Keys == nil {
			out.Keys = map[string]task.KeyRules{}
		}
		out.Keys[key] = task.KeyRules{Rules: rules.limits.task(), Weight: rules.Weight}
	}
	s.taskBreakers(&out)
	return out
}

func (d *direct) DeleteQueue(ctx context.Context, name string) error {
	return refused(d.queues.DropQueue(ctx, directly, namespace, name))
}

func (p pause) hold() task.Hold {
	return task.Hold{Type: p.Type, Key: p.Key, Reason: p.Reason, By: actor, At: time.Now().UTC()}
}

func (d *direct) Pause(ctx context.Context, name string, of pause) (queueInfo, error) {
	return d.configure(ctx, task.QueuePaused, name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", name)
		}
		return c.Pause(of.hold())
	})
}

func (d *direct) Resume(ctx context.Context, name string, of pause) (queueInfo, error) {
	return d.configure(ctx, task.QueueResumed, name, func(c *task.QueueConfig) error {
		if c.Version == 0 {
			return task.NotFound("queue", name)
		}
		return c.Resume(of.hold())
	})
}

func (d *direct) Purge(ctx context.Context, name string) (int64, error) {
	out, err := broker.PurgeQueue.Call(ctx, d.broker, broker.QueueCommand{OnQueue: onQueue(name), Authored: broker.Authored{By: directly}})
	return out.Done, refused(err)
}

func (d *direct) Dead(ctx context.Context, f filter, p part) (page, error) {
	return d.ended(ctx, "dead", f, p)
}

func (d *direct) Poisoned(ctx context.Context, f filter, p part) (page, error) {
	return d.ended(ctx, "poisoned", f, p)
}

func (d *direct) ended(ctx context.Context, state string, f filter, p part) (page, error) {
	if _, err := d.Queue(ctx, f.Queue); err != nil {
		return page{}, err
	}
	f.States, p.WithPayload = []string{state}, true
	return d.List(ctx, f, p)
}

func (d *direct) DeadGroups(ctx context.Context, queue string) ([]group, error) {
	got, err := broker.GroupDead.Call(ctx, d.broker, broker.DeadOf{OnQueue: onQueue(queue), State: task.Dead})
	var out []group
	for _, g := range got.Groups {
		out = append(out, group{Fingerprint: fmt.Sprintf("%016x", g.Fingerprint), Type: g.Type, Message: g.Message, Count: g.Count,
			FirstAt: when(g.First), LastAt: when(g.Last), Sample: g.Sample.String(), Queues: len(g.Queues), Queue: g.Most(),
			Trend: g.Trend[:]})
	}
	return out, refused(err)
}

func viewOf(v *broker.View, withPayload bool) view {
	x := v.Exec
	out := view{ID: v.ID.String(), Type: v.Type, Queue: v.Queue, Status: x.State.Status(), State: x.State.String(), Reason: x.Reason,
		Priority: x.Priority.String(), ContentType: v.ContentType, ResultType: v.Result.ContentType, MaxAttempts: v.MaxAttempts(),
		Failures: x.Failures, Crashes: x.Crashes, Releases: x.Releases, Snoozes: x.Snoozes, Fence: int64(x.Fence),
		Progress: progress{x.Progress, x.ProgressText}, Worker: x.Claim.Worker, CreatedAt: when(x.CreatedAt), RunAt: when(x.RunAt),
		ClaimedAt: when(x.Claim.At), EndedAt: when(x.EndedAt), ExpiresAt: when(x.ExpiresAt), KeptUntil: when(x.KeptUntil),
		IdempotencyKey: v.IdempotencyKey, Key: v.Key, Tags: v.Tags, Headers: v.Headers, Retry: retryOf(v.Settings.Retry),
		Timeout: span(v.Settings.Timeout), Unique: uniqueOf(x.Unique), Parent: parentOf(v.Parent), Then: followersOf(v.Then)}
	if x.Links != nil && x.Links.Group != (task.ID{}) {
		out.GroupID = x.Links.Group.String()
	}
	if v.WaitsFor != (task.ID{}) {
		out.WaitsFor = v.WaitsFor.String()
	}
	if withPayload {
		out.Payload, out.Result, out.Checkpoint, out.ETag = string(v.Payload), string(v.Result.Data), v.Checkpoint, v.ETag()
	}
	for _, a := range v.Attempts {
		out.Log = append(out.Log, attempt{Attempt: a.Number, Fence: int64(a.Fence), Worker: a.Worker, StartedAt: when(a.StartedAt),
			EndedAt: when(a.EndedAt), Outcome: a.Outcome.String(), Error: failure{a.Failure.Message, a.Failure.Type},
			Waited: span(a.Waited), NextRunAt: when(a.NextRunAt)})
	}
	if x.State == task.Claimed {
		out.LeaseExpiresAt = when(x.Claim.Until)
		out.Log = append(out.Log, attempt{Attempt: x.Attempt(), Fence: int64(x.Fence), Worker: x.Claim.Worker, StartedAt: when(x.Claim.At),
			Waited: span(x.Claim.At.Sub(x.ReadyAt))})
	}
	if n := len(out.Log); n > 0 {
		out.Attempts = out.Log[n-1].Attempt
	}
	if v.Retry != nil {
		out.Retry = retryOf(*v.Retry)
	}
	if v.Timeout != 0 {
		out.Timeout = span(v.Timeout)
	}
	switch {
	case x.Retention != nil:
		out.Retention = span(*x.Retention)
	case x.State.Ended():
		out.Retention = span(v.Settings.Retention.Of(x.State))
	}
	return out
}
