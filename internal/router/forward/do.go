package forward

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Do implements verb.Runner: it runs a call of any verb where it belongs.
func (f *Forwarder) Do(ctx context.Context, c verb.Call) error {
	if err := f.admit(ctx, c); err != nil {
		return err
	}
	switch c.Rule().Where {
	case verb.AllShards:
		return f.onAllShards(ctx, c)
	case verb.Node:
		return f.atNode(ctx, c, c.Request().(verb.ToNode).TargetNode())
	case verb.EachNode:
		return f.atEachNode(ctx, c)
	case verb.Replica:
		return f.atReplica(ctx, c)
	case verb.FirstShard:
		home, err := f.FirstShard()
		if err != nil {
			return err
		}
		c.Request().(verb.AnyShard).SetShard(home)
	}
	return f.translateMoved(f.atLeader(ctx, c))
}

// Call runs a verb of a shard where the shard is led. If that is this node, it allocates nothing. Unlike Do, it does not check whether the
// object of the request exists, and returns Moved as it is. If this node has lost the lead while the call waited, the call waits elsewhere
// for the rest of its time.
func Call[Req, Resp any](ctx context.Context, f *Forwarder, v *verb.Verb[Req, Resp], shard uint32, req Req) (Resp, error) {
	began := time.Now()
	if f.Leads(shard) {
		out, err := CallLocal(ctx, f, v, req)
		if err == nil || !retryElsewhere(v.Rule(), err) {
			return out, err
		}
	}
	c := v.Make(req)
	shortenWait(c, began)
	err := f.seek(ctx, c)
	return c.Resp, err
}

// CallLocal runs a verb on this node. It allocates nothing.
func CallLocal[Req, Resp any](ctx context.Context, f *Forwarder, v *verb.Verb[Req, Resp], req Req) (Resp, error) {
	return v.CallLocal(ctx, f.cfg.Parts, req)
}

// CallRemote is Call for a shard that this node does not lead. It looks for the leader no longer than patience, if that is not 0.
func CallRemote[Req, Resp any](ctx context.Context, f *Forwarder, v *verb.Verb[Req, Resp], patience time.Duration, req Req) (Resp, error) {
	c := v.Make(req)
	err := f.seekFor(ctx, c, cmp.Or(patience, v.Rule().Patience))
	return c.Resp, err
}

// admit returns an error for a call that the shards' leaders could not handle, or that is about an object that cannot exist.
func (f *Forwarder) admit(ctx context.Context, c verb.Call) (err error) {
	request := c.Request()
	if n, ok := request.(verb.ByID); ok {
		kind, id := n.ObjectID()
		if err := f.CheckShard(ctx, n.TargetShard(), kind, id); err != nil {
			return err
		}
	}
	if h, ok := request.(verb.ByName); ok {
		home, err := f.ShardByName(ctx, h)
		if err != nil {
			return err
		}
		h.SetShard(home)
	}
	return nil
}

// atLeader runs a call where its shard is led.
func (f *Forwarder) atLeader(ctx context.Context, c verb.Call) error {
	if !f.Leads(c.Shard()) {
		return f.seek(ctx, c)
	}
	began := time.Now()
	err := f.here(ctx, c)
	if err == nil || !retryElsewhere(c.Rule(), err) {
		return err
	}
	shortenWait(c, began)
	return f.seek(ctx, c)
}

// onAllShards runs a call on all data shards, and merges their answers: those that there are, if the answer can say what is missing.
func (f *Forwarder) onAllShards(ctx context.Context, c verb.Call) error {
	shards := f.Shards()
	parts := verb.Split(c, len(shards), func(i int, request any) { request.(verb.AnyShard).SetShard(shards[i]) })
	if _, ok := c.Answer().(verb.MayLack); ok {
		out, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) (struct{}, error) {
			return struct{}{}, f.atLeader(ctx, parts[i])
		})
		if err == nil {
			err = out.CheckAny(len(shards))
		}
		if err != nil {
			return err
		}
		answered := slices.DeleteFunc(parts, func(p verb.Call) bool {
			return slices.ContainsFunc(out.Missing, func(m verb.Missing) bool { return m.Shard == p.Shard() })
		})
		return c.Merge(answered, out.Missing)
	}
	errs := EachShard(shards, func(i int, _ uint32) error { return f.atLeader(ctx, parts[i]) })
	if err := errors.Join(errs...); err != nil {
		return FirstRefusal(errs, err)
	}
	return c.Merge(parts, nil)
}

// CheckShard returns not_found for an object whose id names a shard that does not exist.
func (f *Forwarder) CheckShard(ctx context.Context, shard uint32, kind, id string) error {
	if f.Leads(shard) {
		return nil
	}
	exists, err := f.HasShard(ctx, shard)
	if err == nil && !exists {
		err = task.NotFound(kind, id)
	}
	return err
}

// CheckTask is CheckShard for a task.
func (f *Forwarder) CheckTask(ctx context.Context, id task.ID) error {
	return f.CheckShard(ctx, id.Shard(), "task", id.String())
}

// HasShard reports whether a data shard exists. One that this node's copy of the map does not know may be new.
func (f *Forwarder) HasShard(ctx context.Context, shard uint32) (bool, error) {
	if shard == SystemShard {
		return false, nil
	}
	if slices.Contains(f.Shards(), shard) {
		return true, nil
	}
	return cluster.HasShard.Call(ctx, f, shard)
}
