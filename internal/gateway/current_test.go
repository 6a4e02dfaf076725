package gateway

import (
	"context"
	"slices"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// staleCopies has copies of queues from before they were spread, and a system shard that has no time to say so.
type staleCopies struct{ fanout.Cluster }

func (staleCopies) Copied(_ context.Context, ns, name string) (queues.Queue, bool) {
	return queues.Queue{Namespace: ns, Name: name, Shard: 1}, true
}

func (c staleCopies) Queue(ctx context.Context, ns, name string) (queues.Queue, bool, error) {
	q, ok := c.Copied(ctx, ns, name)
	return q, ok, nil
}

// changedShards records in which shards a call changes something.
type changedShards struct {
	Broker
	in []uint32
}

func (b *changedShards) Do(ctx context.Context, c verb.Call) error {
	if slices.Contains([]string{"purge", "close-breakers"}, c.Rule().Name) {
		b.in = append(b.in, c.Shard())
	}
	return b.Broker.Do(ctx, c)
}

// Calls that change all parts of a queue change a new part too, although this node's copy of the queue lacks it.
func TestChangesOfAllPartsReadTheCurrentQueue(t *testing.T) {
	for what, do := range map[string]func(context.Context, *services) error{
		"purge": func(ctx context.Context, s *services) error {
			_, err := s.operator.PurgeQueue(ctx, &pawlv1.PurgeQueueRequest{Queue: "mail"})
			return err
		},
		"close breaker": func(ctx context.Context, s *services) error {
			_, err := s.operator.CloseBreaker(ctx, &pawlv1.CloseBreakerRequest{Queue: "mail"})
			return err
		},
		"purge by SQS": func(ctx context.Context, s *services) error {
			q, _, err := s.sqs.Queue(ctx, "mail")
			if err != nil {
				return err
			}
			return s.sqs.Purge(ctx, q)
		},
		"delete by SQS": func(ctx context.Context, s *services) error {
			q, _, err := s.sqs.Queue(ctx, "mail")
			if err != nil {
				return err
			}
			return s.sqs.DropQueue(ctx, q)
		},
	} {
		f := newFake(1, 2)
		g := newGateway(f)
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		put(t, g, ctx, "mail", 2, "1")
		if _, err := f.Spread(ctx, task.Author{}, "default", "mail", queues.SpreadTarget{Parts: 2}); err != nil {
			t.Fatal(err)
		}
		changed := &changedShards{Broker: f}
		g.cfg.Cluster, g.cfg.Broker = staleCopies{g.cfg.Cluster}, changed
		g.wire()
		err := do(ctx, g.services)
		if slices.Sort(changed.in); err != nil || !slices.Equal(slices.Compact(changed.in), []uint32{1, 2}) {
			t.Errorf("%s: %v, in shards %v, want both parts", what, err, changed.in)
		}
	}
}
