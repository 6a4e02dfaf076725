package query

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/verb"
)

type eventArgs struct {
	Shard uint32
	Query events.Query
}

func eventWait(a *eventArgs) *time.Duration { return &a.Query.Wait }

// EventBroker has the events of the shards that this node leads.
type EventBroker interface {
	Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error)
}

// EventControl has the events of queues, where the system shard is led.
type EventControl interface {
	Events(ctx context.Context, q events.Query) (events.Page, error)
}

// Events reads the events of shards.
type Events struct {
	forward       *forward.Forwarder
	shard, system forward.Caller[eventArgs, events.Page]
}

// NewEvents returns a reader of events.
func NewEvents(f *forward.Forwarder, b EventBroker, c EventControl) *Events {
	return &Events{forward: f,
		shard: forward.Register(f, &forward.Method[eventArgs, events.Page]{Rule: verb.Rule{Name: "events", Idempotent: true}, Run: func(ctx context.Context, a eventArgs) (events.Page, error) {
			return b.Events(ctx, a.Shard, a.Query)
		}, Wait: eventWait}),
		system: forward.Register(f, &forward.Method[eventArgs, events.Page]{Rule: verb.Rule{Name: "events-system", Idempotent: true}, Run: func(ctx context.Context, a eventArgs) (events.Page, error) {
			page, err := c.Events(ctx, a.Query)
			return page, broker.Refusal(forward.SystemShard, err)
		}, Wait: eventWait}),
	}
}

// Events reads the events of a shard after a place, waiting for the first, wherever the shard is led. Those of the system shard are about
// queues.
func (e *Events) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	if shard == forward.SystemShard {
		return e.system.Call(ctx, shard, eventArgs{shard, q})
	}
	ctx, done := e.forward.Life.UntilDrain(ctx)
	defer done()
	return e.shard.Call(ctx, shard, eventArgs{shard, q})
}
