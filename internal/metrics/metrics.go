package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawlq/pawl/internal/stats"
)

// Sources are where the figures come from.
type Sources struct {
	Version string
	Stats   *stats.Book
	// Queues tells how the queues stand in the shards that this node leads. What it gives is not changed.
	Queues func(ctx context.Context) ([]Queue, error)
	// Shards tells of the replicas of this node.
	Shards func(ctx context.Context) []Shard
	// Spaces lists all namespaces of the cluster, and Namespaces tells of those with quotas.
	Spaces     func() []string
	Namespaces func(ctx context.Context) []Namespace
	// Workers tells of the workers connected to this node.
	Workers func() []Workers
	// Node tells of the node itself.
	Node func() Node
	// Webhooks tells what the node has done for webhooks; nil: nobody does.
	Webhooks func(context.Context) Webhooks
	// Process adds the figures of the Go runtime and of the process.
	Process bool
	Logger  *slog.Logger // nil: none
}

// Queue is how a queue stands.
type Queue struct {
	Namespace, Name                                     string
	Scheduled, Ready, Claimed, Retrying, Dead, Poisoned int64
	NewDead                                             int64            // of Dead those of the last hour
	Looked                                              bool             // the rest is known
	OldestReady, MaxWait                                time.Duration    // MaxWait: of its settings
	Blocked                                             map[string]int64 // ready tasks by what they wait for
}

func (q *Queue) tasks() int64 {
	return q.Scheduled + q.Ready + q.Claimed + q.Retrying + q.Dead + q.Poisoned
}

// Shard is how a replica of this node stands.
type Shard struct {
	ID            uint32
	Leads         bool
	HasLeader     bool // this replica knows one
	LeaderChanges uint64
	Applied       uint64
	Bytes         uint64            // of its state on disk
	Lag           map[string]uint64 // of the other replicas, by node, in entries; if it leads
}

// Namespace is how a namespace stands, by quota.
type Namespace struct {
	Name    string
	Quotas  map[string]int64 // of the whole cluster
	Usage   map[string]int64 // of the shards that this node leads
	Refused map[string]int64 // by this node
}

// Workers are those of a namespace.
type Workers struct {
	Namespace  string
	Queues     map[string]int // how many take tasks of a queue
	Busy, Free int            // slots
}

// Webhooks is what a node has done for webhooks since it started.
type Webhooks struct {
	Delivered, Failed, Dropped uint64                    // notices, attempts, notices
	Oldest                     time.Duration             // of the notices that are to be sent
	Leads                      bool                      // the node leads the system shard, which sends them
	States                     map[string]map[string]int // how many webhooks there are, by namespace and state, if it leads
}

// Node is how the node stands. What is 0 is not known.
type Node struct {
	DiskFree, DiskTotal int64
	MinFree             int64         // bytes that must be free for new tasks to be taken
	ClockOffset         time.Duration // its wall clock less that of most others
	LogBytes            uint64
	CertificateEnds     time.Time
	Refused             map[string]uint64 // callers who were not let in, by reason; nil: not known
	Slowed              uint64            // those of them who had to wait for their refusal
}

const (
	// maxQueues bounds the queues with gauges of their own; the others are added up as stats.Other.
	maxQueues = 1000
	// maxScrapes bounds the scrapes at a time, and scrapeTime how long one may take.
	maxScrapes = 2
	scrapeTime = 10 * time.Second
	// gatherTime is how long the shards are asked.
	gatherTime = 5 * time.Second
)

// Page is the metrics of a node. Its methods may be called from any goroutine.
type Page struct {
	src      Sources
	handler  http.Handler
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	polls    *prometheus.HistogramVec
	streams  *prometheus.GaugeVec
	commit   *prometheus.HistogramVec
	fsync    *prometheus.HistogramVec
}

// New makes a page.
func New(src Sources) *Page {
	if src.Logger == nil {
		src.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Page{src: src, requests: newRequests(), duration: newCallTimes(requestSeconds), polls: newCallTimes(pollSeconds), streams: newStreams(), commit: newShardTimes(commitSeconds), fsync: newShardTimes(fsyncSeconds)}
	registry := prometheus.NewRegistry()
	registry.MustRegister(p, p.requests, p.duration, p.polls, p.streams, p.commit, p.fsync)
	if src.Process {
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	p.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(src.Logger.Handler(), slog.LevelWarn),
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime})
	return p
}

