package router

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/verb"
)

type eventArgs struct {
	Shard uint32
	Query events.Query
}

func eventWait(a *eventArgs) *time.Duration { return &a.Query.Wait }

var (
	shardEvents = serve(&method[eventArgs, events.Page]{Rule: verb.Rule{Name: "events", Idempotent: true}, run: func(ctx context.Context, r *Router, a eventArgs) (events.Page, error) {
		return r.cfg.Broker.Events(ctx, a.Shard, a.Query)
	}, wait: eventWait})
	systemEvents = func() *method[eventArgs, events.Page] {
		m := onSystem("events-system", true, func(ctx context.Context, c Control, a eventArgs) (events.Page, error) { return c.Events(ctx, a.Query) })
		m.wait = eventWait
		return m
	}()
)

// Events reads the events of a shard after a place, waiting for the first, wherever the shard is led. Those of the system shard are about
// queues.
func (r *Router) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	if shard == systemShard {
		return call(ctx, r, systemEvents, shard, eventArgs{shard, q})
	}
	ctx, done := r.untilDrain(ctx)
	defer done()
	return call(ctx, r, shardEvents, shard, eventArgs{shard, q})
}
