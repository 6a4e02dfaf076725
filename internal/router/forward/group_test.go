package forward_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// group is a number of nodes that have a forwarder and nothing else: what their brokers answer, and what becomes of a message, is up to the
// test. A message takes no time, so tests can compare times exactly.
type group struct {
	nodes map[uint32]*peer

	mu      sync.Mutex
	names   []forward.Node
	sent    []string // "call>node" for each message
	ran     []string // "call@node" for each run of a job
	network func(ctx context.Context, to uint32, deliver func() ([]byte, error)) ([]byte, error)
	most    int // messages, after which the test ends: a search that does not pause would never end in fake time
}

// peer is a node. The fields without a comment are those of the interfaces that it implements.
type peer struct {
	*forward.Forwarder
	g      *group
	number uint32
	once   caller // must not be repeated
	safe   caller // may be
	parts  *verb.Parts
	drain  chan struct{}

	// These are guarded by the group's lock.
	leads    map[uint32]uint32 // by shard, who leads as this node's replica knows
	system   uint32            // and who leads the system shard
	shards   []uint32
	replicas map[uint32][]uint32
	age      time.Duration
	noMap    bool
	slow     time.Duration // what it takes to ask this node's replica
	learned  []queues.Queue
	verbs    verbtest.Answers
	control  verbtest.Answers
	run      func(ctx context.Context, j job) (string, error) // runs a job; nil: the leader runs it, and others say who that is
	hasShard func(id uint32) (bool, error)
	home     func(ctx context.Context, ns, name string) (schedules.Home, error)
}

// job is the request of the verbs that the tests call.
type job struct {
	Shard uint32
	Wait  time.Duration
}

func (j *job) TargetShard() uint32   { return j.Shard }
func (j *job) Waits() *time.Duration { return &j.Wait }

var (
	errNotSent = errors.New("dial: refused")
	errLost    = errors.New("read: connection reset")
	one        = job{Shard: 1}
)

// inGroup runs a test on n nodes with replicas of the data shard 1, whose leader no node knows yet.
func inGroup(t *testing.T, n int, test func(g *group)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		guard := time.AfterFunc(24*time.Hour, func() { panic("the test has waited for a day of fake time") })
		defer guard.Stop()
		g := &group{nodes: map[uint32]*peer{}, most: 5000}
		var all []uint32
		for i := range n {
			all = append(all, uint32(i+1))
			g.names = append(g.names, forward.Node{Number: uint32(i + 1), Name: fmt.Sprint("n", i+1)})
		}
		for _, number := range all {
			g.nodes[number] = newPeer(g, number, all)
		}
		test(g)
		for _, p := range g.nodes {
			p.Close()
		}
	})
}

