package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fleet is a number of nodes, each with a router over a fake broker, and shards whose state they share, in place of Raft. Its fields make
// the network and the leaders misbehave.
type fleet struct {
	t     *testing.T
	nodes map[uint32]*member

	mu      sync.Mutex
	shards  map[uint32]*fakeShard
	queues  map[string]queues.Queue // of the system shard
	leader0 uint32                  // of the system shard
	groups  map[uint32]task.ID      // one in each shard, if any
	ensured []uint32                // shards for which EnsureQueue was called
	frames  int                     // sent over streams to nodes that watch claims
	away    []string                // nodes that the system shard has not heard from for a while
	calls   map[string]int          // by method, over the network
	// network decides the fate of a message; nil: it arrives.
	network func(from, to uint32, method string) fate
	streams map[*fakeStream]bool
	onClaim func() // if set, called when a claim gets something
}

type fate int

const (
	arrives    fate = iota
	notSent         // certainly did not arrive
	answerLost      // it runs there, and the answer is lost
	hangs           // nothing comes back until the caller gives up; meanwhile it runs there
)

// latency is how long a message takes.
const latency = time.Millisecond

var errNotSent = errors.New("not sent")

type fakeShard struct {
	id       uint32
	replicas []uint32
	leader   uint32
	term     uint64
	shy      bool              // replicas do not know who leads
	hints    map[uint32]uint32 // or believe that it is this node
	tasks    map[task.ID]*fakeTask
	byKey    map[string][]task.ID // claim key
	changed  chan struct{}        // closed at each change
	awaits   int                  // calls of Await in progress
	ready    int
	made     int
}

type fakeTask struct {
	state    task.State
	fence    uint64
	released int
	repeated bool
	outcome  string // reason of the claim's end
}

// member is a node.
type member struct {
	f      *fleet
	number uint32
	*Router
	drain chan struct{}

	mu        sync.Mutex
	watches   map[*fakeWatch]bool
	copy      map[string]queues.Queue // its copy of the queues
	archive   []broker.ArchivedTask
	counts    []broker.QueueCount
	enqueueIn map[string]uint32 // queues that turn out to be elsewhere
	age       time.Duration
	level     int // of the cluster, as far as it knows
}

// pass lets fake time pass, in the bubble that inFleet opens.
func pass(d time.Duration) { time.Sleep(d) }

// patience ends a test that waits for something that never happens. Without it such a test would run for good: in fake time, retries never
// stop.
func patience() *time.Timer {
	return time.AfterFunc(24*time.Hour, func() {
		debug.SetTraceback("all")
		panic("the test has waited for a day of fake time; the stacks below say for what")
	})
}

// inFleet runs a test on n nodes with one data shard, led by node 1, of which all have a replica.
func inFleet(t *testing.T, n int, test func(f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		defer patience().Stop()
		f := &fleet{t: t, nodes: map[uint32]*member{}, shards: map[uint32]*fakeShard{}, queues: map[string]queues.Queue{}, leader0: 1,
			calls: map[string]int{}, streams: map[*fakeStream]bool{}}
		var all []uint32
		for i := range n {
			all = append(all, uint32(i+1))
		}
		f.shard(1, all...)
		for _, number := range all {
			m := &member{f: f, number: number, drain: make(chan struct{}), watches: map[*fakeWatch]bool{}, copy: map[string]queues.Queue{}, enqueueIn: map[string]uint32{}, level: cluster.PoliciesLevel}
			m.Router = New(Config{Node: number, Broker: fakeBroker{m: m}, Control: fakeControl{m: m}, Map: fakeMap{m}, Registry: registry.New(), Peers: fakePeers{m},
				NotSent: func(err error) bool { return errors.Is(err, errNotSent) }, SystemLeader: func() uint32 { return 0 }})
			f.nodes[number] = m
		}
		test(f)
		for _, m := range f.nodes {
			m.Close()
		}
		f.with(func() {
			for s := range f.streams {
				s.cancel()
			}
		})
	})
}

