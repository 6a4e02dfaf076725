package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A spread queue is in several shards, and a call on the queue is one on each of its parts. Each part is consistent at one moment;
// the moments of the parts differ slightly.

// State is the state of a queue: in all, and of each of its parts.
type State struct {
	Sum   broker.QueueInfo
	Parts []broker.QueueInfo
}

// States asks the shards of queues for their state. A shard that does not answer is missing in all of its queues, and
// costs no more time with many of them than with one.
func (g Queues) States(ctx context.Context, qs ...queues.Queue) ([]verb.Partial[State], error) {
	type place struct{ queue, part int }
	places := map[uint32][]place{}
	out := make([]verb.Partial[State], len(qs))
	for i, q := range qs {
		out[i].Value.Parts = make([]broker.QueueInfo, len(q.Shards()))
		for j, shard := range q.Shards() {
			places[shard] = append(places[shard], place{i, j})
		}
	}
	shards := slices.Sorted(maps.Keys(places))
	infos, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) ([]broker.QueueInfo, error) {
		at := places[shards[i]]
		infos := make([]broker.QueueInfo, len(at))
		return infos, parallel.FirstError(parallel.Each(len(at), func(n int) error {
			out, err := broker.DescribeQueue.Call(ctx, g.Verbs, callinfo.OnQueue(ctx, shards[i], qs[at[n].queue].Name))
			if errors.Is(err, task.ErrNotFound) { // no task has come to this shard yet
				return nil
			}
			infos[n] = out.Info
			return err
		}))
	})
	if err != nil {
		return nil, err
	}
	for i, answered := range infos.Value {
		for n, info := range answered {
			at := places[shards[i]][n]
			out[at.queue].Value.add(at.part, info)
		}
	}
	for _, m := range infos.Missing {
		for _, at := range places[m.Shard] {
			out[at.queue].Missing = append(out[at.queue].Missing, m)
		}
	}
	return out, nil
}

func (s *State) add(part int, p broker.QueueInfo) {
	s.Parts[part] = p
	sum := &s.Sum
	sum.Scheduled, sum.Claimed, sum.Retrying = sum.Scheduled+p.Scheduled, sum.Claimed+p.Claimed, sum.Retrying+p.Retrying
	sum.Dead, sum.Poisoned, sum.Held = sum.Dead+p.Dead, sum.Poisoned+p.Poisoned, sum.Held+p.Held
	sum.OldestReady = max(sum.OldestReady, p.OldestReady)
	for i := range p.Ready {
		sum.Ready[i] += p.Ready[i]
	}
}

// Whole asks the shards of a queue for its state. It fails unless all of them answer: who decides by the numbers must
// not take fewer for all.
func (g Queues) Whole(ctx context.Context, q queues.Queue) (broker.QueueInfo, error) {
	all, err := g.States(ctx, q)
	if err != nil {
		return broker.QueueInfo{}, err
	}
	return all[0].Value.Sum, all[0].CheckAny(1)
}

// Purge discards the waiting tasks in all parts of a queue.
func (g Queues) Purge(ctx context.Context, by task.Author, q queues.Queue) (discarded int64, err error) {
	var sum atomic.Int64
	parts, err := g.runOn(ctx, q, func(ctx context.Context, shard uint32) error {
		out, err := broker.PurgeQueue.Call(ctx, g.Verbs, broker.QueueCommand{OnQueue: callinfo.OnQueue(ctx, shard, q.Name),
			Authored: broker.Authored{By: by}})
		sum.Add(out.Done)
		return err
	})
	discarded = sum.Load()
	if err == nil {
		err = unfinished(q, parts, fmt.Sprintf(" (%d tasks)", discarded))
	}
	return discarded, err
}

// DeadGroups counts dead letters by error, of a queue in some shards or of all queues with "", the largest group first.
// cut: there were more than a shard reads.
func (g Queues) DeadGroups(ctx context.Context, shards []uint32, queue string, s task.State) (groups verb.Partial[[]broker.Group],
	cut bool, err error) {
	found, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) (broker.DeadGrouped, error) {
		return broker.GroupDead.Call(ctx, g.Verbs, broker.DeadOf{OnQueue: callinfo.OnQueue(ctx, shards[i], queue), State: s})
	})
	if err == nil {
		err = found.CheckAny(len(shards))
	}
	all := make([][]broker.Group, len(found.Value))
	for i, f := range found.Value {
		all[i], cut = f.Groups, cut || f.Partial
	}
	return verb.Partial[[]broker.Group]{Value: broker.MergeGroups(all...), Missing: found.Missing}, cut, err
}

// Queues asks the shards that have parts of queues, and adds up what they answer.
type Queues struct {
	Verbs   verb.Runner
	Cluster Cluster
	Limits  task.Limits
}

// Describe asks a queue's shards for its state.
func (g Queues) Describe(ctx context.Context, q queues.Queue) (*pawlv1.Queue, error) {
	all, err := g.States(ctx, q)
	if err != nil {
		return nil, err
	}
	return QueueProto(q, all[0]), nil
}

// QueueProto converts a queue and its state.
func QueueProto(q queues.Queue, s verb.Partial[State]) *pawlv1.Queue {
	p := apiproto.QueueProto(q, s.Value.Sum, s.Value.Parts)
	p.Missing = apiproto.MissingProto(s.Missing)
	return p
}

// Known returns a queue that exists. Its parts may be those of this node's copy.
func (g Queues) Known(ctx context.Context, name string) (queues.Queue, error) {
	return g.existing(ctx, name, g.Cluster.Queue)
}

// Current returns a queue that exists, for a call that changes all of its parts: it must not skip one that this node's copy lacks.
func (g Queues) Current(ctx context.Context, name string) (queues.Queue, error) {
	return g.existing(ctx, name, g.Cluster.Current)
}

func (g Queues) existing(ctx context.Context, name string,
	read func(ctx context.Context, ns, name string) (queues.Queue, bool, error)) (queues.Queue, error) {
	if err := task.CheckQueue("queue", name, g.Limits); err != nil {
		return queues.Queue{}, err
	}
	q, ok, err := read(ctx, callinfo.Namespace(ctx), name)
	if err == nil && !ok {
		err = task.NotFound("queue", name)
	}
	return q, err
}
