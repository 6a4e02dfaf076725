package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// chunk bounds the tasks that one round of a bulk call changes, so that other calls are not held up.
const chunk = 500

// CopyQueues makes a shard's copies of queue configurations what the system shard says. Older versions change nothing.
func (b *Broker) CopyQueues(ctx context.Context, shardID uint32, ns string, configs map[string]task.QueueConfig) error {
	r, err := b.replica(shardID)
	if err != nil {
		return err
	}
	_, _, err = change(ctx, r, func(round *engine.Round) (struct{}, error) {
		for name, c := range configs {
			engine.PutQueue(round, ns, name, c)
		}
		return struct{}{}, nil
	})
	return err
}

// CopiedQueues are the queues that the state of a shard has copies of.
func CopiedQueues(from store.Reader) ([]engine.CopiedQueue, error) { return engine.CopiedQueues(from) }

// DropQueue removes a shard's copy of an empty queue.
func (b *Broker) DropQueue(ctx context.Context, shardID uint32, ns, name string) error {
	r, err := b.replica(shardID)
	if err != nil {
		return err
	}
	_, _, err = change(ctx, r, func(round *engine.Round) (struct{}, error) {
		return struct{}{}, engine.DropQueue(round, ns, name)
	})
	return err
}

// KeysUntil is when the last idempotency key ends that a queue has in a shard; 0: it has none.
func (b *Broker) KeysUntil(ctx context.Context, shardID uint32, ns, name string) (Time, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return 0, err
	}
	last, _, err := read(ctx, r, func(from store.Reader) (Time, error) { return engine.KeysUntil(from, ns, name) })
	return last, err
}

// HoldsUnique says whether a unique key of a queue is held in a shard by a task of one of the slots.
func (b *Broker) HoldsUnique(ctx context.Context, shardID uint32, ns, name string, slots task.SlotSet) (bool, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return false, err
	}
	held, _, err := read(ctx, r, func(from store.Reader) (bool, error) { return engine.HoldsUnique(from, ns, name, slots) })
	return held, err
}

// Queue tells how a queue stands in a shard.
func (b *Broker) Queue(ctx context.Context, shardID uint32, ns, name string) (QueueInfo, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return QueueInfo{}, Stamp{}, err
	}
	return change(ctx, r, func(round *engine.Round) (QueueInfo, error) { return engine.DescribeQueue(round, ns, name) })
}

// Purge discards the tasks of a queue that wait at the time of the call.
func (b *Broker) Purge(ctx context.Context, by task.Author, shardID uint32, ns, name string) (total int64, at Stamp, err error) {
	r, err := b.replica(shardID)
	if err != nil {
		return 0, Stamp{}, err
	}
	type step struct {
		n      int
		more   bool
		before store.Time
	}
	var before store.Time
	of := newBulk(by, task.QueuePurged, name, nil)
	for more := true; more; {
		var s step
		s, at, err = change(ctx, r, func(round *engine.Round) (s step, err error) {
			if s.before = before; before == 0 {
				s.before = round.Now()
			}
			if s.n, s.more, err = engine.Purge(round, ns, name, s.before, chunk); err == nil {
				of.Did(round, ns, int64(s.n))
			}
			return s, err
		})
		if err != nil {
			return total, at, halfway(err, total)
		}
		total += int64(s.n)
		more, before = s.more, s.before
	}
	return total, at, nil
}

// DeadGroups counts the dead letters or poisoned tasks of a queue, or of all with "", by type and normalised message. Partial says that
// there are more than one call reads.
func (b *Broker) DeadGroups(ctx context.Context, shardID uint32, ns, queue string, s task.State) (groups []Group, partial bool, at Stamp, err error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, false, Stamp{}, err
	}
	type answer struct {
		groups  []Group
		partial bool
	}
	a, at, err := read(ctx, r, func(from store.Reader) (a answer, err error) {
		now, _ := r.shard.Now()
		a.groups, a.partial = query.GroupDead(from, ns, queue, task.ScopeOf(ctx), s, now)
		return a, nil
	})
	return a.groups, a.partial, at, err
}