func (f *fleet) shard(id uint32, replicas ...uint32) *fakeShard {
	s := &fakeShard{id: id, replicas: replicas, leader: replicas[0], term: 1, tasks: map[task.ID]*fakeTask{}, byKey: map[string][]task.ID{}, changed: make(chan struct{})}
	f.shards[id] = s
	return s
}

func (f *fleet) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// lead makes a node the leader of a shard; 0: none.
func (f *fleet) lead(id, node uint32) {
	f.with(func() {
		s := f.shards[id]
		s.leader = node
		s.term++
		s.tell()
	})
}

func (s *fakeShard) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (f *fleet) count(method string) (n int) {
	f.with(func() { n = f.calls[method] })
	return n
}

// fakeBroker is a node's broker. The tests do not use the methods that it lacks.
type fakeBroker struct {
	Broker
	m *member
}

// begin takes the fleet's lock, if the node leads the shard.
func (b fakeBroker) begin(ctx context.Context, id uint32) (*fakeShard, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	b.m.f.mu.Lock()
	s := b.m.f.shards[id]
	if s == nil || s.leader != b.m.number {
		defer b.m.f.mu.Unlock()
		e := &broker.NotLeader{Shard: id}
		if s != nil && !s.shy && slices.Contains(s.replicas, b.m.number) {
			e.Node = s.leader
			if hint := s.hints[b.m.number]; hint != 0 {
				e.Node = hint
			}
		}
		return nil, e
	}
	return s, nil
}

func (s *fakeShard) stamp() broker.Stamp {
	return broker.Stamp{Shard: s.id, Index: uint64(s.made) + 1, Term: s.term}
}

func (b fakeBroker) Leader(id uint32) (node, term, index uint64) {
	b.m.f.mu.Lock()
	defer b.m.f.mu.Unlock()
	s := b.m.f.shards[id]
	if s == nil || !slices.Contains(s.replicas, b.m.number) || s.shy && s.leader != b.m.number {
		return 0, 0, 0
	}
	if old := s.hints[b.m.number]; old != 0 {
		return uint64(old), 0, 1
	}
	return uint64(s.leader), s.term, 1
}

func (b fakeBroker) Draining() <-chan struct{} { return b.m.drain }

func (b fakeBroker) Enqueue(ctx context.Context, id uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	for _, spec := range specs { // as broker.EnsureQueue would say
		b.m.mu.Lock()
		to, elsewhere := b.m.enqueueIn[spec.Queue]
		b.m.mu.Unlock()
		if elsewhere && to == 0 {
			to = 3 - id // always the other one
		}
		if elsewhere && to != id {
			return nil, broker.Stamp{}, &moved{Namespace: ns, Name: spec.Queue, Shard: to, Config: task.QueueConfig{Version: 9}}
		}
	}
	s, err := b.begin(ctx, id)
	if err != nil {
		return nil, broker.Stamp{}, err
	}
	defer b.m.f.mu.Unlock()
	out := make([]broker.Enqueued, len(specs))
	for i := range specs {
		if specs[i].Type == "bad" {
			out[i].Err = task.Invalid("type", "is bad")
			continue
		}
		out[i].ID, out[i].State = s.add(), task.Ready
	}
	s.tell()
	return out, s.stamp(), nil
}

func (s *fakeShard) add() task.ID {
	s.made++
	s.ready++
	id := task.NewID(s.id, 1, uint64(s.made))
	s.tasks[id] = &fakeTask{state: task.Ready}
	return id
}

func (s *fakeShard) inOrder() []task.ID {
	return slices.SortedFunc(maps.Keys(s.tasks), func(a, b task.ID) int { return slices.Compare(a[8:], b[8:]) })
}

func (s *fakeShard) claimed(ns string, id task.ID) broker.Claimed {
	return broker.Claimed{Envelope: &schema.Envelope{ID: id, Namespace: ns}, Token: s.token(id)}
}

