package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/notify"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Meter counts a queue's ready tasks in a shard.
type Meter = query.Meter

// CopyWatches updates a shard's copies of the namespaces' webhook subscriptions, which the system shard holds. Older versions are
// ignored.
func (b *Broker) CopyWatches(ctx context.Context, shardID uint32, watches map[string]task.Watch) error {
	r, err := b.replica(shardID)
	if err != nil {
		return err
	}
	_, _, err = changeWhenFree(ctx, r, func(round *engine.Round) (struct{}, error) {
		for ns, w := range watches {
			notify.PutWatch(round, ns, w)
		}
		return struct{}{}, nil
	})
	return err
}

// Meters counts the ready tasks in a shard of a namespace's queues that match the patterns. With since it also reads
// since when they have been ready.
func (b *Broker) Meters(ctx context.Context, shardID uint32, ns string, patterns []string, since bool) ([]Meter, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, err
	}
	all, _, err := read(ctx, r, func(from store.Reader) ([]Meter, error) { return query.Meters(from, ns, patterns, since) })
	return all, err
}
