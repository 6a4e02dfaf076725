package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway"
	"github.com/pawlq/pawl/internal/metrics"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// queuesAge is the maximum age of the queues' figures on the metrics page, so that several scrapers cost no more than one.
	queuesAge = 5 * time.Second
	// statusTime bounds asking the shards that this node leads.
	statusTime = time.Second
)

// collector collects the figures of the metrics page when it is scraped.
type collector struct {
	cfg        Config
	health     *health
	replicas   *replicas
	names      nodeNames
	broker     *broker.Broker
	archive    interface{ Evicted() uint64 }
	auth       *auth.Authenticator
	registry   *registry.Registry
	dispatcher *webhooks.Dispatcher
	refused    metrics.Sum[refusals, uint32] // by shard, whose leaders count them
	// gateway returns the gateway; nil: there is none yet.
	gateway func() *gateway.Gateway
}

// born says which queue or namespace of a name there is, for stats.Recorder.
func (n *Node) born(q stats.Queue) (which int64, known bool) {
	if q.Name != "" {
		of, exists := n.copy.Queue(q.Namespace, q.Name)
		if !exists {
			return 0, n.copy.Version() > 0
		}
		return of.Config.CreatedAt.UnixNano(), true
	}
	if err := n.auth.CheckNamespace(q.Namespace); err != nil {
		return 0, errors.Is(err, task.ErrNotFound)
	}
	began, err := n.auth.Began(q.Namespace)
	return max(began.UnixNano(), 1), err == nil
}

// refusals are the requests that were refused because of a quota.
type refusals struct {
	namespace string
	quota     task.Quota
}

// page returns the metrics page.
func (c *collector) page(counted *stats.Recorder) *metrics.Page {
	return metrics.New(metrics.Sources{Version: c.cfg.Version, Stats: counted, Queues: c.queueMetrics, Shards: c.shardMetrics,
		Spaces: c.auth.Namespaces, Namespaces: c.quotaMetrics, Workers: c.workerMetrics, Node: c.nodeMetrics, Webhooks: c.hookMetrics,
		Process: true, Logger: c.cfg.Logger})
}

