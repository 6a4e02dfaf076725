package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/gateway/watch/watchtest"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fake is an in-memory broker and cluster: what the gateway relies on, with switches to make it misbehave.
type fake struct {
	mu       sync.Mutex
	shards   []uint32
	queues   map[string]queues.Queue
	home     map[string]uint32 // of queues that don't exist yet
	tasks    map[task.ID]*fakeTask
	broken   []broker.BreakerInfo // of queue "broken"
	byKey    map[string]task.ID
	claimed  map[string][]broker.Claimed // by shard and claim key
	made     int
	index    uint64
	changed  chan struct{} // closed and replaced at each change
	draining chan struct{}
	watches  map[*fakeWatch]bool
	admin    *fakeAdmin
	registry *registry.Registry
	events   *watchtest.Rings

	// Switches, and what was recorded.
	down     map[uint32]bool // shards that don't answer
	rows     int             // read for a page of a list; 0: fakeScan
	loses    map[uint32]bool // shards whose answers to ClaimNow are lost
	leader   uint64
	settles  [][]broker.Settle
	released []task.ID
	claims   []broker.ClaimCall
	left     []broker.ClaimCall                           // passed to Abandon
	hold     chan struct{}                                // if set, Settle waits until it can receive from it
	holds    uint32                                       // the shard for which Settle waits; 0: all
	busy     chan struct{}                                // if set, Enqueue waits until it is closed
	enqueues func(ctx context.Context, specs []task.Spec) // if set, called before Enqueue begins; may block
	panics   bool
	meter    callinfo.Meter
	fails    error   // of every call
	cluster  error   // of reads of queues
	faults   *faults // of single calls; nil: none

	certificate func() *tls.Certificate // nil: plaintext
	clients     listen.ClientCertificates
	auth        *auth.Authenticator
	pages       http.Handler // nil: none
	maxConns    int          // 0: the default
	answers     verbtest.Answers
	once        sync.Once // creates answers
}

type fakeTask struct {
	view *broker.View
	at   uint32
}

func newFake(shards ...uint32) *fake {
	if len(shards) == 0 {
		shards = []uint32{1}
	}
	return &fake{shards: shards, queues: map[string]queues.Queue{}, home: map[string]uint32{}, tasks: map[task.ID]*fakeTask{},
		byKey: map[string]task.ID{}, claimed: map[string][]broker.Claimed{}, changed: make(chan struct{}), draining: make(chan struct{}),
		watches: map[*fakeWatch]bool{}, down: map[uint32]bool{}, leader: 1, admin: newFakeAdmin(), registry: registry.New(),
		events: watchtest.NewRings(), broken: fakeBreakers(), auth: auth.NewAuthenticator(auth.Config{Mode: auth.Never})}
}

func fakeBreakers() []broker.BreakerInfo {
	since := broker.TimeOf(time.Unix(946684800, 0))
	return []broker.BreakerInfo{
		{Type: "mail", State: broker.BreakerOpen, Since: since, Until: since.Add(time.Minute), Attempts: 20, Failed: 18,
			Window: time.Minute, Error: "no route", Opened: 2, Probes: 3},
		{Type: "sms", State: broker.BreakerProbing, Since: since, Attempts: 4, Failed: 2, Window: 10 * time.Second, Opened: 1,
			Passed: 1, Probes: 3, Probe: task.NewID(1, 1, 1)},
	}
}

// newGateway returns a gateway on a fake.
func newGateway(f *fake) *Gateway {
	c := f.config()
	c.Admin, c.Version, c.ClusterID = f.admin, "test", "c1"
	return New(c)
}

// config returns what a gateway on a fake must have. It is not in a cluster.
func (f *fake) config() Config {
	return Config{Broker: f, Cluster: fakeCluster{f}, Schedules: newFakeSchedules(f), Groups: newFakeGroups(f),
		Operations: newFakeOperations(f), Workers: fakeWorkers{f}, Events: f.events, Registry: f.registry,
		Stats: noStats{fakeStats{stats.New(time.Now())}}, Node: "n1", Logger: slog.New(slog.DiscardHandler), Certificate: f.certificate,
		ClientCertificates: f.clients, Auth: f.auth, Pages: f.pages, Meter: f.meter, MaxConns: f.maxConns, Limits: task.DefaultLimits(),
		Ready: f.ready}
}

// ready returns why the node is not ready: there is no leader.
func (f *fake) ready() (err error) {
	f.set(func() {
		if f.leader == 0 {
			err = errors.New("no leader")
		}
	})
	return err
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) notify() {
	f.index++
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) now() broker.Time { return broker.TimeOf(time.Now()) }

