package metrics

import (
	"iter"
	"maps"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawlq/pawl/internal/stats"
)

// metric is a metric gathered on each scrape.
type metric struct {
	name, help string
	labels     []string
	desc       *prometheus.Desc
}

// gathered lists all of them.
var gathered []*metric

func gather(name, help string, labels ...string) *metric {
	m := &metric{name, help, labels, prometheus.NewDesc(name, help, labels, nil)}
	gathered = append(gathered, m)
	return m
}

// The names are part of the contract: alerts and dashboards of others depend on them. docs/metrics.md lists them; a test compares it with
// this table.
var (
	tasksTotal = gather("pawl_tasks_total", "Task events by outcome: enqueued, deduplicated, claimed, succeeded, failed_attempt, "+
		"crashed, timed_out, leaderless, released, snoozed, dead, poisoned, discarded, expired, moved, cancelled, replayed.", "namespace",
		"queue", "type", "outcome")
	queueTasks = gather("pawl_queue_tasks", "Tasks in a queue by state.", "namespace", "queue", "state")
	newDead    = gather("pawl_queue_new_dead_letters",
		"Dead letters of the last hour that were neither replayed nor discarded since. In each shard, at most 10,000 are counted "+
			"for a queue, and 50,000 in all.", "namespace", "queue")
	queueCount = gather("pawl_queues", "Queues that have ever had a task, in the shards that this node leads.")
	maxWait    = gather("pawl_queue_max_wait_seconds",
		"How long a task of the queue may be ready before it needs attention, in seconds: the queue's max_wait; for _other that "+
			"of the queue whose oldest task exceeds its own by most, as for the age of that task. Only for the queues with the most "+
			"ready tasks.",
		"namespace", "queue")
	oldestReady = gather("pawl_queue_oldest_ready_seconds",
		"How long the oldest ready task has been ready, in seconds. Only for the queues with the most ready tasks.", "namespace", "queue")
	blockedTasks = gather("pawl_blocked_tasks", "Ready tasks that wait for something other than their turn and a free worker, "+
		"by reason as in explain. Queues beyond the 200 with the most ready tasks have only `no_worker` and `queue_paused`.",
		"namespace", "queue", "reason")
	waitSeconds = gather("pawl_task_wait_seconds", "Time from ready to claimed, in seconds.", "namespace", "queue")
	runSeconds  = gather("pawl_task_run_seconds", "Time from claimed to the end of the run, whatever its outcome, in seconds. Lost leases "+
		"are not counted.", "namespace", "queue")
	ackSeconds   = gather("pawl_claim_to_ack_seconds", "Time from claimed to acked, in seconds.", "namespace", "queue")
	leaseExpired = gather("pawl_lease_expired_total", "Claims whose lease expired before the task was settled.", "namespace", "queue")
	staleAcks    = gather("pawl_stale_acks_total", "Acks, fails and other verbs refused because their claim no longer held, by reason: "+
		"expired, reclaimed, cancelled, completed.", "namespace", "reason")
	tickDelay   = gather("pawl_cron_tick_delay_seconds", "How late schedule ticks fired, in seconds.", "namespace")
	tickSkipped = gather("pawl_cron_skipped_total", "Schedule ticks that created no task, by reason: missed, paused, overlap, unique, or "+
		"the code of the refusal.", "namespace", "reason")
	lateSchedules = gather("pawl_schedules_late", "Schedules with a tick in the last hour that this node fired over a minute "+
		"late or found missed; at most 100.", "namespace")

	workers = gather("pawl_workers", "Workers connected to this node that take tasks of a queue, without quiet and draining ones.",
		"namespace", "queue")
	workerSlots = gather("pawl_worker_slots", "Slots of the workers connected to this node, by state: busy, free.", "namespace", "state")

	hooks = gather("pawl_webhooks", "Webhooks, by state: active, failing (the last attempt failed), paused, disabled (the receiver "+
		"answered 410). Reported by the leader of the system shard.", "namespace", "state")
	hookDeliveries = gather("pawl_webhook_deliveries_total",
		"This node's attempts to deliver notices to webhooks, including tests, by outcome: delivered, failed.", "outcome")
	hookDropped = gather("pawl_webhook_dropped_total",
		"Webhook notices dropped for good: not delivered within about a day, or too many were waiting.")
	hookOldest = gather("pawl_webhook_oldest_undelivered_seconds",
		"Age of the oldest undelivered webhook notice, in seconds, except for paused and disabled webhooks. Reported by the leader of the "+
			"system shard.")

	quotas = gather("pawl_namespace_quota", "A namespace's quotas in the whole cluster, by quota: max_backlog, max_backlog_bytes, "+
		"max_running. Only those that are set.", "namespace", "quota")
	quotaUsage = gather("pawl_namespace_usage", "How much of its quota a namespace uses in the shards that this node leads. Only for "+
		"quotas that are set.", "namespace", "quota")
	quotaRefused = gather("pawl_quota_refused_total",
		"Requests that this node refused because a quota of their namespace was used up; for "+
			"max_running, how often a claim found it used up.", "namespace", "quota")

	isLeader      = gather("pawl_raft_is_leader", "1 if this node leads the shard, else 0. Shard 0 is the system shard.", "shard")
	hasLeader     = gather("pawl_raft_has_leader", "1 if this node's replica of the shard knows the leader, else 0.", "shard")
	leaderChanges = gather("pawl_raft_leader_changes_total", "New leaders that this node's replica of the shard has seen.", "shard")
	applied       = gather("pawl_raft_applied_index", "Index of the last log entry that this node's replica of the shard has applied.",
		"shard")
	lag = gather("pawl_raft_lag_entries", "Log entries that a replica is missing. Reported by the leader of the shard.", "shard",
		"node")
	differs = gather("pawl_raft_replica_differs",
		"1 if the state of a replica was found to differ from those of others at the same log entry, else 0. Reported by the leader "+
			"of the shard.", "shard", "node")

	answers = gather("pawl_shard_answers", "1 if the shard answered this scrape within a second, else 0: then its figures are "+
		"missing, and those of its queues and namespaces. Reported by the leader of the shard.", "shard")
	rowsApart = gather("pawl_rows_set_apart", "Rows of the shard that could not be handled and were set apart in the last day. "+
		"Reported by the leader of the shard.", "shard")
	auditEvicted = gather("pawl_audit_evicted_entries_total",
		"Entries of the shard's audit log removed before the end of their retention, because it was full. Reported by the leader "+
			"of the shard.",
		"shard")
	auditWaiting = gather("pawl_audit_unexported_entries",
		"Entries of the shard's audit log that were not exported over OTLP yet; 0 if none ever was. Reported by the leader of the shard.",
		"shard")
	archiveEvicted = gather("pawl_archive_evicted_bytes_total",
		"Bytes of this node's archive of dead letters removed before their 90 days, because it was full.")
	storeBytes  = gather("pawl_store_bytes", "Size of a replica's state on disk, in bytes.", "shard")
	logBytes    = gather("pawl_raft_log_bytes", "Size of the logs of all shards on disk, in bytes.")
	diskFree    = gather("pawl_disk_free_bytes", "Free space on the disk with the data directory, in bytes.")
	diskMinFree = gather("pawl_disk_min_free_bytes", "Free space below which the node takes no new tasks (--min-free), in bytes.")
	clockOffset = gather("pawl_clock_offset_seconds",
		"How far the node's wall clock is ahead of those of most nodes, or of the only other node, in seconds; 0 if unknown.")
	diskSize        = gather("pawl_disk_size_bytes", "Size of the disk with the data directory, in bytes.")
	certificateEnds = gather("pawl_certificate_expiry_timestamp_seconds",
		"When a certificate of the node expires, or the first of several in its file, in seconds since 1970: server (presented "+
			"to clients), client_ca (the authority of clients), peer (presented to other nodes), peer_ca (the authority of nodes).",
		"certificate")
	slowed  = gather("pawl_access_slowed_total", "Refusals of wrong tokens that were delayed because too many came from one address.")
	refused = gather("pawl_access_refused_total",
		"Calls refused by authentication or authorization, by reason: none (no token was sent), malformed, unknown, expired, "+
			"denied (the token is valid but has no right to the call), signature (wrong signature of an SQS client), node (from a node "+
			"that was removed, or under the name of another).", "reason")
	auditEvents  = gather("pawl_audit_events_total", "Events of --audit-events that were recorded: logins, refusals, reads.", "event")
	auditLeftOut = gather("pawl_audit_events_left_out_total",
		"Events of --audit-events that were not recorded, because one caller caused too many.", "event")
	auditLost = gather("pawl_audit_events_lost_total",
		"Recorded events of --audit-events, and entries of the audit log, that were not exported over OTLP, because too many "+
			"were waiting or the collector rejected them.")
	buildInfo = gather("pawl_build_info", "Always 1; the labels have the version of the program.", "version", "go_version")
)

