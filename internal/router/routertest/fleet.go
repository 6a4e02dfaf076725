package routertest

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// Fleet is a number of nodes, each with a router over a fake broker, and shards whose state they share, in place of Raft. Its fields make
// the network and the leaders misbehave.
type Fleet struct {
	t     *testing.T
	Nodes map[uint32]*Member

	mu           sync.Mutex
	Shards       map[uint32]*Shard
	Queues       map[string]queues.Queue // of the system shard
	SystemLeader uint32                  // 0: none
	Groups       map[uint32]task.ID      // one in each shard, if any
	Ensured      []uint32                // shards for which EnsureQueue was called
	Frames       int                     // sent over streams to nodes that watch claims
	Away         []string                // nodes that the system shard has not heard from for a while
	calls        map[string]int          // by method, over the network
	// Network decides what happens to a message; nil: it arrives.
	Network func(from, to uint32, method string) Delivery
	Streams map[*FakeStream]bool
	OnClaim func() // if set, called when a claim gets something
}

// Delivery is what happens to a message.
type Delivery int

// The ways of delivery.
const (
	Arrives    Delivery = iota
	NotSent             // certainly did not arrive
	AnswerLost          // it runs there, and the response is lost
	Hangs               // nothing comes back until the caller gives up; meanwhile it runs there
)

// Latency is how long a message takes.
const Latency = time.Millisecond

var errNotSent = errors.New("not sent")

// Shard is a shard, whichever nodes have replicas of it.
type Shard struct {
	id       uint32
	Replicas []uint32
	Leader   uint32
	term     uint64
	Shy      bool              // replicas do not know who leads
	Hints    map[uint32]uint32 // or believe that this node leads
	Tasks    map[task.ID]*Task
	byKey    map[string][]task.ID // claim key
	changed  chan struct{}        // closed at each change
	Awaits   int                  // calls of Await in progress
	Ready    int
	made     int
}

// Task is a task of a shard.
type Task struct {
	State    task.State
	Fence    uint64
	Released int
	repeated bool
	Outcome  string // reason of the claim's end
}

// Member is a node.
type Member struct {
	*router.Router
	Parts  *verb.Parts
	Fleet  *Fleet
	Number uint32
	Drain  chan struct{}

	Registry *registry.Registry
	Recorder *stats.Recorder
	peers    struct{ router.Peers }

	// Broker and Control answer the verbs of the node's broker and of the system shard. A test may replace answers before the first call.
	Broker, Control verbtest.Answers

	mu           sync.Mutex
	watches      map[*fakeWatch]bool
	Copy         map[string]queues.Queue // its copy of the queues
	Totals       []broker.QueueCount
	Led          map[uint32]uint64 // shards that the member believes to lead, and in which terms: older ones than those of the leaders
	EnqueueIn    map[string]uint32 // queues that turn out to be elsewhere
	MapAge       time.Duration
	SystemLeader uint32 // as far as it knows; 0: it knows none
}

// UsePeers replaces the node's connections to the other nodes.
func (m *Member) UsePeers(p router.Peers) { m.peers.Peers = p }

// Pass lets fake time pass, in the bubble that a test runs in.
func Pass(d time.Duration) { time.Sleep(d) }

// Sleep lets fake time pass for a call that takes its time, unless the caller leaves first: then it returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// patience ends a test that waits for something that never happens. Without it, such a test would run forever, because retries never
// stop in fake time.
func patience() *time.Timer {
	return time.AfterFunc(24*time.Hour, func() {
		debug.SetTraceback("all")
		panic("the test has waited for a day of fake time; the stacks below say for what")
	})
}

// InFleet runs a test in fake time, on n nodes with one data shard, led by node 1, of which all have a replica.
func InFleet(t *testing.T, n int, test func(f *Fleet)) {
	synctest.Test(t, func(t *testing.T) {
		defer patience().Stop()
		f := &Fleet{t: t, Nodes: map[uint32]*Member{}, Shards: map[uint32]*Shard{}, Queues: map[string]queues.Queue{}, SystemLeader: 1,
			calls: map[string]int{}, Streams: map[*FakeStream]bool{}}
		var all []uint32
		for i := range n {
			all = append(all, uint32(i+1))
		}
		f.AddShard(1, all...)
		for _, number := range all {
			f.Nodes[number] = newMember(f, number)
		}
		synctest.Wait() // until their goroutines have taken what a test may replace
		test(f)
		for _, m := range f.Nodes {
			m.Close()
		}
		f.With(func() {
			for s := range f.Streams {
				s.cancel()
			}
		})
	})
}

