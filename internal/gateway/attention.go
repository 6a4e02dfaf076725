package gateway

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
)

// What needs attention is decided here, and nowhere else. docs/operations.md says of each what to do.

const (
	// badRate is which part of the attempts of an hour may end badly, if there were at least fewAttempts.
	badRate     = 0.2
	fewAttempts = 10
	// shortDisk is which part of a disk must be free, and lastDays how long a certificate.
	shortDisk = 0.1
	lastDays  = 14 * 24 * time.Hour
	// lagEntries is how far a replica may be behind.
	lagEntries = 100_000
	// maxAttention bounds the list.
	maxAttention = 100
)

// Severities.
const (
	critical = "critical"
	warning  = "warning"
)

// situation is what is known when somebody asks what needs attention.
type situation struct {
	report      stats.Report
	hour        stats.Report // the last
	late        []stats.LateTick
	standing    broker.NamespaceStanding
	away        []string // nodes that gave no answer
	certificate time.Time
	narrow      bool // it is told to somebody of one namespace, whom the cluster is no business of
	overview    cluster.Overview
	known       bool // overview is
}

// lookAround asks how the cluster stands; not ok if it should answer and does not.
func (g *Gateway) lookAround(ctx context.Context) (cluster.Overview, bool) {
	if g.cfg.Admin == nil {
		return cluster.Overview{}, true
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	o, err := g.cfg.Admin.Overview(ctx)
	return o, err == nil
}

// lookTime bounds how long the cluster is asked.
const lookTime = 2 * time.Second

// CertificateEnds is when the certificate ends that clients are shown; zero: there is none.
func (g *Gateway) CertificateEnds() time.Time {
	if g.cfg.Certificate == nil {
		return time.Time{}
	}
	c := g.cfg.Certificate()
	if c == nil || len(c.Certificate) == 0 {
		return time.Time{}
	}
	leaf := c.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return time.Time{}
		}
	}
	return leaf.NotAfter
}

// attention lists what needs attention, the critical first.
func (s *situation) attention(now time.Time) (list []*pawlv1.Attention) {
	add := func(severity, kind, subject string, value float64, format string, args ...any) {
		list = append(list, &pawlv1.Attention{Kind: kind, Severity: severity, Subject: subject, Value: value, Detail: fmt.Sprintf(format, args...)})
	}
	if !s.narrow {
		s.ofCluster(now, add)
	}
	s.ofQueues(add)
	s.ofSchedules(add)
	slices.SortStableFunc(list, func(a, b *pawlv1.Attention) int {
		return cmp.Compare(a.Severity, b.Severity)
	})
	return list[:min(len(list), maxAttention)]
}

type adder func(severity, kind, subject string, value float64, format string, args ...any)

func (s *situation) ofCluster(now time.Time, add adder) {
	if left := s.certificate.Sub(now); !s.certificate.IsZero() && left < lastDays {
		add(critical, "certificate", "", left.Seconds(), "the certificate that clients are shown ends in %s", left.Truncate(time.Minute))
	}
	for _, name := range s.away {
		add(critical, "node", name, 0, "node %s gives no answer", name)
	}
	if !s.known {
		add(critical, "shard", "0", 0, "the system shard could not be asked how the cluster stands")
		return
	}
	for _, n := range s.overview.Nodes {
		if n.Heard && !n.Alive && !slices.Contains(s.away, n.Name) {
			add(critical, "node", n.Name, n.Silent.Seconds(), "node %s was last heard of %s ago", n.Name, n.Silent.Truncate(time.Second))
		}
		if free, total := float64(n.Report.DiskFree), float64(n.Report.DiskTotal); total > 0 && free < total*shortDisk {
			add(critical, "disk", n.Name, free, "the disk of node %s has %.1f of %.1f GiB free", n.Name, free/(1<<30), total/(1<<30))
		}
	}
	for _, sh := range s.overview.Shards {
		name := strconv.FormatUint(uint64(sh.ID), 10)
		switch {
		case sh.Known && sh.Leader == 0:
			add(critical, "shard", name, 0, "shard %s has no leader", name)
		case sh.Under:
			add(warning, "shard", name, 0, "shard %s has fewer replicas that answer than it should: %s", name, cmp.Or(sh.Problem, "they are made"))
		}
		for _, m := range sh.Members {
			if m.Lag > lagEntries {
				add(warning, "shard", name, float64(m.Lag), "the replica of shard %s on node %d is %d entries behind", name, m.Node, m.Lag)
			}
		}
	}
}

func (s *situation) ofQueues(add adder) {
	for _, q := range s.standing.Busy {
		switch {
		case q.Waits(task.WhyQueuePaused) > 0:
			add(warning, "queue_paused", q.Queue, float64(q.Ready), "queue %s is paused, and has %s", q.Queue, ready(q.Ready))
		case q.Waits(task.WhyNoWorker) > 0:
			add(critical, "no_worker", q.Queue, float64(q.Ready), "queue %s has %s, and no worker asks", q.Queue, ready(q.Ready))
		case q.Waits(task.WhyNoWorkerForType) > 0:
			n := q.Waits(task.WhyNoWorkerForType)
			add(critical, "no_worker", q.Queue, float64(n), "queue %s has %s of types that no worker takes", q.Queue, ready(n))
		case q.OldestReady > q.MaxWait:
			add(warning, "oldest_wait", q.Queue, q.OldestReady.Seconds(), "a task of queue %s has been ready for %s, and none should for more than %s", q.Queue,
				q.OldestReady.Truncate(time.Second), contract.SpanText(q.MaxWait))
		}
		if n := q.Waits(task.WhyBreakerOpen); n > 0 {
			add(warning, "breaker_open", q.Queue, float64(n), "breakers of queue %s hold back %s", q.Queue, ready(n))
		}
	}
	total := s.hour.Total()
	if total.Dead > 0 {
		add(critical, "dead_letters", "", float64(total.Dead), "dead letters of the last hour: %d", total.Dead)
	}
	if rate := failureRate(total); rate > badRate && total.Bad()+total.Succeeded >= fewAttempts {
		worst := ""
		if len(s.hour.Failing) > 0 {
			f := s.hour.Failing[0]
			worst = fmt.Sprintf("; most often type %s of queue %s, %d times", f.Type, f.Queue, f.Failures)
		}
		add(warning, "failure_rate", "", rate, "%.0f %% of the attempts of the last hour ended badly%s", 100*rate, worst)
	}
}

func (s *situation) ofSchedules(add adder) {
	for _, t := range s.late {
		if t.Skipped > 0 {
			add(warning, "schedule_late", t.Schedule, float64(t.Skipped), "schedule %s missed %d ticks", t.Schedule, t.Skipped)
		} else {
			add(warning, "schedule_late", t.Schedule, t.Late.Seconds(), "a tick of schedule %s came %s late", t.Schedule, t.Late.Truncate(time.Second))
		}
	}
}

func ready(n int64) string {
	if n == 1 {
		return "1 ready task"
	}
	return fmt.Sprintf("%d ready tasks", n)
}