// Metrics counted here. A batch counts as one call.
var (
	requestsTotal = prometheus.CounterOpts{Name: "pawl_requests_total",
		Help: "API calls, by interface (grpc, rest, sqs), method and code: ok or the error code of the response."}
	requestSeconds = prometheus.HistogramOpts{Name: "pawl_request_duration_seconds",
		Help:    "Duration of API calls, in seconds. Calls that wait are in pawl_poll_duration_seconds instead; streams are in neither.",
		Buckets: callBuckets}
	pollSeconds = prometheus.HistogramOpts{Name: "pawl_poll_duration_seconds",
		Help:    "Duration of API calls that wait for a task to claim or for a task to end, including the wait, in seconds.",
		Buckets: callBuckets}
	openStreams = prometheus.GaugeOpts{Name: "pawl_streams",
		Help: "Open streams, by interface (grpc, rest) and method: of workers, producers and event watchers."}
	commitSeconds = prometheus.HistogramOpts{Name: "pawl_raft_commit_seconds",
		Help: "Time from the start of a round of calls until a majority has logged it and it is applied, in seconds. Reported " +
			"by the leader.",
		Buckets: diskBuckets}
	fsyncSeconds = prometheus.HistogramOpts{Name: "pawl_raft_fsync_seconds",
		Help: "Time to write entries to the log and sync them, in seconds.", Buckets: diskBuckets}
	callBuckets  = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	diskBuckets  = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}
	shownBuckets = []time.Duration{5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 24 * time.Hour}
)

