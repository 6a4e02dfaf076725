package router

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
)

// fakeMap is a node's copy of the map.
type fakeMap struct{ m *member }

func (c fakeMap) Replicas(id uint32) (nodes []uint32) {
	c.m.f.with(func() {
		if s := c.m.f.shards[id]; s != nil {
			nodes = s.replicas
		} else if id == systemShard {
			for n := range c.m.f.nodes {
				nodes = append(nodes, n)
			}
			slices.Sort(nodes)
		}
	})
	return nodes
}

func (c fakeMap) Shards() (ids []uint32) {
	c.m.f.with(func() {
		for id := range c.m.f.shards {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids
}

func (c fakeMap) Nodes() (nodes []Node) {
	for n := range uint32(len(c.m.f.nodes)) {
		nodes = append(nodes, Node{n + 1, "n" + string(rune('1'+n))})
	}
	return nodes
}

func (c fakeMap) Queue(_, name string) (queues.Queue, bool) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	q, ok := c.m.copy[name]
	return q, ok
}

func (c fakeMap) Learned(q queues.Queue) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.copy[q.Name] = q
}

func (c fakeMap) Dropped(_, name string) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	delete(c.m.copy, name)
}

func (c fakeMap) Level() int { return c.m.level }

func (c fakeMap) Age() time.Duration { return c.m.age }

// fakeControl has the queues where the system shard is led.
type fakeControl struct {
	Control
	m *member
}

func (c fakeControl) check() error {
	if leader := c.m.f.leader0; leader != c.m.number {
		return &broker.NotLeader{Shard: systemShard, Node: leader}
	}
	return nil
}

func (c fakeControl) Queue(_ context.Context, _, name string) (q queues.Queue, err error) {
	c.m.f.with(func() {
		var ok bool
		if err = c.check(); err == nil {
			if q, ok = c.m.f.queues[name]; !ok {
				err = task.NotFound("queue", name)
			}
		}
	})
	return q, err
}

func (c fakeControl) Place(ctx context.Context, ns, name string) (queues.Queue, error) {
	return c.PutQueue(ctx, auditlog.Action{}, ns, name, func(*task.QueueConfig) error { return nil })
}

func (c fakeControl) Queues(_ context.Context, _ string, of queues.Query) (found []queues.Queue, err error) {
	c.m.f.with(func() {
		err = c.check()
		for name, q := range c.m.f.queues {
			if name > of.After {
				found = append(found, q)
			}
		}
	})
	slices.SortFunc(found, func(a, b queues.Queue) int { return strings.Compare(a.Name, b.Name) })
	return found[:min(of.Limit, len(found))], err
}

func (c fakeControl) PutQueue(ctx context.Context, _ auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (q queues.Queue, err error) {
	c.m.f.with(func() {
		if err = c.check(); err != nil {
			return
		}
		var ok bool
		if q, ok = c.m.f.queues[name]; !ok {
			q = queues.Queue{Namespace: ns, Name: name, Shard: 1, Config: task.QueueConfig{Settings: task.DefaultSettings(), CreatedAt: time.Now().UTC()}}
		}
		before := q.Config
		if err = change(&q.Config); err == nil {
			if !ok || !q.Config.Equal(before) {
				q.Config.Version = before.Version + 1
			}
			c.m.f.queues[name] = q
		}
	})
	if err != nil {
		return queues.Queue{}, err
	}
	_, err = broker.CopyQueues.Call(ctx, c.m, broker.QueueCopies{OnShard: broker.OnShard{Shard: q.Shard, Namespace: ns}, Configs: map[string]task.QueueConfig{name: q.Config}})
	return q, err
}

func (c fakeControl) DropQueue(_ context.Context, _ task.Author, _, name string) (err error) {
	c.m.f.with(func() {
		if err = c.check(); err == nil {
			delete(c.m.f.queues, name)
		}
	})
	return err
}

func (c fakeControl) EnsureQueue(ctx context.Context, shard uint32, ns, name string) (queues.Queue, error) {
	q, err := c.PutQueue(ctx, auditlog.Action{}, ns, name, func(*task.QueueConfig) error { return nil })
	if err == nil {
		c.m.f.with(func() { c.m.f.ensured = append(c.m.f.ensured, shard) })
	}
	return q, err
}

func (c fakeControl) Spread(_ context.Context, _ task.Author, ns, name string, target queues.SpreadTarget) (q queues.Queue, err error) {
	c.m.f.with(func() {
		if err = c.check(); err == nil {
			q = c.m.f.queues[name]
			q.Namespace, q.Name = ns, name
			q.Config.Version++
			for i, shard := range target.Shards {
				var slots task.SlotSet
				for slot := i; slot < task.SlotCount; slot += len(target.Shards) {
					slots |= 1 << slot
				}
				q.Parts = append(q.Parts, queues.Part{Shard: shard, Slots: slots, Next: slots})
			}
			c.m.f.queues[name] = q
		}
	})
	return q, err
}

func (c fakeControl) HasShard(_ context.Context, id uint32) (has bool, err error) {
	c.m.f.with(func() { has, err = c.m.f.shards[id] != nil, c.check() })
	return has, err
}

// fakePeers is the network as a node sees it.
type fakePeers struct{ m *member }

func (p fakePeers) fate(to uint32, method string) (*member, fate) {
	f := p.m.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	if to == p.m.number {
		f.t.Errorf("node %d calls itself: %s", to, method)
	}
	there := f.nodes[to]
	if there == nil {
		return nil, notSent
	}
	if f.network == nil {
		return there, arrives
	}
	return there, f.network(p.m.number, to, method)
}

func (p fakePeers) Call(ctx context.Context, to uint32, method string, request []byte) ([]byte, error) {
	there, fate := p.fate(to, method)
	pass(latency)
	if fate == notSent {
		return nil, errNotSent
	}
	if fate == hangs { // the other side does not learn that its caller has left
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
		pass(latency)
		if fate == answerLost {
			return nil, errors.New("connection reset")
		}
		return r.b, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fakeStream is one end of a stream.
type fakeStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	in     <-chan []byte
	out    chan<- []byte
	sent   func() // if set, called for each frame
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) Send(b []byte) error {
	select {
	case s.out <- b:
		if s.sent != nil {
			s.sent()
		}
		return nil
	case <-s.ctx.Done():
		return io.EOF
	}
}

func (s *fakeStream) Recv() ([]byte, error) {
	select {
	case b := <-s.in:
		return b, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

func (p fakePeers) OpenStream(ctx context.Context, to uint32, method string) (Stream, error) {
	there, fate := p.fate(to, "stream "+method)
	pass(latency)
	if fate != arrives {
		return nil, errNotSent
	}
	ctx, cancel := context.WithCancel(ctx)
	up, down := make(chan []byte, 4), make(chan []byte, 4)
	here := &fakeStream{ctx, cancel, down, up, func() { p.m.f.with(func() { p.m.f.frames++ }) }}
	p.m.f.with(func() { p.m.f.streams[here] = true })
	go func() {
		_ = there.ServeStream(method, &fakeStream{ctx, cancel, up, down, nil})
		cancel()
		p.m.f.with(func() { delete(p.m.f.streams, here) })
	}()
	return here, nil
}

// cutStreams breaks all streams.
func (f *fleet) cutStreams() {
	f.with(func() {
		for s := range f.streams {
			s.cancel()
		}
	})
}