func (s *fakeShard) token(id task.ID) task.Token {
	return task.Token{Epoch: 1, Fence: s.tasks[id].fence, Nonce: 7}
}

func (b fakeBroker) Claim(ctx context.Context, id uint32, c broker.ClaimCall, wait time.Duration) (got []broker.Claimed, at broker.Stamp, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		s, err := b.begin(ctx, id)
		if err != nil {
			return nil, at, err
		}
		at, got = s.stamp(), s.claim(c)
		changed := s.changed
		b.m.f.mu.Unlock()
		if len(got) > 0 && b.m.f.onClaim != nil {
			b.m.f.onClaim()
		}
		if len(got) > 0 || wait == 0 {
			return got, at, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, at, nil
		case <-b.m.drain:
			return nil, at, nil
		case <-ctx.Done():
			return nil, at, ctx.Err()
		}
	}
}

func (s *fakeShard) claim(c broker.ClaimCall) (got []broker.Claimed) {
	for _, id := range s.byKey[c.ClaimKey] {
		if t := s.tasks[id]; c.ClaimKey != "" && t.state == task.Claimed {
			t.repeated = true
			got = append(got, s.claimed(c.Namespace, id))
		}
	}
	if len(got) > 0 || len(c.Queues) == 0 || s.ready == 0 {
		return got
	}
	for _, id := range s.inOrder() {
		if t := s.tasks[id]; t.state == task.Ready && len(got) < c.Max {
			s.ready--
			t.state, t.repeated = task.Claimed, false
			t.fence++
			got = append(got, s.claimed(c.Namespace, id))
			if c.ClaimKey != "" {
				s.byKey[c.ClaimKey] = append(s.byKey[c.ClaimKey], id)
			}
		}
	}
	return got
}