func (f *fake) stamp(shard uint32) broker.Stamp {
	return broker.Stamp{Shard: shard, Index: f.index + 1, Term: 1, Time: f.now()}
}

// begin takes the lock, or returns why the shard does not answer.
func (f *fake) begin(shard uint32) error {
	if f.panics {
		panic("planted")
	}
	if err := f.faults.ask(); err != nil {
		return err
	}
	f.mu.Lock()
	if f.fails != nil || f.down[shard] {
		defer f.mu.Unlock()
		if f.fails != nil {
			return f.fails
		}
		return task.Unavailable(time.Second, "shard %d: no leader", shard)
	}
	return nil
}

// The cluster.

// The broker.

func (f *fake) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if f.enqueues != nil {
		f.enqueues(ctx, specs)
	}
	if f.busy != nil {
		select {
		case <-f.busy:
		case <-ctx.Done():
			return nil, broker.Stamp{}, ctx.Err()
		}
	}
	if err := f.begin(shard); err != nil {
		return nil, broker.Stamp{}, err
	}
	defer f.mu.Unlock()
	out := make([]broker.Enqueued, len(specs))
	for i, s := range specs {
		out[i] = f.enqueue(shard, ns, s)
	}
	f.notify()
	return out, f.stamp(shard), nil
}

func (f *fake) enqueue(shard uint32, ns string, s task.Spec) (out broker.Enqueued) {
	if id, ok := f.byKey[s.Queue+"/"+s.IdempotencyKey]; ok && s.IdempotencyKey != "" {
		t := f.tasks[id].view
		if !bytes.Equal(t.Payload, s.Payload) {
			out.Err = &task.Error{Code: task.CodeConflict, Field: "idempotency_key", Message: "the key stands for a task of other content"}
			return out
		}
		out.ID, out.State, out.CreatedAt, out.Duplicate = id, t.Exec.State, t.Exec.CreatedAt, true
		return out
	}
	f.made++
	id := task.NewID(shard, time.Now().UnixMilli(), uint64(f.made))
	now := f.now()
	x := &schema.Exec{State: task.Ready, Priority: s.Priority, Queue: s.Queue, Type: s.Type, Key: s.Key, MaxAttempts: s.MaxAttempts,
		Retention: s.Retention, CreatedAt: now, RunAt: now, ReadyAt: now, Unique: s.Unique}
	if s.Delay > 0 {
		x.State, x.RunAt = task.Scheduled, now.Add(s.Delay)
	}
	f.tasks[id] = &fakeTask{at: shard, view: &broker.View{
		Envelope: &schema.Envelope{ID: id, Namespace: ns, Queue: s.Queue, Type: s.Type, Key: s.Key, Payload: s.Payload,
			ContentType: s.ContentType, IdempotencyKey: s.IdempotencyKey, Retry: s.Retry, Timeout: s.Timeout, Tags: s.Tags,
			Headers: s.Headers},
		Exec: x, Settings: task.DefaultSettings(),
	}}
	if s.IdempotencyKey != "" {
		f.byKey[s.Queue+"/"+s.IdempotencyKey] = id
	}
	out.ID, out.State, out.CreatedAt = id, x.State, now
	return out
}

// inOrder returns the tasks of a shard, oldest first.
func (f *fake) inOrder(shard uint32) (list []*fakeTask) {
	for _, t := range f.tasks {
		if t.at == shard {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *fakeTask) int { return bytes.Compare(a.view.ID[8:], b.view.ID[8:]) })
	return list
}

// ClaimNow takes from the queues in their order, ignoring weights.
func (f *fake) ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	if c.Max < 1 || c.MaxBytes < 1 || c.Weighted {
		panic(fmt.Sprintf("shard %d is asked for nothing, or to weigh what others have: %+v", shard, c))
	}
	got, at, err := f.Claim(ctx, shard, c, 0)
	if err == nil && f.loses[shard] {
		return nil, at, broker.Unknown("shard %d: the answer was lost", shard)
	}
	return got, at, err
}

func (f *fake) Abandon(_ uint32, c broker.ClaimCall) { f.set(func() { f.left = append(f.left, c) }) }

