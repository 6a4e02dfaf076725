package shard

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// The network loses messages, and delays each by a different time: most by milliseconds, some by a minute, when they may be
// obsolete. Some messages it delivers twice.

// Send implements Transport.
func (l *life) Send(ms []*pb.Message) {
	if l.dead.Load() {
		return
	}
	for _, m := range ms {
		for _, delay := range l.w.carry(m) {
			m := proto.Clone(m).(*pb.Message)
			time.AfterFunc(delay, func() {
				if peer := l.w.life(m.GetTo()); peer != nil {
					_ = peer.shard.Step(m)
				}
			})
		}
	}
}

// setCalm makes the network calm or not, and returns what it was.
func (w *world) setCalm(calm bool) (was bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, w.calm = w.calm, calm
	return was
}

// carry returns the delays after which a message arrives: once, twice or never.
func (w *world) carry(m *pb.Message) (delays []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lose != nil && w.lose(m) || w.cut[link{uint32(m.GetFrom()), uint32(m.GetTo())}] || !w.calm && w.rng.IntN(100) < 2 {
		return nil
	}
	soon := func() time.Duration { return time.Duration(w.rng.ExpFloat64() * float64(2*time.Millisecond)) }
	if delays = append(delays, soon()); w.calm {
		return delays
	}
	switch w.rng.IntN(200) {
	case 0, 1:
		w.some.hit("message repeated")
		delays = append(delays, soon())
	case 2:
		w.some.hit("message repeated late")
		delays = append(delays, time.Duration(w.rng.IntN(60))*time.Second)
	}
	return delays
}

// SendSnapshot implements Transport: a snapshot may be cut on its way, or damaged, unless the network is calm.
func (l *life) SendSnapshot(ctx context.Context, m *pb.Message, size uint64, body func(io.Writer) error) error {
	peer := l.w.life(m.GetTo())
	l.w.mu.Lock()
	cut := l.w.cut[link{uint32(l.replica), uint32(m.GetTo())}]
	left, flip := 1<<30, 1<<30
	switch fault := l.w.rng.IntN(6); {
	case l.w.calm:
	case fault == 0:
		left = l.w.rng.IntN(3000)
	case fault == 1:
		flip = l.w.rng.IntN(3000)
	}
	full := l.w.full
	l.w.mu.Unlock()
	if full != nil {
		if err := full(); err != nil {
			return err
		}
	}
	if peer == nil || cut || l.dead.Load() {
		return errors.New("no way there")
	}
	r, w := io.Pipe()
	var wrote sync.WaitGroup
	defer wrote.Wait()
	defer r.Close()
	wrote.Go(func() { _ = w.CloseWithError(body(&wire{l, w, left, flip})) })
	peer.coming.Add(1)
	defer peer.coming.Done()
	stop := context.AfterFunc(ctx, func() { _ = r.CloseWithError(ctx.Err()) })
	defer stop()
	gone := make(chan struct{})
	defer close(gone)
	go func() {
		select {
		case <-peer.down:
			_ = r.CloseWithError(errors.New("receiver is gone"))
		case <-gone:
		}
	}()
	was := peer.state.Applied().Index
	err := peer.shard.Receive(ctx, proto.Clone(m).(*pb.Message), r)
	switch at := peer.state.Applied().Index; {
	case err != nil:
		l.w.some.hit("snapshot refused")
	case at > was:
		l.w.some.hit("snapshot installed")
	}
	return err
}

// wire transmits a snapshot slowly, cuts it after some bytes, and flips a bit.
type wire struct {
	l          *life
	w          io.Writer
	left, flip int
}

func (w *wire) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		w.l.w.some.hit("snapshot cut")
		return 0, errors.New("cut")
	}
	n := len(b)
	if w.flip >= 0 && w.flip < n {
		b = append([]byte(nil), b...)
		b[w.flip] ^= 1
		w.l.w.some.hit("snapshot damaged")
	}
	w.flip -= n
	w.l.w.wait(time.Duration(n) * time.Microsecond)
	return w.w.Write(b)
}

// link is the direction from one machine to another.
type link struct{ from, to uint32 }

// isolate cuts a node off, in both directions or one.
func (w *world) isolate(num uint32, in, out bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		w.cut[link{n.num, num}] = in
		w.cut[link{num, n.num}] = out
	}
}

// bridge splits the nodes into two halves that only one node connects, and returns that node.
func (w *world) bridge() *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	order := w.rng.Perm(len(w.nodes))
	half := 1 + len(order)/2
	for _, a := range order[1:half] {
		for _, b := range order[half:] {
			from, to := w.nodes[a].num, w.nodes[b].num
			w.cut[link{from, to}], w.cut[link{to, from}] = true, true
		}
	}
	return w.nodes[order[0]]
}

// cutSome cuts each link, one way, with a probability in percent.
func (w *world) cutSome(percent int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			w.cut[link{a.num, b.num}] = w.rng.IntN(100) < percent
		}
	}
}

func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cut)
}