func (b fakeBroker) Await(ctx context.Context, id uint32, c broker.ClaimCall) error {
	for {
		s, err := b.begin(ctx, id)
		if err != nil {
			return err
		}
		ready, changed := s.ready > 0, s.changed
		s.awaits++
		b.m.f.mu.Unlock()
		if !ready {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
		b.m.f.with(func() { s.awaits-- })
		if ready || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (b fakeBroker) Settle(ctx context.Context, id uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error) {
	s, err := b.begin(ctx, id)
	if err != nil {
		return nil, broker.Stamp{}, err
	}
	defer b.m.f.mu.Unlock()
	out := make([]broker.Settled, len(calls))
	for i, c := range calls {
		t := s.tasks[c.Hold.ID]
		switch {
		case t == nil:
			out[i].Err = task.NotFound("task", c.Hold.ID.String())
		case t.state != task.Claimed || t.fence != c.Hold.Token.Fence:
			out[i].Err = &task.Error{Code: task.CodeStaleClaim, Reason: task.StaleExpired}
		case c.Verb == broker.GiveBack && t.repeated:
			out[i].Err = &task.Error{Code: task.CodeWrongState}
		case c.Verb == broker.Ack:
			t.state, t.outcome = task.Succeeded, task.StaleCompleted
		default:
			t.state, t.outcome = task.Ready, task.StaleCompleted
			t.released++
			s.ready++
		}
		out[i].State = task.Ready
		if t != nil {
			out[i].State = t.state
		}
	}
	s.tell()
	return out, s.stamp(), nil
}

// show returns a task as a view.
func (s *fakeShard) show(id task.ID) (*broker.View, error) {
	t := s.tasks[id]
	if t == nil {
		return nil, task.NotFound("task", id.String())
	}
	return &broker.View{Envelope: &schema.Envelope{ID: id}, Exec: &schema.Exec{State: t.state, Fence: t.fence}}, nil
}

func (b fakeBroker) Task(ctx context.Context, _ string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		s, err := b.begin(ctx, id.Shard())
		if err != nil {
			return nil, broker.Stamp{}, err
		}
		v, err := s.show(id)
		changed, at := s.changed, s.stamp()
		b.m.f.mu.Unlock()
		if err != nil || v.Exec.State.Ended() || wait == 0 {
			return v, at, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return v, at, nil
		case <-b.m.drain:
			return v, at, nil
		case <-ctx.Done():
			return nil, at, ctx.Err()
		}
	}
}

func (b fakeBroker) Peek(_ context.Context, _ string, id task.ID) (*broker.View, broker.Stamp, time.Duration, error) {
	b.m.f.mu.Lock()
	defer b.m.f.mu.Unlock()
	s := b.m.f.shards[id.Shard()]
	if s == nil || !slices.Contains(s.replicas, b.m.number) {
		return nil, broker.Stamp{}, 0, &broker.NotLeader{Shard: id.Shard()}
	}
	v, err := s.show(id)
	return v, s.stamp(), time.Second, err
}

// Do answers the verbs that the tests use.
func (b fakeBroker) Do(ctx context.Context, c verb.Call) error {
	on := verbtest.Answers{}
	verbtest.On(on, broker.OperateTask, func(ctx context.Context, q *broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
		if q.Verb == broker.Retry {
			return out, &moved{Name: "q", Shard: 2}
		}
		out.View, out.At, err = b.cancel(ctx, q.ID)
		return out, err
	})
	verbtest.On(on, broker.CloseBreakers, func(ctx context.Context, q *broker.BreakersOf) (out broker.BreakersClosed, err error) {
		s, err := b.begin(ctx, q.Shard)
		if err != nil {
			return out, err
		}
		defer b.m.f.mu.Unlock()
		out.Closed, out.At = 1, s.stamp()
		return out, nil
	})
	verbtest.On(on, broker.PurgeQueue, func(context.Context, *broker.QueueCommand) (broker.BulkDone, error) { panic("planted") })
	verbtest.On(on, broker.CopyQueues, func(ctx context.Context, q *broker.QueueCopies) (broker.Nothing, error) {
		s, err := b.begin(ctx, q.Shard)
		if err == nil {
			s.made += len(q.Configs)
			b.m.f.mu.Unlock()
		}
		return broker.Nothing{}, err
	})
	verbtest.On(on, broker.ListGroups, func(ctx context.Context, q *broker.GroupList) (out broker.Paged[broker.GroupPage], err error) {
		s, err := b.begin(ctx, q.Shard)
		if err != nil {
			return out, err
		}
		defer b.m.f.mu.Unlock()
		out.Page.Groups, out.At = []*broker.GroupView{{ID: b.m.f.groups[q.Shard]}}, s.stamp()
		return out, nil
	})
	verbtest.On(on, broker.ListOperations, func(ctx context.Context, q *broker.OperationList) (out broker.Paged[broker.OperationPage], err error) {
		s, err := b.begin(ctx, q.Shard)
		if err == nil {
			out.At = s.stamp()
			b.m.f.mu.Unlock()
		}
		return out, err
	})
	verbtest.On(on, broker.ExplainTask, b.explain)
	verbtest.On(on, broker.ExplainQueue, b.explainQueue)
	return on.Do(ctx, c)
}

// cancel cancels a task without an author.
func cancel(ctx context.Context, by verb.Runner, id task.ID) error {
	_, err := broker.OperateTask.Call(ctx, by, broker.TaskCommand{Verb: broker.Cancel, OnTask: broker.OnTask{Namespace: ns, ID: id}})
	return err
}

func (b fakeBroker) cancel(ctx context.Context, id task.ID) (*broker.View, broker.Stamp, error) {
	s, err := b.begin(ctx, id.Shard())
	if err != nil {
		return nil, broker.Stamp{}, err
	}
	defer b.m.f.mu.Unlock()
	t := s.tasks[id]
	if t == nil {
		return nil, s.stamp(), task.NotFound("task", id.String())
	}
	lost := t.state == task.Claimed
	t.state, t.outcome = task.Cancelled, task.StaleCancelled
	s.tell()
	if lost {
		b.m.lost(broker.Lost{ID: id, Token: s.token(id), Reason: task.StaleCancelled})
	}
	v, err := s.show(id)
	return v, s.stamp(), err
}

func (b fakeBroker) Archived(_, queue, cursor string, limit int) (tasks []broker.ArchivedTask, places []string, next string, err error) {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	for i, t := range b.m.archive {
		place := fmt.Sprintf("dead.jsonl:%03d", i)
		if place <= cursor {
			continue
		}
		tasks, places = append(tasks, t), append(places, place)
		if len(tasks) == limit {
			return tasks, places, place, nil
		}
	}
	return tasks, places, "", nil
}

func (b fakeBroker) QueueCounts(context.Context, broker.CountsQuery, time.Duration) ([]broker.QueueCount, error) {
	return b.m.counts, nil
}

func (b fakeBroker) NamespaceStatus(context.Context, string, time.Duration) (broker.NamespaceStatus, error) {
	return broker.NamespaceStatus{Ready: int64(b.m.number)}, nil
}

func (b fakeBroker) ArchivedAt(place string) (*broker.ArchivedTask, error) {
	var i int
	if _, err := fmt.Sscanf(place, "dead.jsonl:%d", &i); err != nil || i >= len(b.m.archive) {
		return nil, task.NotFound("archived task", place)
	}
	return &b.m.archive[i], nil
}

// fakeWatch is a watch of claims that keeps the contract of package broker.
type fakeWatch struct {
	m     *member
	lost  func(broker.Lost)
	moved func([]broker.Hold)
	stop  context.CancelFunc
	mu    sync.Mutex
	held  map[task.ID]broker.Hold
}

func (b fakeBroker) WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) LocalWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := &fakeWatch{m: b.m, lost: lost, moved: moved, stop: stop, held: map[task.ID]broker.Hold{}}
	b.m.mu.Lock()
	b.m.watches[w] = true
	b.m.mu.Unlock()
	go func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.look(b)
			case <-ctx.Done():
				return
			}
		}
	}()
	return w
}