func (f *fake) Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error) {
	if len(c.Queues) == 0 && c.Weighted {
		panic(fmt.Sprintf("shard %d is asked to weigh no queues: %+v", shard, c))
	}
	deadline := time.After(wait)
	for first := true; ; first = false {
		if err := f.begin(shard); err != nil {
			return nil, broker.Stamp{}, err
		}
		if first {
			f.claims = append(f.claims, c)
		}
		got := f.claim(shard, c)
		at, changed := f.stamp(shard), f.changed
		if len(got) > 0 {
			f.notify()
		}
		f.mu.Unlock()
		if len(got) > 0 || wait == 0 {
			return got, at, nil
		}
		select {
		case <-changed:
		case <-deadline:
			return nil, at, nil
		case <-f.draining:
			return nil, at, nil
		case <-ctx.Done():
			return nil, at, ctx.Err()
		}
	}
}

func (f *fake) claim(shard uint32, c broker.ClaimCall) (got []broker.Claimed) {
	key := fmt.Sprint(shard, " ", c.ClaimKey)
	if again, ok := f.claimed[key]; ok && c.ClaimKey != "" {
		return again
	}
	size := 0
	for _, q := range c.Queues {
		if f.queues[q.Queue].Config.Paused {
			continue
		}
		for _, t := range f.inOrder(shard) {
			v := t.view
			if v.Queue != q.Queue || v.Exec.State != task.Ready || len(got) == c.Max || len(c.Types) > 0 &&
				!slices.Contains(c.Types, v.Type) {
				continue
			}
			if size += len(v.Payload); size > c.MaxBytes && len(got) > 0 {
				return got
			}
			got = append(got, f.take(v, c))
		}
	}
	if c.ClaimKey != "" && len(got) > 0 {
		f.claimed[key] = got
	}
	return got
}

func (f *fake) take(v *broker.View, c broker.ClaimCall) broker.Claimed {
	x := *v.Exec
	x.State = task.Claimed
	x.Fence++
	lease := c.Lease
	if lease == 0 {
		lease = 30 * time.Second
	}
	x.Claim = schema.Claim{Nonce: x.Fence * 7, Worker: c.Worker, At: f.now(), Lease: lease, Until: f.now().Add(lease)}
	v.Exec = &x
	return broker.Claimed{Envelope: v.Envelope, Exec: &x, Token: tokenOf(v), LastAttempt: 5, Checkpoint: v.Checkpoint}
}

func tokenOf(v *broker.View) task.Token {
	return task.Token{Epoch: 1, Fence: v.Exec.Fence, Nonce: v.Exec.Claim.Nonce}
}

func (f *fake) Await(ctx context.Context, shard uint32, c broker.ClaimCall) error {
	for {
		if err := f.begin(shard); err != nil {
			return err
		}
		changed := f.changed
		for _, t := range f.inOrder(shard) {
			if v := t.view; v.Exec.State == task.Ready && slices.ContainsFunc(c.Queues, func(q broker.Share) bool {
				return q.Queue == v.Queue
			}) {
				f.mu.Unlock()
				return nil
			}
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fake) Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error) {
	if f.hold != nil && (f.holds == 0 || f.holds == shard) {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return nil, broker.Stamp{}, ctx.Err()
		}
	}
	if err := f.begin(shard); err != nil {
		return nil, broker.Stamp{}, err
	}
	defer f.mu.Unlock()
	f.settles = append(f.settles, calls)
	out := make([]broker.Settled, len(calls))
	for i := range calls {
		out[i] = f.settle(&calls[i])
	}
	f.notify()
	return out, f.stamp(shard), nil
}

func (f *fake) settle(c *broker.Settle) (s broker.Settled) {
	t := f.tasks[c.Hold.ID]
	if t == nil {
		s.Err = task.NotFound("task", c.Hold.ID.String())
		return s
	}
	v := t.view
	if v.Exec.State != task.Claimed || tokenOf(v) != c.Hold.Token {
		s.Err = &task.Error{Code: task.CodeStaleClaim, Reason: task.StaleReclaimed, Holder: "w2", State: v.Exec.State,
			Message: "the lease was lost"}
		return s
	}
	x := *v.Exec
	now := f.now()
	switch c.Verb {
	case broker.Ack:
		x.State, x.EndedAt, v.Result = task.Succeeded, now, c.Result
		f.record(v, task.OutcomeSucceeded, broker.Failure{})
	case broker.Fail:
		x.Failures++
		f.record(v, task.OutcomeFailed, c.Fail.Failure)
		switch c.Fail.Action {
		case broker.FailRetry:
			x.State, x.RunAt = task.Retrying, now.Add(30*time.Second)
			s.NextRunAt = x.RunAt
		case broker.FailPoison:
			x.State, x.EndedAt, x.Reason = task.Poisoned, now, task.ReasonUnreadable
		case broker.FailDiscard:
			x.State, x.EndedAt, x.Reason = task.Discarded, now, task.ReasonHandler
		default:
			x.State, x.EndedAt, x.Reason = task.Dead, now, task.ReasonNotRetryable
		}
	case broker.Release, broker.GiveBack:
		f.released = append(f.released, v.ID)
		x.State, s.NextRunAt = task.Ready, now
	case broker.Extend:
		x.Claim.Until = now.Add(time.Minute)
		s.LeaseUntil = x.Claim.Until
		if p := c.Extend.Progress; p != nil {
			x.Progress, x.ProgressText = p.Percent, p.Text
		}
		if c.Extend.Checkpoint != nil {
			v.Checkpoint = *c.Extend.Checkpoint
		}
	}
	v.Exec = &x
	s.State = x.State
	return s
}

