package router

import (
	"context"
	"sync"
	"time"
)

// Some calls are for nodes, not for shards: each reports what it has seen itself.

// nodeTime bounds the wait for a node if the answer is useful without it.
const nodeTime = 2 * time.Second

// eachNode runs a method on all nodes in parallel, and names those that did not answer in time: they are away, or do not know the call yet.
func eachNode[A, R any](ctx context.Context, r *Router, m *method[A, R], patience time.Duration, args A) (answers []R, missing []string) {
	nodes := r.cfg.Map.Nodes()
	if len(nodes) == 0 {
		nodes = []Node{{Number: r.cfg.Node}}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, errs := make([]R, len(nodes)), make([]error, len(nodes))
	var calls sync.WaitGroup
	for i, n := range nodes {
		calls.Go(func() {
			c := m.call(systemShard, args)
			if n.Number == r.cfg.Node {
				errs[i] = r.safely(ctx, c, r.here)
			} else {
				errs[i] = r.ask(ctx, c, systemShard, n.Number)
			}
			out[i] = c.Resp
		})
	}
	calls.Wait()
	for i, n := range nodes {
		if errs[i] == nil {
			answers = append(answers, out[i])
		} else {
			missing = append(missing, n.Name)
		}
	}
	return answers, missing
}
