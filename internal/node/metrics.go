package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/metrics"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// queuesAge is the maximum age of the queues' figures on the metrics page, so that several scrapers cost no more than one.
	queuesAge = 5 * time.Second
	// statusTime bounds asking a shard that this node leads how far its replicas are.
	statusTime = time.Second
)

// newMetrics returns the metrics page. Its figures are collected when it is scraped.
func (n *Node) newMetrics() *metrics.Page {
	return metrics.New(metrics.Sources{Version: n.cfg.Version, Stats: n.stats, Queues: n.queueMetrics, Shards: n.shardMetrics,
		Spaces: n.spaceMetrics, Namespaces: n.quotaMetrics, Workers: n.workerMetrics, Node: n.nodeMetrics, Webhooks: n.hookMetrics,
		Process: true, Logger: n.cfg.Logger})
}

func (n *Node) queueMetrics(ctx context.Context) ([]metrics.Queue, error) {
	all, err := n.broker.QueueStatuses(ctx, queuesAge)
	out := make([]metrics.Queue, len(all))
	for i, s := range all {
		out[i] = metrics.Queue{Namespace: s.Namespace, Name: s.Queue, Scheduled: s.Scheduled, Ready: s.Ready, Claimed: s.Claimed, Retrying: s.Retrying,
			Dead: s.Dead, Poisoned: s.Poisoned, NewDead: s.NewDead, Looked: s.Examined, OldestReady: s.OldestReady, MaxWait: s.MaxWait}
		out[i].Blocked = blocked(s)
	}
	return out, err
}

// blocked counts the ready tasks of a queue by what they wait for.
func blocked(s *broker.QueueStatus) map[string]int64 {
	m := map[string]int64{}
	for _, b := range s.Blocked {
		m[string(b.Why)] = b.Tasks
	}
	if s.Idle && !s.Examined {
		m[string(task.WhyNoWorker)] = s.Ready
		if s.Paused {
			m[string(task.WhyQueuePaused)] = s.Ready
		}
	}
	return m
}

func (n *Node) shardMetrics(ctx context.Context) (out []metrics.Shard) {
	for _, id := range n.replicas.all() {
		rep := n.replicas.get(id)
		if rep == nil {
			continue
		}
		leader, _ := rep.shard.Leader()
		m := metrics.Shard{ID: id, Leads: rep.shard.Leads(), HasLeader: leader != 0, LeaderChanges: rep.shard.LeaderChanges(), Applied: rep.state.Applied().Index,
			Bytes: rep.state.DiskBytes()}
		if m.Leads {
			m.Lag = n.lagOf(ctx, rep)
		}
		out = append(out, m)
	}
	return out
}

// lagOf returns how many entries the other replicas of a shard lag behind, by node.
func (n *Node) lagOf(ctx context.Context, rep *replica) map[string]uint64 {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	st, err := rep.shard.Status(ctx)
	if err != nil {
		return nil
	}
	lag := map[string]uint64{}
	for id, p := range st.Progress {
		if id != st.Replica {
			lag[n.nodeName(uint64(nodeOf(id)))] = st.Applied - min(p.Match, st.Applied)
		}
	}
	return lag
}

// spaceMetrics returns all namespaces. It is a method because the authenticator is created after the page.
func (n *Node) spaceMetrics() []string { return n.auth.Namespaces() }

// quotaMetrics returns the figures of the namespaces that have quotas.
func (n *Node) quotaMetrics(ctx context.Context) (out []metrics.Namespace) {
	var names []string
	for _, ns := range n.auth.Namespaces() {
		if q := n.auth.Quotas(ns); q != (task.Quotas{}) {
			names = append(names, ns)
			out = append(out, n.quotaMetric(ns, q))
		}
	}
	if len(names) == 0 {
		return nil
	}
	for _, id := range n.broker.Led() {
		spaces, err := broker.Spaces.Call(ctx, n.broker, broker.OnSpaces{Shard: id, Names: names})
		if err != nil {
			continue // another node leads it by now, and reports it
		}
		for i := range spaces {
			for f, quota := range task.ShareQuotas {
				if _, is := out[i].Quotas[string(quota)]; is {
					out[i].Usage[string(quota)] += *spaces[i].Use.Each()[f]
					out[i].Refused[string(quota)] += int64(spaces[i].Refused[f]) // #nosec G115 -- far below
				}
			}
		}
	}
	return out
}

// quotaMetric returns what is known of a namespace without asking its shards.
func (n *Node) quotaMetric(ns string, q task.Quotas) metrics.Namespace {
	m := metrics.Namespace{Name: ns, Quotas: map[string]int64{}, Usage: map[string]int64{}, Refused: map[string]int64{}}
	for _, quota := range task.ShareQuotas {
		if most := *q.Of(quota); most > 0 {
			m.Quotas[string(quota)], m.Usage[string(quota)], m.Refused[string(quota)] = most, 0, 0
		}
	}
	for _, quota := range []task.Quota{task.QuotaRequests, task.QuotaBytes} {
		if *q.Of(quota) > 0 && n.gateway != nil {
			m.Refused[string(quota)] = n.gateway.Refused(ns, quota)
		}
	}
	return m
}

func (n *Node) workerMetrics() (out []metrics.Workers) {
	for ns, c := range n.registry.Counts() {
		out = append(out, metrics.Workers{Namespace: ns, Queues: c.Workers, Busy: c.Busy, Free: c.Free})
	}
	return out
}

func (n *Node) nodeMetrics() (m metrics.Node) {
	if !n.cfg.InMemory {
		m.DiskFree, m.DiskTotal, _ = n.cfg.diskBytes(n.cfg.Dir) // 0: unknown
		m.MinFree = n.cfg.MinFree
	}
	m.ClockOffset = time.Duration(n.offset.Load())
	m.LogBytes = n.replicas.log.DiskBytes()
	if n.gateway != nil {
		m.CertificateEnds = n.gateway.CertificateEnds()
		m.Slowed = n.gateway.Slowed()
	}
	m.Refused = map[string]uint64{}
	for f, reason := range auth.FailureNames {
		m.Refused[reason] = n.auth.Failed(auth.Failure(f))
	}
	return m
}

func (n *Node) hookMetrics(ctx context.Context) metrics.Webhooks {
	if n.dispatcher == nil {
		return metrics.Webhooks{}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	return metrics.Webhooks(n.dispatcher.Counts(ctx))
}
