package fanout

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// EachPart runs do for the parts of a queue, in parallel: a shard that hangs or has no leader holds up no other. It skips shards that no
// task of the queue has come to yet. The error says what it did not do.
func (g Queues) EachPart(ctx context.Context, q queues.Queue, do func(ctx context.Context, shard uint32) error) error {
	parts, err := g.runOn(ctx, q, do)
	if err == nil {
		err = unfinished(q, parts, "")
	}
	return err
}

// runOn runs do for the parts of a queue whose shards answer.
func (g Queues) runOn(ctx context.Context, q queues.Queue,
	do func(ctx context.Context, shard uint32) error) (verb.Partial[[]struct{}], error) {
	shards := q.Shards()
	return verb.RunOnShards(ctx, shards, func(ctx context.Context, i int) error {
		_, err := broker.DescribeQueue.Call(ctx, g.Verbs, callinfo.OnQueue(ctx, shards[i], q.Name))
		return unlessAbsent(err)
	}, func(ctx context.Context, i int) error { return unlessAbsent(do(ctx, shards[i])) })
}

// unlessAbsent ignores that a shard does not have the queue yet.
func unlessAbsent(err error) error {
	if errors.Is(err, task.ErrNotFound) {
		return nil
	}
	return err
}

// repeatAfter is when a call may be repeated for the parts that it did not reach.
const repeatAfter = time.Second

// unfinished returns an error that names the parts of a queue in which a call was not done; nil: there are none.
func unfinished(q queues.Queue, parts verb.Partial[[]struct{}], did string) error {
	n := len(q.Shards())
	if err := parts.CheckAny(n); err != nil || len(parts.Missing) == 0 {
		return err
	}
	why := make([]string, len(parts.Missing))
	for i, m := range parts.Missing {
		why[i] = m.Explained()
	}
	return task.Unavailable(repeatAfter, "queue %q: the call is done in %d of its %d shards%s, and may be repeated for the rest: %s",
		q.Name, n-len(why), n, did, strings.Join(why, "; "))
}
