package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/pawlq/pawl/internal/broker/waiting"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// Claims that find nothing wait in the leader's memory, in order of arrival. The round that makes a task ready serves them before
// it is sealed, and they are answered once it is committed.

// serving is a claim that the current round has served.
type serving struct {
	w     *waiting.Claim
	tasks []Claimed
}

// Claim claims tasks of one shard, waiting up to wait for the first. If there are none in time, the answer is empty, not an error.
//
// When ctx ends while claims are on their way, they are either released immediately without using up an attempt, or returned as if
// ctx had not ended: a caller that can't use them settles them with GiveBack.
func (b *Broker) Claim(ctx context.Context, shardID uint32, c ClaimCall, wait time.Duration) ([]Claimed, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	var timeout <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	for tries := 0; ; {
		w := waiting.New(c)
		d, done, err := r.claimOnce(ctx, w, wait > 0, timeout)
		if err != nil && tries < maxDamages && r.setDamageApart(ctx, err) {
			tries++ // it was waiting when it came upon the row
		} else if done || err != nil {
			return d.Tasks, d.At, err
		}
	}
}

// claimOnce runs a claim in a round and waits for its answer. If done is false, the claim must be repeated.
func (r *replica) claimOnce(ctx context.Context, w *waiting.Claim, park bool, timeout <-chan time.Time) (d waiting.Delivery,
	done bool, err error) {
	again, at, err := changeOf(ctx, r, w.Call.Namespace, func(round *engine.Round) (again []Claimed, err error) {
		w.Call.Entropy = rand.Uint64()
		r.polls.Note(w, round.Now())
		got, repeat := engine.ClaimTasks(round, &w.Call)
		switch {
		case repeat:
			return got, nil
		case len(got) > 0:
			r.served = append(r.served, serving{w, got})
		case park:
			r.claims.Park(w)
		}
		return nil, nil
	})
	if err != nil {
		return d, true, r.giveUp(w, err)
	}
	if again != nil {
		return waiting.Delivery{Tasks: again, At: at}, true, nil
	}
	if !park {
		select {
		case d = <-w.Delivered():
		default:
			d.At = at
		}
		return d, true, nil
	}
	select {
	case d = <-w.Delivered():
		return d, true, d.Err
	case <-w.Again():
	case <-r.gone:
		done, err = true, &NotLeader{Shard: r.id}
	case <-timeout:
		done = true
	case <-r.b.draining:
		done = true
	case <-ctx.Done():
		done, err = true, ctx.Err()
	}
	if !r.claims.Leave(w) {
		d = <-w.Delivered() // it was being delivered at this moment
		return d, true, d.Err
	}
	d.At = at
	return d, done, err
}

// giveUp makes sure that a claim whose call failed is no longer served.
func (r *replica) giveUp(w *waiting.Claim, err error) error {
	if !r.claims.Leave(w) {
		r.release((<-w.Delivered()).Tasks)
	}
	return err
}

// Await waits until such a claim would get a task from the shard, or ctx ends. It claims nothing.
func (b *Broker) Await(ctx context.Context, shardID uint32, c ClaimCall) error {
	r, err := b.replica(shardID)
	if err != nil {
		return err
	}
	for {
		w := waiting.New(c)
		w.Watch = true
		ready, _, err := changeOf(ctx, r, w.Call.Namespace, func(round *engine.Round) (bool, error) {
			r.polls.Note(w, round.Now())
			if engine.Runnable(round, &w.Call) {
				return true, nil
			}
			r.claims.Park(w)
			return false, nil
		})
		if ready {
			return nil
		}
		if err != nil {
			r.claims.Leave(w) // the call may have run, or may still run
			return err
		}
		select {
		case <-w.Delivered():
			return nil
		case <-w.Again():
			continue
		case <-r.gone:
			err = &NotLeader{Shard: r.id}
		case <-ctx.Done():
			err = ctx.Err()
		}
		r.claims.Leave(w)
		return err
	}
}

// retryWaiting tells all waiters to claim again, including those that the dropped round had served.
func (r *replica) retryWaiting() {
	for _, s := range r.served {
		s.w.Retry()
	}
	r.served = nil
	r.claims.RetryAll()
}

// serveWaiting hands the tasks that the round made ready to the claims waiting for them.
func (r *replica) serveWaiting(round *engine.Round) {
	if !r.claims.Some() {
		return
	}
	for i := 0; i < len(round.Woken) || round.WakeBlocked(); i++ {
		ns, queue := round.Woken[i].Namespace, round.Woken[i].Queue
		for w := r.claims.Next(round, ns, queue); w != nil; w = r.claims.Next(round, ns, queue) {
			if w.Watch {
				r.claims.Remove(w)
				r.served = append(r.served, serving{w: w})
				continue
			}
			w.Call.Entropy = rand.Uint64()
			r.serving = w
			got, _ := engine.ClaimTasks(round, &w.Call)
			r.serving = nil
			if len(got) > 0 { // else it has met expired tasks only
				r.claims.Remove(w)
				r.served = append(r.served, serving{w, got})
			}
		}
	}
}

// failServing fails the waiting claim with which a round's end has panicked, and drops the round. The panic goes on if there is none.
func (r *replica) failServing() {
	w := r.serving
	if w == nil {
		return
	}
	p := recover()
	var f *store.Failure
	if err, ok := p.(error); ok && errors.As(err, &f) {
		panic(p)
	}
	r.serving = nil
	r.log.Error("a waiting claim panicked", "panic", p, "stack", string(debug.Stack()))
	r.claims.Remove(w)
	w.Deliver(waiting.Delivery{Err: &shard.PanicError{Value: p}})
	panic(shard.RunAgain{})
}

// deliver answers the claims of a committed round. Claims whose caller has gone are released.
func (r *replica) deliver(at shard.Stamp) {
	for _, s := range r.served {
		if !s.w.Deliver(waiting.Delivery{Tasks: s.tasks, At: at}) {
			r.release(s.tasks)
		}
	}
	clear(r.served)
	r.served = r.served[:0]
}

// release gives back claims that nobody received.
func (r *replica) release(tasks []Claimed) {
	if len(tasks) == 0 {
		return
	}
	r.b.background(func() {
		_, _, err := change(r.b.stopping, r, func(round *engine.Round) (struct{}, error) {
			for _, t := range tasks {
				// Refused only if the claim has ended in another way by now, or another caller got the same claim.
				_, _ = engine.GiveBack(round, Hold{Namespace: t.Namespace, ID: t.ID, Token: t.Token})
			}
			return struct{}{}, nil
		})
		if err != nil {
			r.log.Info("undelivered claims stay in place until their leases end", "tasks", len(tasks), "error", err)
		}
	})
}
