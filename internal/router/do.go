package router

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Do implements verb.Runner: it runs a call of any verb of the packages broker and cluster where it belongs.
func (r *Router) Do(ctx context.Context, c verb.Call) error {
	if err := r.admit(ctx, c); err != nil {
		return err
	}
	switch c.Rule().Where {
	case verb.AllShards:
		return r.onAllShards(ctx, c)
	case verb.FirstShard:
		home, err := r.firstShard()
		if err != nil {
			return err
		}
		c.Request().(verb.AnyShard).SetShard(home)
	}
	return r.translateMoved(r.atLeader(ctx, c))
}

// admit returns an error for a call that the shards' leaders could not handle, or that is about an object that cannot exist.
func (r *Router) admit(ctx context.Context, c verb.Call) (err error) {
	request := c.Request()
	if l, ok := request.(verb.LevelGated); ok {
		if field := l.NewField(); field != "" {
			if err := r.requireLevel(field); err != nil {
				return err
			}
		}
	}
	if n, ok := request.(verb.ByID); ok {
		kind, id := n.ObjectID()
		if err := r.checkShard(ctx, n.TargetShard(), kind, id); err != nil {
			return err
		}
	}
	if s, ok := request.(verb.Authored); ok {
		if *s.Author(), err = r.auditAuthor(*s.Author()); err != nil {
			return err
		}
	}
	if h, ok := request.(verb.ByName); ok {
		home, err := r.shardByName(ctx, h)
		if err != nil {
			return err
		}
		h.SetShard(home)
	}
	return nil
}

// atLeader runs a call where its shard is led.
func (r *Router) atLeader(ctx context.Context, c verb.Call) error {
	if !r.leads(c.Shard()) {
		return r.seek(ctx, c)
	}
	began := time.Now()
	err := r.here(ctx, c)
	if err == nil || !retryElsewhere(c.Rule(), err) {
		return err
	}
	shortenWait(c, began)
	return r.seek(ctx, c)
}

// onAllShards runs a call on all data shards, and merges their answers.
func (r *Router) onAllShards(ctx context.Context, c verb.Call) error {
	shards := r.cfg.Map.Shards()
	parts := c.Split(shards)
	errs := r.eachShard(shards, func(i int, _ uint32) error { return r.atLeader(ctx, parts[i]) })
	if err := errors.Join(errs...); err != nil {
		return firstRefusal(errs, err)
	}
	return c.Merge()
}

// checkShard returns not_found for an object whose id names a shard that does not exist.
func (r *Router) checkShard(ctx context.Context, shard uint32, kind, id string) error {
	if r.leads(shard) {
		return nil
	}
	exists, err := r.hasShard(ctx, shard)
	if err == nil && !exists {
		err = task.NotFound(kind, id)
	}
	return err
}
