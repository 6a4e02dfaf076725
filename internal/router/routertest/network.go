package routertest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// FakeMap is a node's copy of the map.
type FakeMap struct{ M *Member }

func (c FakeMap) Replicas(id uint32) (nodes []uint32) {
	c.M.Fleet.With(func() {
		if s := c.M.Fleet.Shards[id]; s != nil {
			nodes = s.Replicas
		} else if id == forward.SystemShard {
			for n := range c.M.Fleet.Nodes {
				nodes = append(nodes, n)
			}
			slices.Sort(nodes)
		}
	})
	return nodes
}

func (c FakeMap) Shards() (ids []uint32) {
	c.M.Fleet.With(func() {
		for id := range c.M.Fleet.Shards {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids
}

func (c FakeMap) Nodes() (nodes []forward.Node) {
	for n := range uint32(len(c.M.Fleet.Nodes)) {
		nodes = append(nodes, forward.Node{Number: n + 1, Name: "n" + string(rune('1'+n))})
	}
	return nodes
}

func (c FakeMap) Queue(_, name string) (queues.Queue, bool) {
	c.M.mu.Lock()
	defer c.M.mu.Unlock()
	q, ok := c.M.Copy[name]
	return q, ok
}

func (c FakeMap) Learned(q queues.Queue) {
	c.M.mu.Lock()
	defer c.M.mu.Unlock()
	c.M.Copy[q.Name] = q
}

func (c FakeMap) Dropped(_, name string) {
	c.M.mu.Lock()
	defer c.M.mu.Unlock()
	delete(c.M.Copy, name)
}

func (c FakeMap) Age() time.Duration { return c.M.MapAge }

// FakeControl is a system shard with the fleet's queues. It answers only on the node that leads it.
type FakeControl struct {
	Control
	M *Member
}

// Check returns an error if another node leads the system shard.
func (c FakeControl) Check() error {
	if leader := c.M.Fleet.SystemLeader; leader != c.M.Number {
		return &broker.NotLeader{Shard: forward.SystemShard, Node: leader}
	}
	return nil
}

func (c FakeControl) Queue(_ context.Context, _, name string) (q queues.Queue, err error) {
	c.M.Fleet.With(func() {
		var ok bool
		if err = c.Check(); err == nil {
			if q, ok = c.M.Fleet.Queues[name]; !ok {
				err = task.NotFound("queue", name)
			}
		}
	})
	return q, err
}

func (c FakeControl) Place(ctx context.Context, ns, name string) (queues.Queue, error) {
	return c.PutQueue(ctx, auditlog.Action{}, ns, name, func(*task.QueueConfig) error { return nil })
}

func (c FakeControl) Queues(_ context.Context, _ string, of queues.Query) (found []queues.Queue, err error) {
	c.M.Fleet.With(func() {
		err = c.Check()
		for name, q := range c.M.Fleet.Queues {
			if name > of.After {
				found = append(found, q)
			}
		}
	})
	slices.SortFunc(found, func(a, b queues.Queue) int { return strings.Compare(a.Name, b.Name) })
	return found[:min(of.Limit, len(found))], err
}

func (c FakeControl) PutQueue(ctx context.Context, _ auditlog.Action, ns, name string,
	change func(*task.QueueConfig) error) (q queues.Queue, err error) {
	c.M.Fleet.With(func() {
		if err = c.Check(); err != nil {
			return
		}
		var ok bool
		if q, ok = c.M.Fleet.Queues[name]; !ok {
			q = queues.Queue{Namespace: ns, Name: name, Shard: 1, Config: task.QueueConfig{Settings: task.DefaultSettings(),
				CreatedAt: time.Now().UTC()}}
		}
		before := q.Config
		if err = change(&q.Config); err == nil {
			if !ok || !q.Config.Equal(before) {
				q.Config.Version = before.Version + 1
			}
			c.M.Fleet.Queues[name] = q
		}
	})
	if err != nil {
		return queues.Queue{}, err
	}
	_, err = broker.CopyQueues.Call(ctx, c.M, broker.QueueCopies{OnShard: broker.OnShard{Shard: q.Shard, Namespace: ns},
		Configs: map[string]task.QueueConfig{name: q.Config}})
	return q, err
}

func (c FakeControl) DropQueue(_ context.Context, _ task.Author, _, name string) (err error) {
	c.M.Fleet.With(func() {
		if err = c.Check(); err == nil {
			delete(c.M.Fleet.Queues, name)
		}
	})
	return err
}

func (c FakeControl) EnsureQueue(ctx context.Context, shard uint32, ns, name string) (queues.Queue, error) {
	q, err := c.PutQueue(ctx, auditlog.Action{}, ns, name, func(*task.QueueConfig) error { return nil })
	if err == nil {
		c.M.Fleet.With(func() { c.M.Fleet.Ensured = append(c.M.Fleet.Ensured, shard) })
	}
	return q, err
}

func (c FakeControl) Spread(_ context.Context, _ task.Author, ns, name string, target queues.SpreadTarget) (q queues.Queue, err error) {
	c.M.Fleet.With(func() {
		if err = c.Check(); err == nil {
			q = c.M.Fleet.Queues[name]
			q.Namespace, q.Name = ns, name
			q.Config.Version++
			for i, shard := range target.Shards {
				var slots task.SlotSet
				for slot := i; slot < task.SlotCount; slot += len(target.Shards) {
					slots |= 1 << slot
				}
				q.Parts = append(q.Parts, queues.Part{Shard: shard, Slots: slots, Next: slots})
			}
			c.M.Fleet.Queues[name] = q
		}
	})
	return q, err
}

// Do answers the verbs that the tests use.
func (c FakeControl) Do(ctx context.Context, v verb.Call) error {
	on := verbtest.Answers{}
	verbtest.OnSystem(on, cluster.HasShard, func(_ context.Context, id uint32) (has bool, err error) {
		c.M.Fleet.With(func() { has, err = c.M.Fleet.Shards[id] != nil, c.Check() })
		return has, err
	})
	return on.Do(ctx, v)
}

// FakePeers is the network as a node sees it.
type FakePeers struct{ M *Member }

func (p FakePeers) delivery(to uint32, method string) (*Member, Delivery) {
	f := p.M.Fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	if to == p.M.Number {
		f.t.Errorf("node %d called itself: %s", to, method)
	}
	there := f.Nodes[to]
	if there == nil {
		return nil, NotSent
	}
	if f.Network == nil {
		return there, Arrives
	}
	return there, f.Network(p.M.Number, to, method)
}

func (p FakePeers) Call(ctx context.Context, to uint32, method string, request []byte) ([]byte, error) {
	there, delivery := p.delivery(to, method)
	Pass(Latency)
	if delivery == NotSent {
		return nil, errNotSent
	}
	if delivery == Hangs { // the other side does not learn that its caller has left
		go func() { _, _ = there.Serve(context.WithoutCancel(ctx), method, request) }()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b, err := there.Serve(ctx, method, request)
		done <- result{b, err}
	}()
	select {
	case r := <-done:
		Pass(Latency)
		if delivery == AnswerLost {
			return nil, errors.New("connection reset")
		}
		return r.b, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// FakeStream is one end of a stream.
type FakeStream struct {
	Ctx    context.Context
	cancel context.CancelFunc
	in     <-chan []byte
	out    chan<- []byte
	sent   func() // if set, called for each frame
}

func (s *FakeStream) Context() context.Context { return s.Ctx }

func (s *FakeStream) Send(b []byte) error {
	select {
	case s.out <- b:
		if s.sent != nil {
			s.sent()
		}
		return nil
	case <-s.Ctx.Done():
		return io.EOF
	}
}

func (s *FakeStream) Recv() ([]byte, error) {
	select {
	case b := <-s.in:
		return b, nil
	case <-s.Ctx.Done():
		return nil, io.EOF
	}
}

func (p FakePeers) OpenStream(ctx context.Context, to uint32, method string) (claim.Stream, error) {
	there, delivery := p.delivery(to, "stream "+method)
	Pass(Latency)
	if delivery != Arrives {
		return nil, errNotSent
	}
	ctx, cancel := context.WithCancel(ctx)
	up, down := make(chan []byte, 4), make(chan []byte, 4)
	here := &FakeStream{ctx, cancel, down, up, func() { p.M.Fleet.With(func() { p.M.Fleet.Frames++ }) }}
	p.M.Fleet.With(func() { p.M.Fleet.Streams[here] = true })
	go func() {
		_ = there.ServeStream(method, &FakeStream{ctx, cancel, up, down, nil})
		cancel()
		p.M.Fleet.With(func() { delete(p.M.Fleet.Streams, here) })
	}()
	return here, nil
}

// CutStreams breaks all streams.
func (f *Fleet) CutStreams() {
	f.With(func() {
		for s := range f.Streams {
			s.cancel()
		}
	})
}

// AwayNodes returns the nodes that the test has marked as away.
func (c FakeControl) AwayNodes(context.Context) (names []string, err error) {
	c.M.Fleet.With(func() { names, err = slices.Clone(c.M.Fleet.Away), c.Check() })
	return names, err
}
