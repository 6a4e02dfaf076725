package fanout

import (
	"context"
	"errors"
	"slices"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/convert"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A spread queue is in several shards, and a call on the queue is one on each of its parts. Each part is consistent at one moment;
// the moments of the parts differ slightly.

// Info asks the parts of a queue for their state, and adds them up.
func (g Queues) Info(ctx context.Context, q queues.Queue) (sum broker.QueueInfo, parts []broker.QueueInfo, err error) {
	shards := q.Shards()
	parts = make([]broker.QueueInfo, len(shards))
	errs := Each(len(shards), func(i int) error {
		out, err := broker.DescribeQueue.Call(ctx, g.Verbs, callinfo.OnQueue(ctx, shards[i], q.Name))
		if err == nil {
			parts[i] = out.Info
		}
		if errors.Is(err, task.ErrNotFound) { // no task has come to this shard yet
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
	return sum, parts, FirstError(errs)
}

// Purge discards the waiting tasks in all parts of a queue.
func (g Queues) Purge(ctx context.Context, by task.Author, q queues.Queue) (discarded int64, err error) {
	err = EachPart(q, func(shard uint32) error {
		out, err := broker.PurgeQueue.Call(ctx, g.Verbs, broker.QueueCommand{OnQueue: callinfo.OnQueue(ctx, shard, q.Name), Authored: broker.Authored{By: by}})
		discarded += out.Done
		return err
	})
	return discarded, err
}

// DeadGroups counts dead letters by error, of a queue in some shards or of all queues with "", the largest group first.
func (g Queues) DeadGroups(ctx context.Context, shards []uint32, queue string, s task.State) (groups []broker.Group, partial bool, err error) {
	found := make([][]broker.Group, len(shards))
	cut := make([]bool, len(shards))
	errs := Each(len(shards), func(i int) error {
		out, err := broker.GroupDead.Call(ctx, g.Verbs, broker.DeadOf{OnQueue: callinfo.OnQueue(ctx, shards[i], queue), State: s})
		found[i], cut[i] = out.Groups, out.Partial
		return err
	})
	return broker.MergeGroups(found...), slices.Contains(cut, true), FirstError(errs)
}

// Bulk runs a call on selected dead letters, part by part.
func (g Queues) Bulk(ctx context.Context, q queues.Queue, s broker.Selection, v *verb.Verb[broker.OnDead, broker.BulkDone]) (matched, done int64, err error) {
	shards := q.Shards()
	if s.Rate > 0 { // when due, the parts run in parallel
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
		out, err := v.Call(ctx, g.Verbs, broker.OnDead{OnShard: callinfo.OnShard(ctx, shard), Selection: part})
		matched, done = matched+out.Matched, done+out.Done
		if err != nil || s.Max > 0 && matched >= s.Max {
			return matched, done, err
		}
	}
	return matched, done, nil
}

// Queues asks the shards that have parts of queues, and adds up what they answer.
type Queues struct {
	Verbs   verb.Runner
	Cluster Cluster
	Limits  task.Limits
}

// Describe asks a queue's shards for its state.
func (g Queues) Describe(ctx context.Context, q queues.Queue) (*pawlv1.Queue, error) {
	sum, parts, err := g.Info(ctx, q)
	if err != nil {
		return nil, err
	}
	return convert.QueueProto(q, sum, parts), nil
}

// Known returns a queue that exists.
func (g Queues) Known(ctx context.Context, name string) (queues.Queue, error) {
	if err := task.CheckQueue("queue", name, g.Limits); err != nil {
		return queues.Queue{}, err
	}
	q, ok, err := g.Cluster.Queue(ctx, callinfo.Namespace(ctx), name)
	if err == nil && !ok {
		err = task.NotFound("queue", name)
	}
	return q, err
}