// ServeHTTP answers a scrape.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// Describe implements prometheus.Collector.
func (p *Page) Describe(to chan<- *prometheus.Desc) {
	for _, m := range gathered {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (p *Page) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gatherTime)
	defer cancel()
	buildInfo.gauge(to, 1, p.src.Version, runtime.Version())
	p.collectStats(to)
	p.collectQueues(ctx, to)
	for _, s := range p.src.Shards(ctx) {
		collectShard(to, &s)
	}
	for _, n := range p.src.Namespaces(ctx) {
		collectNamespace(to, &n)
	}
	for _, w := range p.src.Workers() {
		collectWorkers(to, &w)
	}
	if p.src.Webhooks != nil {
		w := p.src.Webhooks(ctx)
		hookDeliveries.counter(to, w.Delivered, "delivered")
		hookDeliveries.counter(to, w.Failed, "failed")
		hookDropped.counter(to, w.Dropped)
		if w.Leads {
			hookOldest.gauge(to, w.Oldest.Seconds())
		}
		for ns, of := range w.States {
			for state, n := range of {
				hooks.gauge(to, float64(n), ns, state)
			}
		}
	}
	n := p.src.Node()
	if n.DiskTotal > 0 {
		diskFree.gauge(to, float64(n.DiskFree))
		diskSize.gauge(to, float64(n.DiskTotal))
		diskMinFree.gauge(to, float64(n.MinFree))
	}
	clockOffset.gauge(to, n.ClockOffset.Seconds())
	logBytes.gauge(to, float64(n.LogBytes))
	if !n.CertificateEnds.IsZero() {
		certificateEnds.gauge(to, float64(n.CertificateEnds.Unix()))
	}
	for reason, times := range n.Refused {
		refused.counter(to, times, reason)
	}
	slowed.counter(to, n.Slowed)
}

// Of a series that begins above 0 nobody sees that it has grown. So those by which alerts and the dashboard go are there before they
// have counted anything: always are the events of which that is so from the first event of a type on, staleReasons the reasons for
// which verbs on claims are refused, in all namespaces that had tasks, and missed that of ticks, in all namespaces.
const (
	always = stats.Set(1)<<stats.Enqueued | 1<<stats.Claimed | 1<<stats.Succeeded | 1<<stats.Failed | 1<<stats.Crashed | 1<<stats.TimedOut | 1<<stats.Dead
	missed = "missed"
)

var staleReasons = []string{"expired", "reclaimed", "cancelled", "completed"}

func (p *Page) collectStats(to chan<- prometheus.Metric) {
	stale := map[[2]string]uint64{}
	p.src.Stats.Totals(func(t *stats.Totals) {
		for _, reason := range staleReasons {
			stale[[2]string{t.Namespace, reason}] = 0
		}
		expired := uint64(0)
		for i := range t.Types {
			typ := &t.Types[i]
			for c, n := range typ.Counts {
				if n > 0 || always.Has(stats.Counter(c)) { // #nosec G115 -- a few
					tasksTotal.counter(to, n, t.Namespace, t.Name, typ.Type, stats.Counter(c).String()) // #nosec G115 -- a few
				}
			}
			expired += typ.Counts[stats.Crashed] + typ.Counts[stats.TimedOut] + typ.Counts[stats.Leaderless]
		}
		leaseExpired.counter(to, expired, t.Namespace, t.Name)
		waitSeconds.histogram(to, &t.Wait, t.Namespace, t.Name)
		runSeconds.histogram(to, &t.Run, t.Namespace, t.Name)
		ackSeconds.histogram(to, &t.ToAck, t.Namespace, t.Name)
	})
	for _, s := range p.src.Stats.StaleTotals() {
		stale[[2]string{s.Namespace, s.Reason}] = s.Count
	}
	for of, n := range stale {
		staleAcks.counter(to, n, of[0], of[1])
	}
	p.collectTicks(to)
}

// collectTicks tells of the schedules of all namespaces.
func (p *Page) collectTicks(to chan<- prometheus.Metric) {
	skipped := map[[2]string]uint64{}
	spaces := p.src.Spaces()
	for _, t := range p.src.Stats.TickTotals() {
		tickDelay.histogram(to, &t.Delay, t.Namespace)
		for reason, n := range t.Skipped {
			skipped[[2]string{t.Namespace, reason}] = n
		}
		if !slices.Contains(spaces, t.Namespace) {
			spaces = append(slices.Clip(spaces), t.Namespace)
		}
	}
	now := time.Now()
	for _, ns := range spaces {
		skipped[[2]string{ns, missed}] += 0
		lateSchedules.gauge(to, float64(len(p.src.Stats.Late(now, ns))), ns)
	}
	for of, n := range skipped {
		tickSkipped.counter(to, n, of[0], of[1])
	}
}

// collectQueues tells how queues stand: those with new dead letters, and those with the most tasks, each, the rest together.
func (p *Page) collectQueues(ctx context.Context, to chan<- prometheus.Metric) {
	all, err := p.src.Queues(ctx)
	if err != nil {
		p.src.Logger.Warn("metrics: how the queues stand is not known", "error", err)
		return
	}
	queueCount.gauge(to, float64(len(all)))
	if len(all) > maxQueues {
		all = slices.Clone(all)
		slices.SortStableFunc(all, func(a, b Queue) int {
			return cmp.Or(cmp.Compare(min(b.NewDead, 1), min(a.NewDead, 1)), cmp.Compare(b.tasks(), a.tasks()))
		})
		all = append(all[:maxQueues:maxQueues], addUp(all[maxQueues:])...)
	}
	for i := range all {
		collectQueue(to, &all[i])
	}
}

