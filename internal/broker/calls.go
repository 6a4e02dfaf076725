package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Enqueue creates tasks in one shard, which has their queues. The specs must be complete and checked. Each task has its own
// result; an error applies to all of them.
func (b *Broker) Enqueue(ctx context.Context, shardID uint32, ns string, specs []task.Spec) ([]Enqueued, Stamp, error) {
	r, err := b.replicaWithRoom(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	tasks, queues := r.newTasks(ns, specs)
	var moved movedSlots
	out, at, err := inPieces(len(tasks), func(from int, more func(*engine.Round) bool) ([]Enqueued, Stamp, error) {
		return r.enqueue(ctx, ns, queues, specs, func(round *engine.Round) ([]Enqueued, error) {
			if !engine.CanAnswer(round, ns, specs[from:]) {
				return nil, engine.ErrUnknownQueue
			}
			out := make([]Enqueued, 0, len(tasks)-from)
			for i := from; i < len(tasks) && more(round); i++ {
				a, err := moved.enqueue(round, &tasks[i])
				out = append(out, Enqueued{a, err})
			}
			return out, nil
		})
	})
	countDuplicates(b.cfg.Stats, ns, specs, out)
	return out, at, err
}

// enqueue is withQueues for an enqueue. Messages of other shards wait while the shard is held.
func (r *replica) enqueue(ctx context.Context, ns string, queues []string, specs []task.Spec,
	fn func(*engine.Round) ([]Enqueued, error)) ([]Enqueued, Stamp, error) {
	if !slices.ContainsFunc(specs, func(s task.Spec) bool { return s.RequestTTL > 0 }) {
		return withQueues(ctx, r, ns, queues, fn)
	}
	return whenFree(ctx, r, func() ([]Enqueued, Stamp, error) { return withQueues(ctx, r, ns, queues, unlessHeld(r, fn)) })
}

// movedSlots has the slots, by queue, of which tasks of a call were refused with ErrSlotMoved though they were to be created.
type movedSlots map[slotName]bool

type slotName struct {
	queue string
	slot  int
}

// enqueue creates a task, and says whether one of its slot was refused before.
func (m *movedSlots) enqueue(round *engine.Round, n *engine.NewTask) (engine.Accepted, error) {
	if *m != nil {
		slot, ok := n.Slot()
		n.AfterMoved = ok && (*m)[slotName{n.Queue, slot}]
	}
	a, err := engine.Enqueue(round, n)
	if errors.Is(err, engine.ErrSlotMoved) && !n.OnlyFind {
		if slot, ok := n.Slot(); ok {
			if *m == nil {
				*m = movedSlots{}
			}
			(*m)[slotName{n.Queue, slot}] = true
		}
	}
	return a, err
}

// withQueues runs a call in a shard that needs copies of the given queues. It fetches them first if one is missing, or
// too old for the call.
func withQueues[T any](ctx context.Context, r *replica, ns string, queues []string, fn func(*engine.Round) (T, error)) (T, Stamp, error) {
	out, at, err := changeOf(ctx, r, ns, func(round *engine.Round) (out T, err error) {
		for _, q := range queues {
			if !engine.HasQueue(round, ns, q) {
				return out, engine.ErrUnknownQueue
			}
		}
		return fn(round)
	})
	if !errors.Is(err, engine.ErrUnknownQueue) {
		return out, at, err
	}
	for _, q := range queues {
		if err := r.b.cfg.EnsureQueue(ctx, r.id, ns, q); err != nil {
			return out, at, err
		}
	}
	out, at, err = changeOf(ctx, r, ns, fn)
	if errors.Is(err, engine.ErrUnknownQueue) {
		err = task.Unavailable(time.Second, "shard %d: a queue was deleted or changed during the call", r.id)
	}
	return out, at, err
}

// newTasks assigns ids to the tasks of an enqueue, hashes their contents, and lists their queues.
func (r *replica) newTasks(ns string, specs []task.Spec) (tasks []engine.NewTask, queues []string) {
	now, _ := r.shard.Now()
	tasks = make([]engine.NewTask, len(specs))
	last, seen, hasher := "", map[string]bool{}, engine.Hasher{}
	for i, s := range specs {
		n := engine.NewTask{Spec: s, Namespace: ns, Fingerprint: hasher.Hash(&s)}
		if s.RequestID.IsV7() {
			n.ID = task.NewID(r.id, s.RequestID.UnixMilli(), requestBits("task", ns, s.RequestID))
		} else {
			n.ID, n.Fresh = task.NewID(r.id, int64(now)/1000, rand.Uint64()), true
		}
		tasks[i] = n
		if s.Queue != last && !seen[s.Queue] {
			seen[s.Queue] = true
			queues = append(queues, s.Queue)
		}
		last = s.Queue
	}
	return tasks, queues
}

// requestBits derives the random part of a task's or a group's id from the request id, so that a repeated request names
// the same one. The kind keeps apart the ids of a task and a group that were created with the same request id: some
// tables have rows of both.
func requestBits(kind, ns string, request task.ID) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(binary.BigEndian.Uint64(request[:8]))
	_, _ = d.Write(request[8:])
	_, _ = d.WriteString(ns)
	_, _ = d.WriteString("\x00")
	_, _ = d.WriteString(kind)
	return d.Sum64()
}

