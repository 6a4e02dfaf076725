package router

import (
	"context"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

type breakerArgs struct {
	Shard     uint32
	Namespace string
	Queue     string
	Type      string
	By        task.Author
}

type breakerAnswer struct {
	Closed int
	At     broker.Stamp
}

var closeBreakers = &method[breakerArgs, breakerAnswer]{name: "close-breakers", again: true,
	run: func(ctx context.Context, r *Router, a breakerArgs) (out breakerAnswer, err error) {
		out.Closed, out.At, err = r.cfg.Broker.CloseBreakers(ctx, a.By, a.Shard, a.Namespace, a.Queue, a.Type)
		return out, err
	}}

// CloseBreakers closes the breaker of a type of a queue in a shard, or for "" all of them. It may run twice without harm: one that
// has opened again meanwhile is closed again, which is what was asked for.
func (r *Router) CloseBreakers(ctx context.Context, by task.Author, shard uint32, ns, name, typ string) (int, broker.Stamp, error) {
	by, err := r.noted(by)
	if err != nil {
		return 0, broker.Stamp{}, err
	}
	out, err := call(ctx, r, closeBreakers, shard, breakerArgs{Shard: shard, Namespace: ns, Queue: name, Type: typ, By: by})
	return out.Closed, out.At, err
}