// addUp makes one queue of all of a namespace.
func addUp(queues []Queue) (sums []Queue) {
	for i := range queues {
		q := &queues[i]
		at := slices.IndexFunc(sums, func(s Queue) bool { return s.Namespace == q.Namespace })
		if at < 0 {
			at = len(sums)
			sums = append(sums, Queue{Namespace: q.Namespace, Name: stats.Other, Blocked: map[string]int64{}})
		}
		s := &sums[at]
		s.Scheduled, s.Ready, s.Claimed = s.Scheduled+q.Scheduled, s.Ready+q.Ready, s.Claimed+q.Claimed
		s.Retrying, s.Dead, s.Poisoned, s.NewDead = s.Retrying+q.Retrying, s.Dead+q.Dead, s.Poisoned+q.Poisoned, s.NewDead+q.NewDead
		if q.Looked && (!s.Looked || q.MaxWait < s.MaxWait) {
			s.MaxWait = q.MaxWait
		}
		s.Looked, s.OldestReady = s.Looked || q.Looked, max(s.OldestReady, q.OldestReady)
		for why, n := range q.Blocked {
			s.Blocked[why] += n
		}
	}
	return sums
}

func collectQueue(to chan<- prometheus.Metric, q *Queue) {
	for _, s := range []struct {
		state string
		n     int64
	}{{"scheduled", q.Scheduled}, {"ready", q.Ready}, {"claimed", q.Claimed}, {"retrying", q.Retrying}, {"dead", q.Dead}, {"poisoned", q.Poisoned}} {
		queueTasks.gauge(to, float64(s.n), q.Namespace, q.Name, s.state)
	}
	newDead.gauge(to, float64(q.NewDead), q.Namespace, q.Name)
	if q.Looked || q.Ready == 0 {
		oldestReady.gauge(to, q.OldestReady.Seconds(), q.Namespace, q.Name)
	}
	if q.Looked {
		maxWait.gauge(to, q.MaxWait.Seconds(), q.Namespace, q.Name)
	}
	for _, why := range slices.Sorted(keysOf(q.Blocked)) {
		blockedTasks.gauge(to, float64(q.Blocked[why]), q.Namespace, q.Name, why)
	}
}

func collectShard(to chan<- prometheus.Metric, s *Shard) {
	id := shardLabel(s.ID)
	isLeader.gauge(to, oneIf(s.Leads), id)
	hasLeader.gauge(to, oneIf(s.HasLeader), id)
	leaderChanges.counter(to, s.LeaderChanges, id)
	applied.gauge(to, float64(s.Applied), id)
	storeBytes.gauge(to, float64(s.Bytes), id)
	for _, node := range slices.Sorted(keysOf(s.Lag)) {
		lag.gauge(to, float64(s.Lag[node]), id, node)
	}
}

func collectNamespace(to chan<- prometheus.Metric, n *Namespace) {
	for _, of := range []struct {
		m  *metric
		by map[string]int64
	}{{quotas, n.Quotas}, {quotaUsage, n.Usage}} {
		for _, quota := range slices.Sorted(keysOf(of.by)) {
			of.m.gauge(to, float64(of.by[quota]), n.Name, quota)
		}
	}
	for _, quota := range slices.Sorted(keysOf(n.Refused)) {
		quotaRefused.counter(to, uint64(max(n.Refused[quota], 0)), n.Name, quota) // #nosec G115 -- not negative
	}
}

func collectWorkers(to chan<- prometheus.Metric, w *Workers) {
	for _, q := range slices.Sorted(keysOf(w.Queues)) {
		workers.gauge(to, float64(w.Queues[q]), w.Namespace, q)
	}
	workerSlots.gauge(to, float64(w.Busy), w.Namespace, "busy")
	workerSlots.gauge(to, float64(w.Free), w.Namespace, "free")
}

// Called counts a call of the API that has ended. Below 0, how long it took is not told: of streams. One that waits was asked to wait
// for something.
func (p *Page) Called(face, method, code string, took time.Duration, waits bool) {
	p.requests.WithLabelValues(face, method, code).Inc()
	switch {
	case took < 0:
	case waits:
		p.polls.WithLabelValues(face, method).Observe(took.Seconds())
	default:
		p.duration.WithLabelValues(face, method).Observe(took.Seconds())
	}
}

// Streams counts the streams that are open: 1 is one more, -1 one less.
func (p *Page) Streams(face, method string, by int) {
	p.streams.WithLabelValues(face, method).Add(float64(by))
}

// Shard is where a replica says how long things take.
func (p *Page) Shard(id uint32) *ShardTimes {
	return &ShardTimes{p.commit.WithLabelValues(shardLabel(id)), p.fsync.WithLabelValues(shardLabel(id))}
}

// ShardTimes observes a replica.
type ShardTimes struct{ commit, fsync prometheus.Observer }

// Saved tells how long entries took to be written and synced.
func (s *ShardTimes) Saved(d time.Duration) { s.fsync.Observe(d.Seconds()) }

// Committed tells how long a round took.
func (s *ShardTimes) Committed(d time.Duration) { s.commit.Observe(d.Seconds()) }
