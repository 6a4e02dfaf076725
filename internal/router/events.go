package router

import (
	"context"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/queues"
)

// Events reads the events of shards.
type Events struct{ forward *forward.Forwarder }

// Events reads the events of a shard after a place, waiting for the first, wherever the shard is led. Those of the system shard are about
// queues.
func (e *Events) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	if shard == forward.SystemShard {
		return queues.ReadEvents.Call(ctx, e.forward, queues.EventQuery{Query: q})
	}
	ctx, done := e.forward.Life.UntilDrain(ctx)
	defer done()
	return ReadEvents.Call(ctx, e.forward, EventsIn{Shard: shard, Query: q})
}
