package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// A queue that is shared out lies in several shards, and a call on the queue is one on each of its parts. Each part is exact at
// one moment; the moments of the parts differ by a little.

// infoOf asks the parts of a queue how they stand, and adds that up.
func (g *Gateway) infoOf(ctx context.Context, q cluster.Queue) (sum broker.QueueInfo, parts []broker.QueueInfo, err error) {
	shards := q.Shards()
	parts = make([]broker.QueueInfo, len(shards))
	errs := each(len(shards), func(i int) error {
		info, at, err := g.broker.Queue(ctx, shards[i], namespaceOf(ctx), q.Name)
		saw(ctx, at)
		if err == nil {
			parts[i] = info
		}
		if errors.Is(err, task.ErrNotFound) { // no task came to this shard yet
			err = nil
		}
		return err
	})
	for _, p := range parts {
		sum.Scheduled, sum.Claimed, sum.Retrying = sum.Scheduled+p.Scheduled, sum.Claimed+p.Claimed, sum.Retrying+p.Retrying
		sum.Dead, sum.Poisoned, sum.Held = sum.Dead+p.Dead, sum.Poisoned+p.Poisoned, sum.Held+p.Held
		sum.OldestReady = max(sum.OldestReady, p.OldestReady)
		for i := range p.Ready {
			sum.Ready[i] += p.Ready[i]
		}
	}
	return sum, parts, firstError(errs)
}

// purge discards the tasks that wait in all parts of a queue.
func (g *Gateway) purge(ctx context.Context, by task.Author, q cluster.Queue) (discarded int64, err error) {
	for _, shard := range q.Shards() {
		n, at, err := g.broker.Purge(ctx, by, shard, namespaceOf(ctx), q.Name)
		saw(ctx, at)
		discarded += n
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return discarded, err
		}
	}
	return discarded, nil
}

// groupDead counts the dead letters that read alike, of a queue in some shards or of all with "", the largest group first.
func (g *Gateway) groupDead(ctx context.Context, shards []uint32, queue string, s task.State) (groups []broker.Group, partial bool, err error) {
	found := make([][]broker.Group, len(shards))
	cut := make([]bool, len(shards))
	errs := each(len(shards), func(i int) (err error) {
		var at broker.Stamp
		found[i], cut[i], at, err = g.broker.DeadGroups(ctx, shards[i], namespaceOf(ctx), queue, s)
		saw(ctx, at)
		return err
	})
	return broker.MergeGroups(found...), slices.Contains(cut, true), firstError(errs)
}

// bulk does something with selected dead letters, part by part.
func (g *Gateway) bulk(ctx context.Context, q cluster.Queue, s broker.Selection,
	do func(ctx context.Context, shard uint32, ns string, s broker.Selection) (matched, done int64, at broker.Stamp, err error)) (matched, done int64, err error) {
	shards := q.Shards()
	if s.Rate > 0 { // the parts run side by side when they are due
		s.Rate /= float64(len(shards))
	}
	for _, shard := range shards {
		part := s
		if s.IDs != nil {
			part.IDs = slices.DeleteFunc(slices.Clone(s.IDs), func(id task.ID) bool { return q.Spread() && id.Shard() != shard })
		}
		if s.Max > 0 {
			part.Max = s.Max - matched
		}
		m, n, at, err := do(ctx, shard, namespaceOf(ctx), part)
		saw(ctx, at)
		matched, done = matched+m, done+n
		if err != nil || s.Max > 0 && matched >= s.Max {
			return matched, done, err
		}
	}
	return matched, done, nil
}