// Settle runs verbs on claims of one shard, that of the tasks' ids. Each has its own result.
func (b *Broker) Settle(ctx context.Context, shardID uint32, calls []Settle) ([]Settled, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	scope := task.ScopeOf(ctx)
	out, at, err := inPieces(len(calls), func(from int, more func(*engine.Round) bool) ([]Settled, Stamp, error) {
		return changeOf(ctx, r, calls[from].Hold.Namespace, func(round *engine.Round) ([]Settled, error) {
			out := make([]Settled, 0, len(calls)-from)
			for i := from; i < len(calls) && more(round); i++ {
				c := &calls[i]
				if err := engine.TaskWithin(round, scope, c.Hold.Namespace, c.Hold.ID); err != nil {
					out = append(out, Settled{Err: err})
					continue
				}
				out = append(out, settle(round, c))
			}
			return out, nil
		})
	})
	countStale(b.cfg.Stats, calls, out)
	return out, at, err
}

// pieceBytes is how much one call may write in a round before the rest moves to another: a round is copied several times on its way, so
// smaller rounds take less memory. A call may write 16 MiB; a single ack may write 14 MiB, if the tasks that follow take its result along,
// and a task less than 3 MiB.
const pieceBytes = 2 << 20

// inPieces processes n items, usually in one call of do. do starts at the item from and continues while more reports room.
func inPieces[T any](n int, do func(from int, more func(*engine.Round) bool) ([]T, Stamp, error)) (out []T, at Stamp, err error) {
	for len(out) < n {
		var began *engine.Round
		before := 0
		some, stamp, err := do(len(out), func(round *engine.Round) bool {
			if round != began { // a dropped round is run again
				began, before = round, round.Tx().Size()
			}
			return round.Tx().Size()-before < pieceBytes
		})
		if err != nil {
			return nil, stamp, partlyDone(err, int64(len(out)))
		}
		if at = stamp; out == nil {
			out = some
		} else {
			out = append(out, some...)
		}
	}
	return out, at, nil
}

func settle(round *engine.Round, c *Settle) (out Settled) {
	var s engine.Settled
	switch c.Verb {
	case Ack:
		ack := engine.Ack
		if c.Late {
			ack = engine.AckLate
		}
		s, out.Err = ack(round, c.Hold, c.Result)
	case Fail:
		s, out.Err = engine.Fail(round, c.Hold, c.Fail)
	case Release:
		release := engine.Release
		if c.Late {
			release = engine.ReleaseLate
		}
		s, out.Err = release(round, c.Hold, c.Delay)
	case GiveBack:
		s, out.Err = engine.GiveBack(round, c.Hold)
	case Extend:
		out.LeaseUntil, out.Err = engine.Extend(round, c.Hold, c.Extend)
		out.State = task.Claimed
		return out
	}
	out.State, out.NextRunAt = s.State, s.NextRunAt
	return out
}

// Task reads a task, waiting up to wait for it to end.
func (b *Broker) Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*View, Stamp, error) {
	r, err := b.replica(id.Shard())
	if err != nil {
		return nil, Stamp{}, err
	}
	show := func(from store.Reader) (*View, error) {
		v, err := query.Show(from, ns, id)
		return seen(ctx, v, err)
	}
	if wait <= 0 {
		return read(ctx, r, show)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		v, at, again, err := r.taskOnce(ctx, id, show, timer.C)
		if !again {
			return v, at, err
		}
	}
}

// taskOnce reads a task and waits for its end, or until it must be read again because leadership has changed.
func (r *replica) taskOnce(ctx context.Context, id task.ID, show func(store.Reader) (*View, error), timeout <-chan time.Time) (v *View,
	at Stamp, again bool, err error) {
	changed, forget := r.results.wait(id)
	defer forget()
	v, at, err = read(ctx, r, show)
	if err != nil || v.Exec.State.Ended() {
		return v, at, false, err
	}
	select {
	case <-changed:
		return nil, at, true, nil
	case <-r.gone:
		return nil, at, false, &NotLeader{Shard: r.id}
	case <-timeout:
	case <-r.b.draining:
	case <-ctx.Done():
		return nil, at, false, ctx.Err()
	}
	v, at, err = read(ctx, r, show)
	return v, at, false, err
}

// Peek reads a task from this node's replica, whether it leads or not, and returns an upper bound on the age of the answer.
func (b *Broker) Peek(ctx context.Context, ns string, id task.ID) (*View, Stamp, time.Duration, error) {
	r, err := b.replica(id.Shard())
	if err != nil {
		return nil, Stamp{}, 0, err
	}
	v, at, age, err := shard.Peek(ctx, r.shard, func(from store.Reader) (*View, error) {
		v, err := query.Show(from, ns, id)
		return seen(ctx, v, err)
	})
	return v, at, age, r.refusal(err)
}
