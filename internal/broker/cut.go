package broker

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A backup needs the states of all shards at one cut: what one shard's state says of another must be true there
// (decision 89). So while the images are opened, each shard is held: calls by which other shards change it, or learn
// what it has, wait. Calls of clients go on.
//
// The rule: between a shard's hold and its release it takes nothing from another shard. All shards are held before the
// first image is opened, and released after the last. So whatever one shard has taken from another, it took either
// before its hold, and then it is in its image, or after its release, and then no image says so.

// errHeld: a call of another shard did not run, because the shard is held.
var errHeld = errors.New("the shard is held for a backup")

// whenFree runs a call of another shard, again once the shard is free if it was held.
func whenFree[T any](ctx context.Context, r *replica, run func() (T, Stamp, error)) (out T, at Stamp, err error) {
	for out, at, err = run(); errors.Is(err, errHeld); out, at, err = run() {
		now, _ := r.shard.Now()
		if err := r.holds.Wait(ctx, now); err != nil {
			return out, at, err
		}
	}
	return out, at, err
}

// unlessHeld returns a function that refuses to run in a round in which the shard is held.
func unlessHeld[T any](r *replica, fn func(*engine.Round) (T, error)) func(*engine.Round) (T, error) {
	return func(round *engine.Round) (out T, err error) {
		if r.holds.Held(round.Now()) {
			return out, errHeld
		}
		return fn(round)
	}
}

// changeWhenFree is change for a call of another shard.
func changeWhenFree[T any](ctx context.Context, r *replica, fn func(*engine.Round) (T, error)) (T, Stamp, error) {
	return whenFree(ctx, r, func() (T, Stamp, error) { return change(ctx, r, unlessHeld(r, fn)) })
}

// receives is changes for a verb by which another shard, or the system shard, changes this one.
func receives[Req, Resp any, P placed[Req]](rule verb.Rule, fn func(round *engine.Round, q *Req) (Resp, error)) *verb.Verb[Req, Resp] {
	return onReplica[Req, Resp, P](rule, func(ctx context.Context, r *replica, q *Req) (Resp, error) {
		out, at, err := changeWhenFree(ctx, r, func(round *engine.Round) (Resp, error) { return fn(round, q) })
		stamp(&out, at)
		return out, err
	})
}

// reports is reads for a verb whose answer the system shard records. It is answered when the shard is not held: what
// was read is then in the image, or the images are open and the record is in none.
func reports[Req, Resp any, P placed[Req]](rule verb.Rule, fn func(from store.Reader, q *Req) (Resp, error)) *verb.Verb[Req, Resp] {
	rule.Idempotent = true
	return onReplica[Req, Resp, P](rule, func(ctx context.Context, r *replica, q *Req) (Resp, error) {
		out, _, err := read(ctx, r, func(from store.Reader) (Resp, error) { return fn(from, q) })
		for now, _ := r.shard.Now(); err == nil && r.holds.Held(now); now, _ = r.shard.Now() {
			err = r.holds.Wait(ctx, now)
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

// BeginCut holds a shard until EndCut, as long as its leader leads, and for task.CutWindow at most.
var BeginCut = onReplica(verb.Rule{Name: "begin-cut", Idempotent: true}, func(ctx context.Context, r *replica, q *OnCut) (CutBegun, error) {
	out, _, err := change(ctx, r, func(round *engine.Round) (CutBegun, error) { return CutBegun{r.term}, r.holds.Add(q.ID, round.Now()) })
	return out, err
})

// CheckCut fails unless the shard has been held without a break since BeginCut answered, by one leader. A majority
// confirms that it still leads.
var CheckCut = onReplica(verb.Rule{Name: "check-cut", Idempotent: true},
	func(ctx context.Context, r *replica, q *OnCut) (verb.Nothing, error) {
		out, _, err := change(ctx, r, func(round *engine.Round) (out verb.Nothing, err error) {
			if r.term != q.Term || !r.holds.Has(q.ID, round.Now()) {
				err = task.Unavailable(time.Second, "shard %d: its leader changed while a backup began, or that took longer than %v",
					r.id, task.CutWindow)
			}
			return out, err
		})
		return out, err
	})

// EndCut releases a shard.
var EndCut = onReplica(verb.Rule{Name: "end-cut", Idempotent: true}, func(_ context.Context, r *replica, q *OnCut) (verb.Nothing, error) {
	r.holds.Release(q.ID)
	return verb.Nothing{}, nil
})