func (f *fake) record(v *broker.View, o task.Outcome, why broker.Failure) {
	v.Attempts = append(v.Attempts, &broker.Attempt{Fence: v.Exec.Fence, Number: v.Exec.Attempt(), Worker: v.Exec.Claim.Worker,
		StartedAt: v.Exec.Claim.At, EndedAt: f.now(), Outcome: o, Failure: why, Waited: time.Millisecond})
}

func (f *fake) Task(ctx context.Context, _ string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error) {
	deadline := time.After(wait)
	for {
		if err := f.begin(id.Shard()); err != nil {
			return nil, broker.Stamp{}, err
		}
		t, changed, at := f.tasks[id], f.changed, f.stamp(id.Shard())
		var v broker.View
		if t != nil {
			v = *t.view
		}
		f.mu.Unlock()
		if t == nil {
			return nil, at, task.NotFound("task", id.String())
		}
		if v.Exec.State.Ended() || wait == 0 {
			return &v, at, nil
		}
		select {
		case <-changed:
		case <-deadline:
			return &v, at, nil
		case <-ctx.Done():
			return nil, at, ctx.Err()
		}
	}
}

func (f *fake) Peek(ctx context.Context, ns string, id task.ID) (*broker.View, broker.Stamp, time.Duration, error) {
	v, at, err := f.Task(ctx, ns, id, 0)
	return v, at, 1500 * time.Millisecond, err
}

// explained are reasons with everything that they may contain, whatever the task.
var explained = []broker.Reason{
	{Code: task.WhyNotDue, Detail: "attempt 2 of 5 failed", Change: "wait", Until: broker.TimeOf(time.Unix(946684860, 0)),
		Cause: "failed", Error: "boom"},
	{Code: task.WhyTypePaused, Detail: "type \"welcome\" is paused", Change: "resume it", Since: broker.TimeOf(time.Unix(946684800, 0)),
		Type: "welcome", Cause: "no paper"},
	{Code: task.WhyKeyMaxRunning, Detail: "key \"a\" runs 1 task", Change: "it ends", Key: "a", Limit: 1,
		Running: []broker.Runner{{ID: task.NewID(1, 5, 5), Worker: "w1", Since: broker.TimeOf(time.Unix(946684800, 0)),
			Until: broker.TimeOf(time.Unix(946684830, 0))}}},
	{Code: task.WhyKeyRate, Detail: "key \"a\" may start 4 in 10s", Change: "a token comes", Key: "a", Rate: task.Rate{Limit: 4,
		Period: 10 * time.Second}},
	{Code: task.WhyNoWorkerForType, Detail: "no claim takes it", Change: "start a worker", Type: "welcome", Types: []string{"bye"}},
	{Code: task.WhyOlderTasks, Detail: "over 1000 tasks came before it", Change: "they run", Count: 1000, More: true},
}

func (f *fake) Explain(ctx context.Context, ns string, id task.ID) (*broker.Explanation, broker.Stamp, error) {
	v, at, err := f.Task(ctx, ns, id, 0)
	if err != nil {
		return nil, at, err
	}
	e := broker.ExplainView(v)
	if v.Exec.State.Waiting() {
		e.Reasons = explained
	}
	return e, at, nil
}

