package gateway

import (
	"context"
	"sync/atomic"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// CloseBreaker closes the breaker of a type, or those of all types for "", in all parts of a queue.
func (g *operatorService) CloseBreaker(ctx context.Context, r *pawlv1.CloseBreakerRequest) (*pawlv1.CloseBreakerResponse, error) {
	q, err := g.Current(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	if err := task.CheckName("type", r.GetType(), g.limits); err != nil {
		return nil, err
	}
	var closed atomic.Int64
	if err := g.EachPart(ctx, q, func(ctx context.Context, shard uint32) error {
		out, err := broker.CloseBreakers.Call(ctx, g.verbs, broker.BreakersOf{OnQueue: callinfo.OnQueue(ctx, shard, q.Name),
			Type: r.GetType(), Authored: broker.Authored{By: by}})
		closed.Add(int64(out.Closed))
		return err
	}); err != nil {
		return nil, err
	}
	g.log.Info("breaker closed by hand", "queue", q.Name, "type", r.GetType(), "closed", closed.Load(), "by", by)
	p, err := g.Describe(ctx, q)
	return &pawlv1.CloseBreakerResponse{Queue: p}, err
}