func newRequests() *prometheus.CounterVec {
	return prometheus.NewCounterVec(requestsTotal, []string{"interface", "method", "code"})
}

func newCallTimes(opts prometheus.HistogramOpts) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(opts, []string{"interface", "method"})
}

func newStreams() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(openStreams, []string{"interface", "method"})
}

func newShardTimes(opts prometheus.HistogramOpts) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(opts, []string{"shard"})
}

func (m *metric) gauge(to chan<- prometheus.Metric, v float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, v, labels...)
}

func (m *metric) counter(to chan<- prometheus.Metric, n uint64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(n), labels...)
}

// histogram exports some of the bounds of a histogram: their number times that of the queues determines the size of a page.
func (m *metric) histogram(to chan<- prometheus.Metric, h *stats.Histogram, labels ...string) {
	shown := make(map[float64]uint64, len(shownBuckets))
	upto, i := uint64(0), 0
	for _, bound := range shownBuckets {
		for ; i < len(stats.Bounds) && stats.Bounds[i] <= bound; i++ {
			upto += h.Buckets[i]
		}
		shown[bound.Seconds()] = upto
	}
	to <- prometheus.MustNewConstHistogram(m.desc, h.Count(), h.Sum.Seconds(), shown, labels...)
}

func shardLabel(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func keysOf[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
