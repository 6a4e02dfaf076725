package forward

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Some calls are for nodes, not for shards: each reports what it has seen itself.

// atNode runs a call on a node.
func (f *Forwarder) atNode(ctx context.Context, c verb.Call, node uint32) error {
	if node == f.cfg.Node {
		return f.here(ctx, c)
	}
	err := f.ask(ctx, c, SystemShard, node)
	if !retryElsewhere(c.Rule(), err) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return task.Unavailable(NoLeaderRetry, "%s did not answer: %s", f.nodeName(node), cause(err))
}

// AskNodes has several nodes run a verb of a node, in parallel. The answers are in the order of the nodes, with the
// zero value for those that did not answer within patience: they are away, or do not know the call yet.
func AskNodes[Req, Resp any](ctx context.Context, f *Forwarder, patience time.Duration, nodes []Node, v *verb.Verb[Req, Resp],
	req Req) (out verb.Partial[[]Resp]) {
	parts := verb.Split(v.Make(req), len(nodes), func(i int, request any) { request.(verb.AnyNode).SetNode(nodes[i].Number) })
	errs := f.askEach(ctx, patience, nodes, parts)
	out.Value = make([]Resp, len(nodes))
	for i, err := range errs {
		if err != nil {
			out.LacksNode(nodes[i].Name, err)
		} else {
			out.Value[i] = *parts[i].Answer().(*Resp)
		}
	}
	return out
}

// askEach runs a call on each of some nodes. Those that are late may still be running when it returns.
func (f *Forwarder) askEach(ctx context.Context, patience time.Duration, nodes []Node, calls []verb.Call) []error {
	_, errs := parallel.Ask(ctx, patience, len(nodes), func(ctx context.Context, i int) (struct{}, error) {
		return struct{}{}, f.atNode(ctx, calls[i], nodes[i].Number)
	})
	return errs
}

// atEachNode runs a call on all nodes, and merges the answers that it gets in time.
func (f *Forwarder) atEachNode(ctx context.Context, c verb.Call) error {
	nodes := f.Nodes()
	parts := verb.Split(c, len(nodes), func(int, any) {})
	var answered []verb.Call
	var lost verb.Partial[struct{}]
	for i, err := range f.askEach(ctx, cmp.Or(c.Rule().Patience, verb.PartTime), nodes, parts) {
		if err != nil {
			lost.LacksNode(nodes[i].Name, err)
		} else {
			answered = append(answered, parts[i])
		}
	}
	return c.Merge(answered, lost.Missing)
}

// atReplica runs a call on a node with a replica of its shard: this one if it has one, otherwise the first that answers.
func (f *Forwarder) atReplica(ctx context.Context, c verb.Call) (err error) {
	shard := c.Shard()
	replicas := f.Replicas(shard)
	if slices.Contains(replicas, f.cfg.Node) {
		if err = f.here(ctx, c); err == nil || !retryElsewhere(c.Rule(), err) {
			return err
		}
	}
	for _, node := range replicas {
		if node == f.cfg.Node {
			continue
		}
		if err = f.ask(ctx, c, shard, node); err == nil || !retryElsewhere(c.Rule(), err) {
			return err
		}
	}
	_, _ = c.EncodeRequest() // which clears the answer of the last one
	return task.Unavailable(NoLeaderRetry, "shard %d: none of its replicas answers: %v", shard, err)
}
