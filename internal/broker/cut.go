package broker

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A backup needs the states of all shards at one cut: what one shard's state says of another must be true there (decision 89). So while the images are
// opened, each shard is held: calls by which other shards change it, or learn what it has, wait. Calls of clients go on.
//
// The rule: between a shard's hold and its release it takes nothing from another shard. All shards are held before the first image is opened, and released
// after the last. So whatever one shard has taken from another, it took either before its hold, and then it is in its image, or after its release, and then
// no image says so.

// holds are the backups that hold a shard on this node. They outlive a term, but count only in theirs: see CheckCut.
type holds struct {
	mu    sync.Mutex
	until map[task.ID]store.Time // by the ids of their cuts
	freed chan struct{}          // closed when a hold is released
}

// maxHeld bounds the backups that may hold a shard at a time.
const maxHeld = 16

// errHeld: a call of another shard did not run, because the shard is held.
var errHeld = errors.New("the shard is held for a backup")

func (h *holds) add(id task.ID, now store.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropEnded(now)
	if _, again := h.until[id]; !again && len(h.until) >= maxHeld {
		return task.Unavailable(task.CutWindow, "%d backups are beginning at this moment", len(h.until))
	}
	if h.until == nil {
		h.until = map[task.ID]store.Time{}
	}
	h.until[id] = now.Add(task.CutWindow)
	return nil
}

func (h *holds) dropEnded(now store.Time) {
	maps.DeleteFunc(h.until, func(_ task.ID, until store.Time) bool { return until <= now })
}

// has reports whether a backup holds the shard.
func (h *holds) has(id task.ID, now store.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until[id] > now
}

func (h *holds) release(id task.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, id)
	if h.freed != nil {
		close(h.freed)
		h.freed = nil
	}
}

// held reports whether any backup holds the shard.
func (h *holds) held(now store.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropEnded(now)
	return len(h.until) > 0
}

// wait waits until a hold is released, or the next ends by itself.
func (h *holds) wait(ctx context.Context, now store.Time) error {
	h.mu.Lock()
	h.dropEnded(now)
	if len(h.until) == 0 {
		h.mu.Unlock()
		return nil
	}
	if h.freed == nil {
		h.freed = make(chan struct{})
	}
	freed, soon := h.freed, task.CutWindow
	for _, until := range h.until {
		soon = min(soon, until.Sub(now))
	}
	h.mu.Unlock()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-freed:
	case <-timer.C:
	}
	return nil
}

// whenFree runs a call of another shard, again once the shard is free if it was held.
func whenFree[T any](ctx context.Context, r *replica, run func() (T, Stamp, error)) (T, Stamp, error) {
	for {
		out, at, err := run()
		if !errors.Is(err, errHeld) {
			return out, at, err
		}
		now, _ := r.shard.Now()
		if err := r.holds.wait(ctx, now); err != nil {
			return out, at, err
		}
	}
}

// notHeld must be called in each round of a call of another shard, before it changes anything.
func (r *replica) notHeld(round *engine.Round) error {
	if r.holds.held(round.Now()) {
		return errHeld
	}
	return nil
}

// changeWhenFree is change for a call of another shard.
func changeWhenFree[T any](ctx context.Context, r *replica, fn func(*engine.Round) (T, error)) (T, Stamp, error) {
	return whenFree(ctx, r, func() (T, Stamp, error) {
		return change(ctx, r, func(round *engine.Round) (out T, err error) {
			if err := r.notHeld(round); err != nil {
				return out, err
			}
			return fn(round)
		})
	})
}

// receives is changes for a verb by which another shard, or the system shard, changes this one.
func receives[Req, Resp any, P placed[Req]](rule verb.Rule, fn func(round *engine.Round, q *Req) (Resp, error)) *verb.Verb[Req, Resp] {
	return onReplica[Req, Resp, P](rule, func(ctx context.Context, r *replica, q *Req) (Resp, error) {
		out, at, err := changeWhenFree(ctx, r, func(round *engine.Round) (Resp, error) { return fn(round, q) })
		stamp(&out, at)
		return out, err
	})
}

// reports is reads for a verb whose answer the system shard records. It is answered when the shard is not held: what was read is then in the image, or the
// images are open and the record is in none.
func reports[Req, Resp any, P placed[Req]](rule verb.Rule, fn func(from store.Reader, q *Req) (Resp, error)) *verb.Verb[Req, Resp] {
	rule.Idempotent = true
	return onReplica[Req, Resp, P](rule, func(ctx context.Context, r *replica, q *Req) (Resp, error) {
		out, _, err := read(ctx, r, func(from store.Reader) (Resp, error) { return fn(from, q) })
		for now, _ := r.shard.Now(); err == nil && r.holds.held(now); now, _ = r.shard.Now() {
			err = r.holds.wait(ctx, now)
		}
		return out, err
	})
}

// OnCut is a request about the cut of a backup.
type OnCut struct {
	OnShard
	ID   task.ID
	Term uint64 // of CheckCut: that of the answer of BeginCut
}

// CutBegun is the term in which the leader answered.
type CutBegun struct{ Term uint64 }

// BeginCut holds a shard until EndCut, or for task.CutWindow.
var BeginCut = onReplica(verb.Rule{Name: "begin-cut", Idempotent: true}, func(ctx context.Context, r *replica, q *OnCut) (CutBegun, error) {
	out, _, err := change(ctx, r, func(round *engine.Round) (CutBegun, error) { return CutBegun{r.term}, r.holds.add(q.ID, round.Now()) })
	return out, err
})

// CheckCut fails unless the shard has been held without a break since BeginCut answered, by one leader. A majority confirms that it still leads.
var CheckCut = onReplica(verb.Rule{Name: "check-cut", Idempotent: true}, func(ctx context.Context, r *replica, q *OnCut) (Nothing, error) {
	out, _, err := change(ctx, r, func(round *engine.Round) (out Nothing, err error) {
		switch {
		case r.term != q.Term:
			err = task.Unavailable(time.Second, "shard %d: its leader changed while a backup began", r.id)
		case !r.holds.has(q.ID, round.Now()):
			err = task.Unavailable(time.Second, "shard %d: the backup took longer than %v to begin", r.id, task.CutWindow)
		}
		return out, err
	})
	return out, err
})

// EndCut releases a shard.
var EndCut = onReplica(verb.Rule{Name: "end-cut", Idempotent: true}, func(_ context.Context, r *replica, q *OnCut) (Nothing, error) {
	r.holds.release(q.ID)
	return Nothing{}, nil
})