func (f *fake) ExplainQueue(ctx context.Context, shard uint32, ns, name string) (*broker.QueueExplanation, broker.Stamp, error) {
	i, at, err := f.Queue(ctx, shard, ns, name)
	if errors.Is(err, task.ErrUnavailable) {
		return &broker.QueueExplanation{Partial: true, Reasons: []broker.Reason{{Code: task.WhyNoLeader, Detail: err.Error(),
			Change: "a majority runs"}}}, at, nil
	}
	if err != nil {
		return nil, at, err
	}
	ready := i.Ready[0] + i.Ready[1] + i.Ready[2]
	why := explained[1]
	why.Count = ready
	shardOnly := explained[4]
	shardOnly.Detail, shardOnly.Count = fmt.Sprintf("no claim in shard %d takes it", shard), ready
	return &broker.QueueExplanation{Ready: ready, Claimable: ready, Claimed: i.Claimed, Waiting: 1,
		Reasons: []broker.Reason{why, shardOnly}, Keys: []broker.HeldKey{{Key: "a", Code: task.WhyKeyRate, Tasks: ready, Until: f.now()}},
		Idle: []broker.IdleType{{Type: "welcome", Tasks: ready}}, NextDue: f.now(), OldestReady: f.now() - broker.Time(shard)}, at, nil
}

// fakeScan is how many rows are read for a page of a list.
const fakeScan = 5

func (f *fake) Tasks(_ context.Context, shard uint32, _ string, filter broker.Filter, cursor []byte, limit int) (p broker.Page,
	at broker.Stamp, err error) {
	if err := f.begin(shard); err != nil {
		return p, at, err
	}
	defer f.mu.Unlock()
	list := f.inOrder(shard)
	slices.SortFunc(list, func(a, b *fakeTask) int { return bytes.Compare(b.view.ID[:], a.view.ID[:]) })
	for _, t := range list {
		v := t.view
		if cursor != nil && bytes.Compare(v.ID[:], cursor[len(cursor)-16:]) >= 0 {
			continue
		}
		if p.Rows == cmp.Or(f.rows, fakeScan) || len(p.Tasks) == limit {
			return p, f.stamp(shard), nil
		}
		p.Rows++
		p.Next = apiproto.PlaceOf(v, fanout.ListsDead(filter))
		if (filter.Queue == "" || filter.Queue == v.Queue) && (filter.Type == "" || filter.Type == v.Type) &&
			(len(filter.States) == 0 || slices.Contains(filter.States, v.Exec.State)) {
			p.Tasks = append(p.Tasks, v)
		}
	}
	p.Next = nil
	return p, f.stamp(shard), nil
}

// verb changes a task that is in one of the states.
func (f *fake) verb(id task.ID, name string, to task.State, from ...task.State) (*broker.View, broker.Stamp, error) {
	if err := f.begin(id.Shard()); err != nil {
		return nil, broker.Stamp{}, err
	}
	defer f.mu.Unlock()
	t := f.tasks[id]
	if t == nil {
		return nil, f.stamp(id.Shard()), task.NotFound("task", id.String())
	}
	if !slices.Contains(from, t.view.Exec.State) {
		return nil, f.stamp(id.Shard()), task.WrongState(name, id, t.view.Exec.State)
	}
	if t.view.Exec.State == task.Claimed {
		f.lose(id, task.StaleCancelled)
	}
	x := *t.view.Exec
	x.State = to
	if to.Ended() {
		x.EndedAt = f.now()
	}
	t.view.Exec = &x
	f.notify()
	v := *t.view
	return &v, f.stamp(id.Shard()), nil
}

// lose notifies watches that a claim ended without its holder's doing.
func (f *fake) lose(id task.ID, reason string) {
	v := f.tasks[id].view
	for w := range f.watches {
		w.notify(broker.Lost{ID: id, Token: tokenOf(v), Reason: reason})
	}
}

func (f *fake) Leader(context.Context, uint32) (node, term, index uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leader, 3, f.index
}

// LeaderElsewhere answers for the gateway of node 1.
func (f *fake) LeaderElsewhere(uint32) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leader == 1 {
		return 0
	}
	return f.leader
}

func (f *fake) Draining() <-chan struct{} { return f.draining }

// fakeWatch is a watch of claims.
type fakeWatch struct {
	f    *fake
	lost func(broker.Lost)
	held map[task.ID]task.Token // guarded by fake.mu
}

func (f *fake) WatchClaims(lost func(broker.Lost)) ClaimWatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &fakeWatch{f: f, lost: lost, held: map[task.ID]task.Token{}}
	f.watches[w] = true
	return w
}

func (w *fakeWatch) Add(h broker.Hold) { w.f.set(func() { w.held[h.ID] = h.Token }) }
func (w *fakeWatch) Remove(id task.ID, t task.Token) {
	w.f.set(func() {
		if w.held[id] == t {
			delete(w.held, id)
		}
	})
}
func (w *fakeWatch) Close() { w.f.set(func() { delete(w.f.watches, w) }) }

func (w *fakeWatch) notify(l broker.Lost) {
	if w.held[l.ID] == l.Token {
		w.lost(l)
	}
}
