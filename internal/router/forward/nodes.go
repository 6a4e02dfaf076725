package forward

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Some calls are for nodes, not for shards: each reports what it has seen itself.

func (m *registered[A, R]) OnNode(ctx context.Context, node Node, args A) (R, error) {
	if node.Number == m.f.cfg.Node {
		return m.Run(ctx, args)
	}
	c := m.make(SystemShard, args)
	err := m.f.ask(ctx, c, SystemShard, node.Number)
	if retryElsewhere(&m.Rule, err) {
		if ctx.Err() != nil {
			return c.Resp, ctx.Err()
		}
		err = task.Unavailable(NoLeaderRetry, "node %q did not answer: %s", node.Name, cause(err))
	}
	return c.Resp, err
}

func (m *registered[A, R]) OnNodes(ctx context.Context, patience time.Duration, nodes []Node, args A) (out verb.Partial[[]R]) {
	answers, errs := parallel.Ask(ctx, patience, len(nodes), func(ctx context.Context, i int) (R, error) { return m.OnNode(ctx, nodes[i], args) })
	for i, err := range errs {
		if err != nil {
			answers[i] = *new(R)
			out.LacksNode(nodes[i].Name, err)
		}
	}
	out.Value = answers
	return out
}

func (m *registered[A, R]) OnAllNodes(ctx context.Context, patience time.Duration, args A) verb.Partial[[]R] {
	nodes := m.f.Nodes()
	out := m.OnNodes(ctx, patience, nodes, args)
	answered := out.Value[:0]
	for i, n := range nodes {
		if !slices.ContainsFunc(out.Missing, func(lost verb.Missing) bool { return lost.Node == n.Name }) {
			answered = append(answered, out.Value[i])
		}
	}
	out.Value = answered
	return out
}

func (m *registered[A, R]) OnReplica(ctx context.Context, shard uint32, args A) (out R, err error) {
	replicas := m.f.Replicas(shard)
	if slices.Contains(replicas, m.f.cfg.Node) {
		if out, err = m.Run(ctx, args); err == nil || !retryElsewhere(&m.Rule, err) {
			return out, err
		}
	}
	for _, node := range replicas {
		if node == m.f.cfg.Node {
			continue
		}
		c := m.make(shard, args)
		err = m.f.ask(ctx, c, shard, node)
		if out = c.Resp; err == nil || !retryElsewhere(&m.Rule, err) {
			return out, err
		}
	}
	return *new(R), task.Unavailable(NoLeaderRetry, "shard %d: none of its replicas answers: %v", shard, err)
}
