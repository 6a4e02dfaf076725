package routertest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/task"
)

// fakeWatch is a watch of claims that keeps the contract of package broker.
type fakeWatch struct {
	m      *Member
	lost   func(broker.Lost)
	moved  func([]broker.Hold)
	stop   context.CancelFunc
	mu     sync.Mutex
	held   map[task.ClaimID]broker.Hold
	closed bool
}

func (b FakeBroker) WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) claim.LocalWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := &fakeWatch{m: b.M, lost: lost, moved: moved, stop: stop, held: map[task.ClaimID]broker.Hold{}}
	b.M.mu.Lock()
	b.M.watches[w] = true
	b.M.mu.Unlock()
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

func (w *fakeWatch) look(b FakeBroker) {
	w.mu.Lock()
	held := maps.Clone(w.held)
	w.mu.Unlock()
	var moved []broker.Hold
	for _, h := range held {
		id := h.ID
		s, err := b.begin(context.Background(), id.Shard())
		if err != nil {
			moved = append(moved, h)
			continue
		}
		t := *s.Tasks[id]
		b.M.Fleet.mu.Unlock()
		if (t.State != task.Claimed || t.Fence != h.Token.Fence) && w.take(h) {
			w.lost(broker.Lost{ID: id, Token: h.Token, Reason: t.Outcome})
		}
	}
	w.handOver(moved)
}

func (w *fakeWatch) handOver(moved []broker.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved = slices.DeleteFunc(moved, func(h broker.Hold) bool { return !w.takeLocked(h.ID, h.Token) })
	if len(moved) > 0 {
		w.moved(moved)
	}
}

func (w *fakeWatch) take(h broker.Hold) bool { return w.Remove(h.ID, h.Token) }

func (w *fakeWatch) Add(h broker.Hold) bool {
	node, _, _ := FakeBroker{M: w.m}.Leader(h.ID.Shard())
	if uint32(node) != w.m.Number {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.held[task.ClaimID{Task: h.ID, Token: h.Token}] = h
	return true
}

func (w *fakeWatch) Remove(id task.ID, t task.Token) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeLocked(id, t)
}

func (w *fakeWatch) takeLocked(id task.ID, t task.Token) bool {
	k := task.ClaimID{Task: id, Token: t}
	_, held := w.held[k]
	delete(w.held, k)
	return held
}

func (w *fakeWatch) Close() {
	w.stop()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	delete(w.m.watches, w)
}

func (w *fakeWatch) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}