// Replay puts selected dead letters or poisoned tasks back into their queue, keeping id, key and attempt log.
func (b *Broker) Replay(ctx context.Context, shardID uint32, ns string, s Selection) (matched, done int64, at Stamp, err error) {
	r, err := b.replica(shardID)
	if err != nil {
		return 0, 0, Stamp{}, err
	}
	of := newBulk(s.By, task.DeadReplayed, s.Queue, s.facts())
	return b.bulk(ctx, shardID, ns, s, func(views []*View, done int64) (int64, Stamp, error) {
		return withQueues(ctx, r, ns, []string{s.Queue}, func(round *engine.Round) (n int64, err error) {
			for i, v := range views {
				delay := time.Duration(0)
				if s.Rate > 0 {
					delay = time.Duration(float64(done+int64(i)) / s.Rate * float64(time.Second))
				}
				if engine.Retry(round, ns, v.ID, delay) == nil { // refused if someone was faster, or has its unique key
					n++
				}
			}
			of.Did(round, ns, n)
			return n, nil
		})
	})
}

// DiscardDead drops selected dead letters or poisoned tasks; each is archived first.
func (b *Broker) DiscardDead(ctx context.Context, shardID uint32, ns string, s Selection) (matched, done int64, at Stamp, err error) {
	r, err := b.replica(shardID)
	if err != nil {
		return 0, 0, Stamp{}, err
	}
	of := newBulk(s.By, task.DeadDiscarded, s.Queue, s.facts())
	return b.bulk(ctx, shardID, ns, s, func(views []*View, _ int64) (int64, Stamp, error) {
		if err := b.file(causeDiscard, views); err != nil {
			return 0, Stamp{}, err
		}
		return change(ctx, r, func(round *engine.Round) (n int64, err error) {
			for _, v := range views {
				if engine.Discard(round, ns, v.ID, v.Exec.EndedAt) == nil {
					n++
				}
			}
			of.Did(round, ns, n)
			return n, nil
		})
	})
}

// bulk does something with all selected tasks, chunk by chunk, the newest first. Do is told how many were done before.
func (b *Broker) bulk(ctx context.Context, shardID uint32, ns string, s Selection, do func(views []*View, done int64) (int64, Stamp, error)) (matched, done int64, at Stamp, err error) {
	pages := b.pages(shardID, ns, s)
	for {
		views, last, pageAt, err := pages(ctx)
		if err != nil {
			return matched, done, pageAt, halfway(err, done)
		}
		at = pageAt
		if s.Max > 0 {
			views = views[:min(int64(len(views)), s.Max-matched)]
		}
		matched += int64(len(views))
		if len(views) > 0 && !s.DryRun {
			n, doneAt, err := do(views, done)
			if err != nil {
				return matched, done, doneAt, halfway(err, done)
			}
			done += n
			at = doneAt
		}
		if last || s.Max > 0 && matched >= s.Max {
			return matched, done, at, nil
		}
	}
}

// pages returns a function that reads the selected tasks a chunk at a time.
func (b *Broker) pages(shardID uint32, ns string, s Selection) func(context.Context) (views []*View, last bool, at Stamp, err error) {
	if s.IDs != nil {
		return func(ctx context.Context) ([]*View, bool, Stamp, error) { return b.byID(ctx, shardID, ns, s) }
	}
	f := s.Filter
	f.Queue, f.States = s.Queue, []task.State{s.State}
	var cursor []byte
	return func(ctx context.Context) ([]*View, bool, Stamp, error) {
		p, at, err := b.Tasks(ctx, shardID, ns, f, cursor, chunk)
		cursor = p.Next
		return p.Tasks, cursor == nil, at, err
	}
}

// byID reads the named tasks that are in the selected queue and state.
func (b *Broker) byID(ctx context.Context, shardID uint32, ns string, s Selection) ([]*View, bool, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, true, Stamp{}, err
	}
	views, at, err := read(ctx, r, func(from store.Reader) (views []*View, err error) {
		for _, id := range s.IDs {
			if v, err := query.Show(from, ns, id); err == nil && v.Exec.State == s.State && v.Queue == s.Queue {
				views = append(views, v)
			}
		}
		return views, nil
	})
	return views, true, at, err
}
