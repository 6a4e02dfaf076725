package routertest

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/queues"
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