func newPeer(g *group, number uint32, all []uint32) *peer {
	p := &peer{g: g, number: number, drain: make(chan struct{}), leads: map[uint32]uint32{}, shards: []uint32{1},
		replicas: map[uint32][]uint32{forward.SystemShard: all, 1: all}, verbs: verbtest.Answers{}, control: verbtest.Answers{}}
	verbtest.On(p.control, cluster.HasShard, func(_ context.Context, id uint32) (bool, error) { return p.hasShard(id) })
	verbtest.On(p.control, schedules.Find, func(ctx context.Context, q schedules.Place) (schedules.Home, error) {
		return p.home(ctx, q.Namespace, q.Name)
	})
	p.parts = &verb.Parts{}
	broker.Verbs.ServeBy(p.verbs, p.parts)
	cluster.ServeBy(p.control, p.parts)
	jobs.Serve(p, p.parts)
	p.Forwarder = forward.New(forward.Config{Node: number, Parts: p.parts, Broker: peerBroker{p}, Map: peerMap{p}, Peers: peerNetwork{p},
		NotSent: func(err error) bool { return errors.Is(err, errNotSent) }, SystemLeader: func() uint32 {
			return locked(g, func() uint32 { return p.system })
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	p.once, p.safe = caller{p: p, verb: once}, caller{p: p, verb: safe}
	return p
}

// runJob runs a job on a node.
func (p *peer) runJob(ctx context.Context, name string, j job) (string, error) {
	p.g.mu.Lock()
	p.g.ran = append(p.g.ran, fmt.Sprintf("%s@%d", name, p.number))
	run, leader := p.run, p.leads[j.Shard]
	p.g.mu.Unlock()
	if run != nil {
		return run(ctx, j)
	}
	if leader != p.number {
		return "", &broker.NotLeader{Shard: j.Shard, Node: leader}
	}
	return fmt.Sprint("done by ", p.number), nil
}

// jobs are the verbs that the tests call, one for each place where a verb may run.
var jobs verb.Table[*peer]

var (
	once = verb.New(&jobs, verb.Rule{Name: "once"}, func(p *peer, ctx context.Context, j job) (string, error) {
		return p.runJob(ctx, "once", j)
	})
	safe = verb.New(&jobs, verb.Rule{Name: "safe", Idempotent: true}, func(p *peer, ctx context.Context, j job) (string, error) {
		return p.runJob(ctx, "safe", j)
	})
	safeAt = verb.New(&jobs, verb.Rule{Name: "safe-at", Where: verb.Node, Idempotent: true},
		func(p *peer, ctx context.Context, j jobAt) (string, error) { return p.runJob(ctx, "safe", j.Job) })
	safeEach = verb.NewSum(&jobs, verb.Rule{Name: "safe-each", Patience: 3 * time.Second},
		func(p *peer, ctx context.Context, j job) ([]string, error) {
			did, err := p.runJob(ctx, "safe", j)
			return []string{did}, err
		}, verb.Concat)
	safeAny = verb.New(&jobs, verb.Rule{Name: "safe-any", Where: verb.Replica, Idempotent: true},
		func(p *peer, ctx context.Context, j job) (string, error) { return p.runJob(ctx, "safe", j) })
)

// jobAt is a job for a node.
type jobAt struct {
	verb.AtNode
	Job job
}

func at(n forward.Node) jobAt { return jobAt{verb.AtNode{Node: n.Number}, one} }

// caller calls a verb of jobs by way of a node.
type caller struct {
	p        *peer
	verb     *verb.Verb[job, string]
	patience time.Duration // 0: that of the verb
}

func (c caller) WithPatience(d time.Duration) caller {
	c.patience = d
	return c
}

func (c caller) Call(ctx context.Context, j job) (string, error) {
	switch {
	case c.patience > 0:
		return forward.CallRemote(ctx, c.p.Forwarder, c.verb, c.patience, j)
	case j.Wait == 0:
		return forward.Call(ctx, c.p.Forwarder, c.verb, j.Shard, j)
	}
	return c.verb.Call(ctx, c.p, j)
}

func locked[T any](g *group, get func() T) T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return get()
}

// with changes the group while nothing else does.
func (g *group) with(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// lead makes all nodes know a shard's leader; 0: none.
func (g *group) lead(shard, node uint32) {
	g.with(func() {
		for _, p := range g.nodes {
			p.leads[shard] = node
		}
	})
}

// knows makes one node believe that another leads shard 1.
func (g *group) knows(node, leader uint32) { g.with(func() { g.nodes[node].leads[1] = leader }) }

// runs has a node answer jobs.
func (g *group) runs(node uint32, run func(ctx context.Context, j job) (string, error)) {
	g.with(func() { g.nodes[node].run = run })
}

// fails has a node answer jobs with an error.
func (g *group) fails(node uint32, err error) {
	g.runs(node, func(context.Context, job) (string, error) { return "", err })
}

// messages returns the messages since it was last called, and runs returns where jobs ran.
func (g *group) messages() string {
	return locked(g, func() string { defer func() { g.sent = nil }(); return strings.Join(g.sent, " ") })
}

func (g *group) jobs() string {
	return locked(g, func() string { defer func() { g.ran = nil }(); return strings.Join(g.ran, " ") })
}

// refuse returns a network on which a message to some nodes fails.
func refuse(err error, nodes ...uint32) func(context.Context, uint32, func() ([]byte, error)) ([]byte, error) {
	return func(_ context.Context, to uint32, deliver func() ([]byte, error)) ([]byte, error) {
		if slices.Contains(nodes, to) {
			return nil, err
		}
		return deliver()
	}
}

// hang is a network on which messages to a node arrive nowhere, and nobody is told.
func hang(node uint32) func(context.Context, uint32, func() ([]byte, error)) ([]byte, error) {
	return func(ctx context.Context, to uint32, deliver func() ([]byte, error)) ([]byte, error) {
		if to == node {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return deliver()
	}
}

type peerNetwork struct{ p *peer }

func (n peerNetwork) Call(ctx context.Context, to uint32, method string, request []byte) ([]byte, error) {
	g := n.p.g
	g.mu.Lock()
	g.sent = append(g.sent, fmt.Sprintf("%s>%d", method, to))
	if g.most--; g.most < 0 || to == n.p.number {
		panic(fmt.Sprintf("node %d sends too much, or to itself: %v", n.p.number, g.sent[max(0, len(g.sent)-20):]))
	}
	there, network := g.nodes[to], g.network
	g.mu.Unlock()
	deliver := func() ([]byte, error) {
		if there == nil {
			return nil, errNotSent
		}
		plain, cancel := context.WithCancel(context.Background()) // what a context holds does not cross a network
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return there.Serve(plain, method, request)
	}
	if network != nil {
		return network(ctx, to, deliver)
	}
	return deliver()
}

type peerBroker struct{ p *peer }

func (b peerBroker) Draining() <-chan struct{} { return b.p.drain }

func (b peerBroker) Leader(shard uint32) (node, term, index uint64) {
	time.Sleep(b.p.slow)
	node = locked(b.p.g, func() uint64 { return uint64(b.p.leads[shard]) })
	if node == 0 {
		return 0, 0, 0
	}
	return node, 7, 100 + uint64(b.p.number)
}

type peerMap struct{ p *peer }

func (m peerMap) Replicas(shard uint32) []uint32 {
	return locked(m.p.g, func() []uint32 { return m.p.replicas[shard] })
}

func (m peerMap) Shards() []uint32 { return locked(m.p.g, func() []uint32 { return m.p.shards }) }

func (m peerMap) Nodes() []forward.Node {
	return locked(m.p.g, func() []forward.Node {
		if m.p.noMap {
			return nil
		}
		return m.p.g.names
	})
}

func (m peerMap) Learned(q queues.Queue) {
	m.p.g.with(func() { m.p.learned = append(m.p.learned, q) })
}

func (m peerMap) Age() time.Duration { return m.p.age }

// same compares what happened with what should have.
func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// text returns an error's message; "": none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// refusedWith checks that an error refuses a call for a reason, and says something.
func refusedWith(t *testing.T, what string, err, want error, says ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

var bg = context.Background()
