package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// settleTime bounds one settle of a stream.
	settleTime = 30 * time.Second
	// laneItems bounds the items that wait in a lane, and so those that run together.
	laneItems = 4000
	// laneFrames bounds the frames whose items wait in a lane.
	laneFrames = 64
	// laneWait is how long a run may take before a full lane refuses items, instead of making the stream wait.
	laneWait = time.Second
)

// settleLane runs the settle items of a stream for one shard, in the order of arrival. Items that arrive while others run are run together
// next. Each shard has its own lane, so that one without a leader delays nothing of the others.
type settleLane struct {
	w   *work
	run onDemand

	mu      sync.Mutex
	waiting settleBatch
	frames  []*heldFrame  // of the waiting items
	began   time.Time     // the current run; zero: none
	taken   chan struct{} // capacity 1: the waiting items were taken
}

// heldFrame is the memory of a frame, given back when all lanes are done with it.
type heldFrame struct {
	give  func()
	lanes atomic.Int32 // those that still use the frame
}

func (f *heldFrame) done() {
	if f.lanes.Add(-1) == 0 {
		f.give()
	}
}

// lane returns the lane of a shard.
func (w *work) lane(shard uint32) *settleLane {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes[shard]
	if l == nil {
		l = &settleLane{w: w, taken: make(chan struct{}, 1)}
		l.run.do = func() { w.failIf(l.settle) }
		l.run.stopped = w.lanesEnd
		if w.lanes == nil {
			w.lanes = map[uint32]*settleLane{}
		}
		w.lanes[shard] = l
	}
	return l
}

// settle passes a frame's items to the lanes of their shards, and answers those that are malformed.
func (w *work) settle(ctx context.Context, r *pawlv1.SettleRequest) error {
	if err := checkSettle(r); err != nil {
		return err
	}
	var b settleBatch
	if out := b.add(w.g, w.ns, r); len(b.calls) < settleItems(r) {
		if err := w.send(&pawlv1.WorkResponse{Settled: refusedOf(out)}); err != nil {
			return err
		}
	}
	parts := b.byShard()
	frame := &heldFrame{give: w.keep()}
	frame.lanes.Store(1)
	defer frame.done()
	for _, p := range parts {
		frame.lanes.Add(1)
		if err := w.lane(p.calls[0].Hold.ID.Shard()).add(ctx, p, frame); err != nil {
			return err
		}
	}
	return nil
}

// refusedOf returns the answers that are errors.
func refusedOf(r *pawlv1.SettleResponse) *pawlv1.SettleResponse {
	only := func(all []*pawlv1.Settled) (refused []*pawlv1.Settled) {
		for _, s := range all {
			if s.GetError() != nil {
				refused = append(refused, s)
			}
		}
		return refused
	}
	return &pawlv1.SettleResponse{Acks: only(r.GetAcks()), Fails: only(r.GetFails()), Extends: only(r.GetExtends()),
		Releases: only(r.GetReleases())}
}

// add queues items. A full lane makes the stream wait, unless its shard does not answer: then the items are refused, so
// that those for other shards get through.
func (l *settleLane) add(ctx context.Context, b *settleBatch, frame *heldFrame) error {
	for {
		stuck, added := l.tryAdd(b, frame)
		if added {
			if !l.run.poke() { // the stream has ended
				l.drop()
			}
			return nil
		}
		wait := time.NewTimer(time.Until(stuck))
		select {
		case <-l.taken:
		case <-wait.C:
			frame.done()
			b.refuse(l.w.g, task.Unavailable(laneWait, "shard %d does not answer, and too many calls for it wait",
				b.calls[0].Hold.ID.Shard()))
			return l.w.answer(b)
		case <-l.w.ended:
			wait.Stop()
			frame.done()
			return l.w.err
		case <-ctx.Done():
			wait.Stop()
			frame.done()
			return ctx.Err()
		}
		wait.Stop()
	}
}

// tryAdd queues items if there is room. If there is none, stuck is when the lane starts to refuse items.
func (l *settleLane) tryAdd(b *settleBatch, frame *heldFrame) (stuck time.Time, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.waiting.calls); n > 0 && (n+len(b.calls) > laneItems || len(l.frames) >= laneFrames) {
		began := l.began
		if began.IsZero() { // a run is about to begin
			began = time.Now()
		}
		return began.Add(laneWait), false
	}
	l.waiting.calls = append(l.waiting.calls, b.calls...)
	l.waiting.answers = append(l.waiting.answers, b.answers...)
	l.frames = append(l.frames, frame)
	return time.Time{}, true
}

// settle runs the waiting items and answers them, until none are left.
func (l *settleLane) settle() error {
	for {
		b, frames := l.take()
		if len(frames) == 0 {
			return nil
		}
		if err := l.w.run(b, frames); err != nil {
			return err
		}
	}
}

// drop forgets the waiting items.
func (l *settleLane) drop() {
	_, frames := l.take()
	for _, f := range frames {
		f.done()
	}
}

// take takes the waiting items; no frames: there are none.
func (l *settleLane) take() (b *settleBatch, frames []*heldFrame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, frames = &settleBatch{l.waiting.calls, l.waiting.answers}, l.frames
	l.waiting, l.frames, l.began = settleBatch{}, nil, time.Time{}
	if len(frames) > 0 {
		l.began = time.Now()
	}
	select {
	case l.taken <- struct{}{}:
	default:
	}
	return b, frames
}

// run runs items of one shard, which came in frames, and answers them.
func (w *work) run(b *settleBatch, frames []*heldFrame) error {
	defer func() {
		for _, f := range frames {
			f.done()
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.stream.Context()), settleTime)
	defer cancel()
	began := time.Now()
	b.run(ctx, w.g)
	w.forget(b)
	for i := range b.calls {
		w.g.spans.Settled(&w.held, b.calls[i].Verb, b.calls[i].Hold.ID, began, b.answers[i].GetError())
	}
	return w.answer(b)
}

// answer sends the answers to items, in one frame.
func (w *work) answer(b *settleBatch) error {
	out := &pawlv1.SettleResponse{}
	for i, a := range b.answers {
		switch b.calls[i].Verb {
		case broker.Ack:
			out.Acks = append(out.Acks, a)
		case broker.Fail:
			out.Fails = append(out.Fails, a)
		case broker.Extend:
			out.Extends = append(out.Extends, a)
		default:
			out.Releases = append(out.Releases, a)
		}
	}
	return w.send(&pawlv1.WorkResponse{Settled: out})
}

// finishSettles runs what was received, even if its sender is gone.
func (w *work) finishSettles() {
	w.mu.Lock()
	w.lanesEnd = true
	lanes := slices.Collect(maps.Values(w.lanes))
	w.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range lanes {
		all.Go(func() {
			l.run.stop()
			w.failIf(l.settle)
		})
	}
	all.Wait()
}

// forget stops watching claims that have ended, and reports them and longer leases to the registry.
func (w *work) forget(b *settleBatch) {
	b.notify(func(h *broker.Hold) {
		w.watch.Remove(h.ID, h.Token)
		w.quiet.me.Ended(h.ID, h.Token)
	}, w.quiet.me.Extended)
}
