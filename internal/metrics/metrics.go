package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawlq/pawl/internal/stats"
)

// Sources provide the figures.
type Sources struct {
	Version string
	Stats   *stats.Recorder
	// Queues returns the state of the queues in the shards that this node leads. The result is not modified.
	Queues func(ctx context.Context) ([]Queue, error)
	// Shards returns the state of this node's replicas.
	Shards func(ctx context.Context) []Shard
	// Spaces returns all namespaces of the cluster, Namespaces the state of those with quotas.
	Spaces     func() []string
	Namespaces func(ctx context.Context) []Namespace
	// Workers returns the workers connected to this node, by namespace.
	Workers func() []Workers
	// Node returns the state of the node itself.
	Node func() Node
	// Webhooks returns what the node has done for webhooks; nil: no such metrics.
	Webhooks func(context.Context) Webhooks
	// Process adds the metrics of the Go runtime and of the process.
	Process bool
	Logger  *slog.Logger // nil: none
}

// Queue is the state of a queue.
type Queue struct {
	Namespace, Name                                     string
	Scheduled, Ready, Claimed, Retrying, Dead, Poisoned int64
	NewDead                                             int64            // those in Dead of the last hour
	Looked                                              bool             // the fields below are known
	OldestReady, MaxWait                                time.Duration    // MaxWait: the queue's setting
	Blocked                                             map[string]int64 // ready tasks by what they wait for
}

func (q *Queue) tasks() int64 {
	return q.Scheduled + q.Ready + q.Claimed + q.Retrying + q.Dead + q.Poisoned
}

// Shard is the state of a replica on this node.
type Shard struct {
	ID            uint32
	Leads         bool
	Answers       bool // in time: otherwise its figures are missing, and so are those of its queues; only if it leads
	HasLeader     bool // as far as this replica knows
	LeaderChanges uint64
	Applied       uint64
	Bytes         uint64            // size of its state on disk
	Apart         int64             // rows set apart in the last day; only if it leads
	AuditEvicted  uint64            // entries of the audit log that were removed early; only if it leads
	AuditWaiting  uint64            // entries of the audit log that were not exported yet; only if it leads
	Lag           map[string]uint64 // of the other replicas, by node, in entries; only if it leads
	Differs       map[string]bool   // by node: its replica differs from others; only of a shard that this node leads
}

// Namespace is the state of a namespace, by quota.
type Namespace struct {
	Name    string
	Quotas  map[string]int64 // of the whole cluster
	Usage   map[string]int64 // of the shards that this node leads
	Refused map[string]int64 // by this node
}

// Workers counts the workers of a namespace.
type Workers struct {
	Namespace  string
	Queues     map[string]int // number of workers by queue that they take tasks from
	Busy, Free int            // slots
}

// Webhooks is what a node has done for webhooks since it started.
type Webhooks struct {
	Delivered, Failed, Dropped uint64                    // notices, attempts, notices
	Oldest                     time.Duration             // age of the oldest notice to be sent
	Leads                      bool                      // the node leads the system shard, which sends them
	States                     map[string]map[string]int // number of webhooks by namespace and state, if it leads
}

// Node is the state of the node. A zero field is unknown.
type Node struct {
	DiskFree, DiskTotal int64
	MinFree             int64         // bytes that must be free for the node to accept new tasks
	ClockOffset         time.Duration // its wall clock minus that of most others
	LogBytes            uint64
	ArchiveEvicted      uint64               // bytes that the archive removed early
	CertificateEnds     map[string]time.Time // by what it is for; absent: there is none
	Refused             map[string]uint64    // callers that were turned away, by reason; nil: unknown
	Slowed              uint64               // those of them that had to wait for their refusal
	Events              map[string]Events    // audit events by kind; nil: none are recorded
	EventsLost          uint64               // of those recorded, those that were not exported
}

// Events counts audit events since the node started.
type Events struct{ Recorded, LeftOut uint64 }

const (
	// maxQueues bounds the queues with gauges of their own; the others are summed as stats.Other.
	maxQueues = 1000
	// maxScrapes bounds concurrent scrapes, scrapeTime the duration of one.
	maxScrapes = 2
	scrapeTime = 10 * time.Second
	// gatherTime bounds the wait for the shards' answers.
	gatherTime = 5 * time.Second
)

// Page serves the metrics of a node. Its methods may be called from any goroutine.
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

