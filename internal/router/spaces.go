package router

import (
	"context"

	"github.com/pawlq/pawl/internal/task"
)

type spaceArgs struct {
	Shard uint32
	Names []string
	Share task.Share
}

// All of them may be repeated: an older share changes nothing, and what is gone is gone.
var (
	spaces = &method[spaceArgs, []task.Space]{name: "spaces", again: true, run: func(ctx context.Context, r *Router, a spaceArgs) ([]task.Space, error) {
		return r.cfg.Broker.Spaces(ctx, a.Shard, a.Names)
	}}
	putShare = &method[spaceArgs, task.Space]{name: "put-share", again: true, run: func(ctx context.Context, r *Router, a spaceArgs) (task.Space, error) {
		return r.cfg.Broker.PutShare(ctx, a.Shard, a.Names[0], a.Share)
	}}
	eraseNamespace = &method[spaceArgs, nothing]{name: "erase-namespace", again: true, run: func(ctx context.Context, r *Router, a spaceArgs) (nothing, error) {
		return nothing{}, r.cfg.Broker.EraseNamespace(ctx, a.Shard, a.Names[0])
	}}
)

// Spaces tells what namespaces use of a shard, in their order.
func (r *Router) Spaces(ctx context.Context, shard uint32, names []string) ([]task.Space, error) {
	return call(ctx, r, spaces, shard, spaceArgs{Shard: shard, Names: names})
}

// PutShare replaces a namespace's share of a shard, unless the one that is there is as new, and tells what it uses.
func (r *Router) PutShare(ctx context.Context, shard uint32, ns string, to task.Share) (task.Space, error) {
	return call(ctx, r, putShare, shard, spaceArgs{Shard: shard, Names: []string{ns}, Share: to})
}

// EraseNamespace removes what a shard has of a namespace without queues.
func (r *Router) EraseNamespace(ctx context.Context, shard uint32, ns string) error {
	_, err := call(ctx, r, eraseNamespace, shard, spaceArgs{Shard: shard, Names: []string{ns}})
	return err
}
