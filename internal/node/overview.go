package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

const (
	// methodReport asks a node for its report.
	methodReport = "report"
	// overviewTime is how long to look for the leader of the system shard, and how long a node may take for its report:
	// less than callers of the overview wait.
	overviewTime = 1500 * time.Millisecond
)

// Overview implements gateway.Admin. Which nodes answer is what this node sees now. The rest is from the leader of the
// system shard, or from this node's copy if nobody leads it.
func (a *clusterAdmin) Overview(ctx context.Context) (cluster.Overview, error) {
	brief, cancel := context.WithTimeout(ctx, overviewTime)
	defer cancel()
	seen := make(chan map[uint32]cluster.Report, 1)
	m := a.copy.Map()
	go func() { seen <- a.reports(brief, m) }()
	o, err := cluster.GetOverview.Call(brief, a.router, verb.Nothing{})
	refused, isRefusal := task.AsError(err)
	switch {
	case err == nil:
	case ctx.Err() != nil || isRefusal && refused.Code != task.CodeUnavailable || !isRefusal && !errors.Is(err, context.DeadlineExceeded) ||
		len(m.Nodes) == 0:
		return o, err
	default:
		o = cluster.OwnView(a.identity.Read().Name, m, a.routerMap.Age())
	}
	o.Look(<-seen)
	return o, nil
}

// reports returns the reports of the nodes that answer.
func (a *clusterAdmin) reports(ctx context.Context, m *cluster.Map) map[uint32]cluster.Report {
	var mu sync.Mutex
	all := map[uint32]cluster.Report{}
	var asked sync.WaitGroup
	for _, node := range m.Members() {
		asked.Go(func() {
			var r cluster.Report
			answer, err := a.peers.ask(ctx, node.Number, methodReport, nil)
			if err != nil || cbor.Unmarshal(answer, &r) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all[node.Number] = r
		})
	}
	asked.Wait()
	return all
}