// New returns a page.
func New(src Sources) *Page {
	if src.Logger == nil {
		src.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Page{src: src, requests: newRequests(), duration: newCallTimes(requestSeconds), polls: newCallTimes(pollSeconds),
		streams: newStreams(), commit: newShardTimes(commitSeconds), fsync: newShardTimes(fsyncSeconds)}
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
	var asking sync.WaitGroup // all at the same time, as shards that hang may take all of theirs
	defer asking.Wait()
	asking.Go(func() { p.collectQueues(ctx, to) })
	asking.Go(func() {
		for _, s := range p.src.Shards(ctx) {
			collectShard(to, &s)
		}
	})
	asking.Go(func() {
		for _, n := range p.src.Namespaces(ctx) {
			collectNamespace(to, &n)
		}
	})
	asking.Go(func() { p.collectWebhooks(ctx, to) })
	for _, w := range p.src.Workers() {
		collectWorkers(to, &w)
	}
	n := p.src.Node()
	if n.DiskTotal > 0 {
		diskFree.gauge(to, float64(n.DiskFree))
		diskSize.gauge(to, float64(n.DiskTotal))
		diskMinFree.gauge(to, float64(n.MinFree))
	}
	clockOffset.gauge(to, n.ClockOffset.Seconds())
	logBytes.gauge(to, float64(n.LogBytes))
	archiveEvicted.counter(to, n.ArchiveEvicted)
	for of, end := range n.CertificateEnds {
		certificateEnds.gauge(to, float64(end.Unix()), of)
	}
	for reason, times := range n.Refused {
		refused.counter(to, times, reason)
	}
	slowed.counter(to, n.Slowed)
	auditLost.counter(to, n.EventsLost)
	for kind, e := range n.Events {
		auditEvents.counter(to, e.Recorded, kind)
		auditLeftOut.counter(to, e.LeftOut, kind)
	}
}

func (p *Page) collectWebhooks(ctx context.Context, to chan<- prometheus.Metric) {
	if p.src.Webhooks == nil {
		return
	}
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

// The increase of a series that first appears with a value above 0 is invisible. So the series that alerts and the dashboard use exist
// before they have counted anything: always lists the events that are present from the first event of a type on, staleReasons the reasons
// for refusing acks and other verbs on claims (in all namespaces that had tasks), and missed the one for ticks (in all namespaces).
const (
	always = stats.Set(1)<<stats.Enqueued | 1<<stats.Claimed | 1<<stats.Succeeded | 1<<stats.Failed | 1<<stats.Crashed |
		1<<stats.TimedOut | 1<<stats.Dead
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

// collectTicks collects the metrics of schedules of all namespaces.
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

// collectQueues collects the state of queues: one series each for those with new dead letters and those with the most tasks, and a sum of
// the rest.
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

// addUp sums queues to one per namespace.
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
		if q.Looked && (!s.Looked || q.OldestReady-q.MaxWait > s.OldestReady-s.MaxWait) { // an alert compares the two
			s.Looked, s.OldestReady, s.MaxWait = true, q.OldestReady, q.MaxWait
		}
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
	}{{"scheduled", q.Scheduled}, {"ready", q.Ready}, {"claimed", q.Claimed}, {"retrying", q.Retrying}, {"dead", q.Dead},
		{"poisoned", q.Poisoned}} {
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
	if s.Leads {
		answers.gauge(to, oneIf(s.Answers), id)
	}
	if s.Answers {
		rowsApart.gauge(to, float64(s.Apart), id)
		auditEvicted.counter(to, s.AuditEvicted, id)
		auditWaiting.gauge(to, float64(s.AuditWaiting), id)
	}
	for _, node := range slices.Sorted(keysOf(s.Lag)) {
		lag.gauge(to, float64(s.Lag[node]), id, node)
	}
	for _, node := range slices.Sorted(keysOf(s.Differs)) {
		differs.gauge(to, oneIf(s.Differs[node]), id, node)
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

// Called counts a finished call of the API. Its duration is not recorded if took is negative, as it is for streams. waits is set if the
// call was asked to wait for something.
func (p *Page) Called(iface, method, code string, took time.Duration, waits bool) {
	p.requests.WithLabelValues(iface, method, code).Inc()
	switch {
	case took < 0:
	case waits:
		p.polls.WithLabelValues(iface, method).Observe(took.Seconds())
	default:
		p.duration.WithLabelValues(iface, method).Observe(took.Seconds())
	}
}

// Streams adds by, 1 or -1, to the number of open streams.
func (p *Page) Streams(iface, method string, by int) {
	p.streams.WithLabelValues(iface, method).Add(float64(by))
}

// Shard returns the observer of a replica's latencies.
func (p *Page) Shard(id uint32) *ShardTimes {
	return &ShardTimes{p.commit.WithLabelValues(shardLabel(id)), p.fsync.WithLabelValues(shardLabel(id))}
}

// ShardTimes observes the latencies of a replica.
type ShardTimes struct{ commit, fsync prometheus.Observer }

// Saved records how long it took to write and sync entries.
func (s *ShardTimes) Saved(d time.Duration) { s.fsync.Observe(d.Seconds()) }

// Committed records how long a round took.
func (s *ShardTimes) Committed(d time.Duration) { s.commit.Observe(d.Seconds()) }
