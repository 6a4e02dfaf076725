package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// webhookCalls is the gateway.Webhooks: it sends from this node.
type webhookCalls struct {
	*webhook.Sender // it checks addresses
	test            func(context.Context, webhooks.Name) (webhooks.Delivery, error)
}

func newWebhooks(r *forward.Forwarder, p *webhooks.Dispatcher, s *webhook.Sender) *webhookCalls {
	return &webhookCalls{Sender: s, test: forward.OnSystem(r, "test-webhook", true, func(ctx context.Context, q webhooks.Name) (webhooks.Delivery, error) {
		return p.Test(ctx, q.By, q.Namespace, q.Name)
	})}
}

// TestWebhook implements gateway.Webhooks.
func (w *webhookCalls) TestWebhook(ctx context.Context, by task.Author, ns, name string) (webhooks.Delivery, error) {
	return w.test(ctx, webhooks.Name{Namespace: ns, Name: name, By: by})
}

// meterArgs say which queues' ready tasks to count.
type meterArgs struct {
	Namespace string
	Patterns  []string
	Since     bool
}

// watches are the calls on data shards that webhooks need, wherever those are led.
type watches struct {
	shards func() []uint32
	copy   func(ctx context.Context, shard uint32, w map[string]task.Watch) (struct{}, error)
	meters func(ctx context.Context, shard uint32, a meterArgs) ([]broker.Meter, error)
}

func newWatches(r *forward.Forwarder, b *broker.Broker, shards func() []uint32) *watches {
	return &watches{
		shards: shards,
		copy: forward.OnShard(r, "copy-watches", true, func(ctx context.Context, id uint32, w map[string]task.Watch) (struct{}, error) {
			return struct{}{}, b.CopyWatches(ctx, id, w)
		}),
		meters: forward.OnShard(r, "meters", true, func(ctx context.Context, id uint32, a meterArgs) ([]broker.Meter, error) {
			return b.Meters(ctx, id, a.Namespace, a.Patterns, a.Since)
		}),
	}
}

// depths adds up the shards' counts for queues.
func (w *watches) depths(ctx context.Context, ns string, patterns []string, since bool) (all []webhooks.Depth, missing bool) {
	shards := w.shards()
	meters := make([][]broker.Meter, len(shards))
	errs := forward.EachShard(shards, func(i int, shard uint32) (err error) {
		meters[i], err = w.meters(ctx, shard, meterArgs{ns, patterns, since})
		return err
	})
	at := map[string]int{}
	now := store.TimeOf(time.Now())
	for i, some := range meters {
		if errs[i] != nil {
			missing = true
			continue
		}
		for _, m := range some {
			i, known := at[m.Queue]
			if !known {
				i = len(all)
				at[m.Queue], all = i, append(all, webhooks.Depth{Queue: m.Queue})
			}
			all[i].Ready += m.Ready
			if m.Since != 0 {
				all[i].Wait = max(all[i].Wait, now.Sub(m.Since))
			}
		}
	}
	return all, missing
}
