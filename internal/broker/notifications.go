package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/notify"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Meter is how many ready tasks a queue has in a shard.
type Meter = query.Meter

// CopyWatches makes a shard's copies of what the webhooks of namespaces want to hear of what the system shard says. Older versions change
// nothing.
func (b *Broker) CopyWatches(ctx context.Context, shardID uint32, watches map[string]task.Watch) error {
	r, err := b.replica(shardID)
	if err != nil {
		return err
	}
	_, _, err = change(ctx, r, func(round *engine.Round) (struct{}, error) {
		for ns, w := range watches {
			notify.PutWatch(round, ns, w)
		}
		return struct{}{}, nil
	})
	return err
}

// Meters reads how many ready tasks the queues of a namespace have in a shard, those that patterns name, and with since how long.
func (b *Broker) Meters(ctx context.Context, shardID uint32, ns string, patterns []string, since bool) ([]Meter, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, err
	}
	all, _, err := read(ctx, r, func(from store.Reader) ([]Meter, error) { return query.Meters(from, ns, patterns, since) })
	return all, err
}