func (c *collector) queueMetrics(ctx context.Context) ([]metrics.Queue, error) {
	all, err := c.broker.QueueStatuses(ctx, queuesAge)
	out := make([]metrics.Queue, len(all))
	for i, s := range all {
		out[i] = metrics.Queue{Namespace: s.Namespace, Name: s.Queue, Scheduled: s.Scheduled, Ready: s.Ready, Claimed: s.Claimed,
			Retrying: s.Retrying, Dead: s.Dead, Poisoned: s.Poisoned, NewDead: s.NewDead, Looked: s.Examined, OldestReady: s.OldestReady,
			MaxWait: s.MaxWait}
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

// shardMetrics asks the shards that this node leads at the same time, so that the figures of one that hangs are missing alone.
func (c *collector) shardMetrics(ctx context.Context) (out []metrics.Shard) {
	ids := c.replicas.all()
	all, errs := parallel.Ask(ctx, statusTime, len(ids), func(ctx context.Context, i int) (m metrics.Shard, err error) {
		rep := c.replicas.get(ids[i])
		if rep == nil {
			return m, errNoMember
		}
		leader, _ := rep.shard.Leader()
		m = metrics.Shard{ID: ids[i], Leads: rep.shard.Leads(), HasLeader: leader != 0, LeaderChanges: rep.shard.LeaderChanges(),
			Applied: rep.state.Applied().Index, Bytes: rep.state.DiskBytes()}
		if m.Leads {
			m.Answers = c.leaderMetrics(ctx, rep, &m) == nil
		}
		return m, nil
	})
	for i, m := range all {
		if errs[i] == nil {
			out = append(out, m)
		}
	}
	return out
}

// leaderMetrics adds what only the leader of a shard knows: how many entries the other replicas lag behind, which replicas differ, by node,
// how many rows were set apart, how many audit entries were removed early, and how many wait.
func (c *collector) leaderMetrics(ctx context.Context, rep *replica, m *metrics.Shard) error {
	st, err := rep.shard.Status(ctx)
	if err == nil {
		var n audit.Counts
		n, _, err = shard.View(ctx, rep.shard, audit.CountsOf)
		m.AuditEvicted, m.AuditWaiting = n.Evicted, n.Unexported
	}
	if err != nil {
		return err
	}
	if m.ID != systemShard { // the broker does not have it, and it sets no rows apart
		apart, err := c.broker.Apart(ctx, m.ID)
		if err != nil {
			return err
		}
		for _, n := range apart {
			m.Apart += n
		}
	}
	members := slices.Collect(maps.Keys(st.Progress))
	found := rep.differing.Of(members)
	m.Lag, m.Differs = map[string]uint64{}, map[string]bool{}
	for id, p := range st.Progress {
		node := c.names.node(uint64(nodeOf(id)))
		if id != st.Replica {
			m.Lag[node] = st.Applied - min(p.Match, st.Applied)
		}
		if len(members) > 1 {
			_, m.Differs[node] = found[id]
		}
	}
	return nil
}

// quotaMetrics returns the figures of the namespaces that have quotas.
func (c *collector) quotaMetrics(ctx context.Context) (out []metrics.Namespace) {
	var names []string
	for _, ns := range c.auth.Namespaces() {
		if q := c.auth.Quotas(ns); q != (task.Quotas{}) {
			names = append(names, ns)
			out = append(out, c.quotaMetric(ns, q))
		}
	}
	if len(names) == 0 {
		return nil
	}
	led, began := c.broker.Led(), c.refused.Begin()
	all, errs := parallel.Ask(ctx, statusTime, len(led), func(ctx context.Context, i int) ([]task.Space, error) {
		return broker.Spaces.Call(ctx, c.broker, broker.OnSpaces{Shard: led[i], Names: task.SpacesOf(names...)})
	})
	c.refused.Keep(func(r refusals) bool { return slices.Contains(names, r.namespace) })
	for i := range out {
		for f, quota := range task.ShareQuotas {
			if _, is := out[i].Quotas[string(quota)]; !is {
				continue
			}
			for _, spaces := range all {
				if spaces != nil {
					out[i].Usage[string(quota)] += *spaces[i].Use.Each()[f]
				}
			}
			out[i].Refused[string(quota)] = int64(c.refused.Of(began, refusals{names[i], quota}, led, func(shard int) (uint64,
				bool) { // #nosec G115 -- far below
				if errs[shard] != nil {
					return 0, false
				}
				return all[shard][i].Refused[f], true
			}))
		}
	}
	return out
}

// quotaMetric returns what is known of a namespace without asking its shards.
func (c *collector) quotaMetric(ns string, q task.Quotas) metrics.Namespace {
	m := metrics.Namespace{Name: ns, Quotas: map[string]int64{}, Usage: map[string]int64{}, Refused: map[string]int64{}}
	for _, quota := range task.ShareQuotas {
		if most := *q.Of(quota); most > 0 {
			m.Quotas[string(quota)], m.Usage[string(quota)], m.Refused[string(quota)] = most, 0, 0
		}
	}
	g := c.gateway()
	for _, quota := range []task.Quota{task.QuotaRequests, task.QuotaBytes} {
		if *q.Of(quota) > 0 && g != nil {
			m.Refused[string(quota)] = g.Refused(ns, quota)
		}
	}
	return m
}

func (c *collector) workerMetrics() (out []metrics.Workers) {
	for ns, c := range c.registry.Counts() {
		out = append(out, metrics.Workers{Namespace: ns, Queues: c.Workers, Busy: c.Busy, Free: c.Free})
	}
	return out
}

func (c *collector) nodeMetrics() (m metrics.Node) {
	if !c.cfg.InMemory {
		m.DiskFree, m.DiskTotal, _ = c.cfg.diskBytes(c.cfg.Dir) // 0: unknown
		m.MinFree = c.cfg.MinFree
	}
	m.ClockOffset = time.Duration(c.health.offset.Load())
	m.LogBytes, m.ArchiveEvicted = c.replicas.log.DiskBytes(), c.archive.Evicted()
	if g := c.gateway(); g != nil {
		m.Slowed = g.Slowed()
	}
	m.CertificateEnds = c.health.certs.Ends()
	m.Events, m.EventsLost = map[string]metrics.Events{}, c.cfg.Trail.Lost()
	for kind, n := range c.cfg.Trail.Counts() {
		m.Events[kind] = metrics.Events(n)
	}
	m.Refused = map[string]uint64{}
	for f, reason := range auth.FailureNames {
		m.Refused[reason] = c.auth.Failed(auth.Failure(f))
	}
	return m
}

func (c *collector) hookMetrics(ctx context.Context) metrics.Webhooks {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	return metrics.Webhooks(c.dispatcher.Counts(ctx))
}