func newMember(f *Fleet, number uint32) *Member {
	m := &Member{Fleet: f, Number: number, Drain: make(chan struct{}), Registry: registry.New(), Recorder: stats.New(time.Now()),
		watches: map[*fakeWatch]bool{}, Copy: map[string]queues.Queue{}, EnqueueIn: map[string]uint32{}}
	m.Broker, m.Control = FakeBroker{m}.answers(), FakeControl{m}.answers()
	m.UsePeers(FakePeers{m})
	m.Parts = &verb.Parts{}
	router.ServeBy(m.Broker, m.Parts)
	cluster.ServeBy(m.Control, m.Parts)
	m.Router = router.New(router.Config{Node: number, Parts: m.Parts, Broker: FakeBroker{m}, Map: FakeMap{m}, Registry: m.Registry,
		Peers: &m.peers, Stats: m.Recorder, NotSent: func(err error) bool { return errors.Is(err, errNotSent) },
		SystemLeader: func() uint32 { return m.SystemLeader }})
	return m
}

// AddShard adds a shard. Its first replica leads.
func (f *Fleet) AddShard(id uint32, replicas ...uint32) *Shard {
	s := &Shard{id: id, Replicas: replicas, Leader: replicas[0], term: 1, Tasks: map[task.ID]*Task{}, byKey: map[string][]task.ID{},
		changed: make(chan struct{})}
	f.Shards[id] = s
	return s
}

// With changes the fleet while nothing else does.
func (f *Fleet) With(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Lead makes a node the leader of a shard; 0: none.
func (f *Fleet) Lead(id, node uint32) {
	f.With(func() {
		s := f.Shards[id]
		s.Leader = node
		s.term++
		s.Tell()
	})
}

// Tell wakes everything that waits for a change of the shard.
func (s *Shard) Tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Count returns how many calls of a method went over the network.
func (f *Fleet) Count(method string) (n int) {
	f.With(func() { n = f.calls[method] })
	return n
}

// lost notifies the watches of a node.
func (m *Member) lost(l broker.Lost) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watches {
		if w.Remove(l.ID, l.Token) {
			w.lost(l)
		}
	}
}

// Watched returns how many claims the watches of a node hold.
func (m *Member) Watched() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watches {
		n += w.size()
	}
	return n
}

// Put enqueues tasks by way of a node.
func (m *Member) Put(n int) ([]task.ID, error) {
	specs := make([]task.Spec, n)
	for i := range specs {
		specs[i] = task.Spec{Type: "job", Queue: "q"}
	}
	got, _, err := m.Enqueue(context.Background(), 1, Namespace, specs)
	ids := make([]task.ID, len(got))
	for i := range got {
		ids[i] = got[i].ID
		err = errors.Join(err, got[i].Err)
	}
	return ids, err
}

// Made returns how many tasks were created.
func (f *Fleet) Made() (n int) {
	f.With(func() { n = f.Shards[1].made })
	return n
}

// Put creates tasks in the shard itself.
func (f *Fleet) Put(n int) (ids []task.ID) {
	f.With(func() {
		for range n {
			ids = append(ids, f.Shards[1].Add())
		}
		f.Shards[1].Tell()
	})
	return ids
}

// Cancel cancels a task without an author.
func Cancel(ctx context.Context, by verb.Runner, id task.ID) error {
	_, err := broker.OperateTask.Call(ctx, by, broker.TaskCommand{Verb: broker.Cancel, OnTask: broker.OnTask{Namespace: Namespace, ID: id}})
	return err
}

// QueueCall returns a claim from the queue that Put uses.
func QueueCall(max int) broker.ClaimCall {
	return broker.ClaimCall{Namespace: Namespace, Queues: []broker.Share{{Queue: "q"}}, Max: max, MaxBytes: 1 << 20, Worker: "w"}
}

// Waiting returns how many calls of Await run at the leader.
func (f *Fleet) Waiting() (n int) {
	f.With(func() { n = f.Shards[1].Awaits })
	return n
}

// State returns a copy of a task from its shard.
func (f *Fleet) State(id task.ID) (t Task) {
	f.With(func() { t = *f.Shards[id.Shard()].Tasks[id] })
	return t
}

// Namespace is that of all tasks in the tests.
const Namespace = "default"

// OnOne is a queue in shard 1.
var OnOne = broker.OnQueue{OnShard: broker.OnShard{Shard: 1, Namespace: Namespace}, Queue: "q"}