func (w *fakeWatch) look(b fakeBroker) {
	w.mu.Lock()
	held := maps.Clone(w.held)
	w.mu.Unlock()
	var moved []broker.Hold
	for id, h := range held {
		s, err := b.begin(context.Background(), id.Shard())
		if err != nil {
			if w.take(h) {
				moved = append(moved, h)
			}
			continue
		}
		t := *s.tasks[id]
		b.m.f.mu.Unlock()
		if (t.state != task.Claimed || t.fence != h.Token.Fence) && w.take(h) {
			w.lost(broker.Lost{ID: id, Token: h.Token, Reason: t.outcome})
		}
	}
	if len(moved) > 0 {
		w.moved(moved)
	}
}

func (w *fakeWatch) take(h broker.Hold) bool { return w.Remove(h.ID, h.Token) }

func (w *fakeWatch) Add(h broker.Hold) bool {
	node, _, _ := fakeBroker{m: w.m}.Leader(h.ID.Shard())
	if uint32(node) != w.m.number {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[h.ID] = h
	return true
}

func (w *fakeWatch) Remove(id task.ID, t task.Token) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[id].Token != t {
		return false
	}
	delete(w.held, id)
	return true
}

func (w *fakeWatch) Close() {
	w.stop()
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	delete(w.m.watches, w)
}

func (w *fakeWatch) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// lost notifies the watches of a node.
func (m *member) lost(l broker.Lost) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watches {
		if w.Remove(l.ID, l.Token) {
			w.lost(l)
		}
	}
}

// watched returns how many claims the watches of a node hold.
func (m *member) watched() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watches {
		n += w.size()
	}
	return n
}
