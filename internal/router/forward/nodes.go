package forward

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Some calls are for nodes, not for shards: each reports what it has seen itself.

func (m *registered[A, R]) OnNode(ctx context.Context, node Node, args A) (R, error) {
	if node.Number == m.f.cfg.Node {
		return m.Run(ctx, args)
	}
	c := m.make(SystemShard, args)
	err := m.f.ask(ctx, c, SystemShard, node.Number)
	if retryElsewhere(&m.Rule, err) {
		err = task.Unavailable(NoLeaderRetry, "node %q did not answer: %v", node.Name, err)
	}
	return c.Resp, err
}

func (m *registered[A, R]) OnNodes(ctx context.Context, patience time.Duration, nodes []Node, args A) ([]R, []error) {
	return onEach(ctx, patience, nodes, func(ctx context.Context, n Node) (R, error) { return m.OnNode(ctx, n, args) })
}

func (m *registered[A, R]) OnAllNodes(ctx context.Context, patience time.Duration, args A) (answers []R, missing []string) {
	nodes := m.f.Nodes()
	all, errs := onEach(ctx, patience, nodes, func(ctx context.Context, n Node) (R, error) {
		c := m.make(SystemShard, args)
		if n.Number == m.f.cfg.Node {
			err := m.f.safely(ctx, c, m.f.here)
			return c.Resp, err
		}
		err := m.f.ask(ctx, c, SystemShard, n.Number)
		return c.Resp, err
	})
	for i, n := range nodes {
		if errs[i] == nil {
			answers = append(answers, all[i])
		} else {
			missing = append(missing, n.Name)
		}
	}
	return answers, missing
}

func onEach[R any](ctx context.Context, patience time.Duration, nodes []Node, run func(context.Context, Node) (R, error)) ([]R, []error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers, errs := make([]R, len(nodes)), make([]error, len(nodes))
	var calls sync.WaitGroup
	for i, n := range nodes {
		calls.Go(func() { answers[i], errs[i] = run(ctx, n) })
	}
	calls.Wait()
	return answers, errs
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
