package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// methodReport asks a node for its report.
	methodReport = "report"
	// overviewTime is how long to look for the leader of the system shard, reportTime how long a node may take for its report:
	// together less than callers of the overview wait.
	overviewTime = time.Second
	reportTime   = 700 * time.Millisecond
)

// Overview implements gateway.Admin. It matters most when most nodes are down and nobody leads the system shard: then it returns
// this node's own view.
func (a *clusterAdmin) Overview(ctx context.Context) (cluster.Overview, error) {
	brief, cancel := context.WithTimeout(ctx, overviewTime)
	defer cancel()
	o, err := cluster.GetOverview.Call(brief, a.router, cluster.Nothing{})
	refused, isRefusal := task.AsError(err)
	if err == nil || ctx.Err() != nil || isRefusal && refused.Code != task.CodeUnavailable || !isRefusal && !errors.Is(err, context.DeadlineExceeded) {
		return o, err
	}
	m := a.copy.Map()
	if m == nil || len(m.Nodes) == 0 {
		return o, err
	}
	return cluster.OwnView(a.identity.Read().Name, m, a.reports(ctx, m), a.routerMap.Age()), nil
}

// reports returns the reports of the nodes that answer.
func (a *clusterAdmin) reports(ctx context.Context, m *cluster.Map) map[uint32]cluster.Report {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
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
