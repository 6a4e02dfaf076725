package gateway

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
)

// What needs attention is decided here, and nowhere else. docs/alerts.md says of each what to do.

const (
	// badRate is which part of the attempts of an hour may end badly, if there were at least fewAttempts.
	badRate     = 0.2
	fewAttempts = 10
	// soundTime is for how long attempts must have ended well for what was before to be over.
	soundTime = 15 * time.Minute
	// lastDays is how long a certificate must last.
	lastDays = 14 * 24 * time.Hour
	// hookFails is how many attempts for a webhook must fail in a row, hookLate how long a notice may wait, and hookDropped for how long it
	// is told that some were dropped.
	hookFails   = 3
	hookLate    = 15 * time.Minute
	hookDropped = time.Hour
	// maxWhy bounds what a line says of why a webhook fails, in bytes.
	maxWhy = 160
	// apart is how many lines there are of one matter; more of them are summed up in one.
	apart = 3
)

// Severities.
const (
	critical = "critical"
	warning  = "warning"
)

// matter is one thing that can need attention, of one subject or of many.
type matter struct {
	severity, kind string
	least          bool // the gravest has the least value
	// sum says it of n subjects at once; total are their values together, most names the gravest.
	sum func(n int64, total float64, most string) string
}

// What can need attention, the gravest first. A list of it has at most apart lines of each, so that nothing pushes anything else out.
var (
	noLeader = matter{severity: critical, kind: "shard", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s shards have no leader: %s", grouped(n), most)
	}}
	nodeAway = matter{severity: critical, kind: "node", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s nodes give no answer, longest: %s", grouped(n), most)
	}}
	clockWrong = matter{severity: critical, kind: "clock", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the clocks of %s nodes are wrong, most: %s", grouped(n), most)
	}}
	diskFull = matter{severity: critical, kind: "disk", least: true, sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the disks of %s nodes have less room than --min-free, least: %s", grouped(n), most)
	}}
	diskLow = matter{severity: critical, kind: "disk", least: true, sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the disks of %s nodes are nearly full, most: %s", grouped(n), most)
	}}
	certificateEnds = matter{severity: critical, kind: "certificate"}
	deadLetters     = matter{severity: critical, kind: "dead_letters"}
	noWorker        = matter{severity: critical, kind: "no_worker", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s queues have %s, and no worker takes them; most: %s", grouped(n), ready(int64(total)), most)
	}}
	noWorkerForType = matter{severity: critical, kind: "no_worker", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s queues have %s of types that no worker takes; most: %s", grouped(n), ready(int64(total)), most)
	}}
	webhookDisabled = matter{severity: warning, kind: "webhook", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s webhooks are disabled until somebody resumes them, longest: %s", grouped(n), most)
	}}
	webhookFails = matter{severity: warning, kind: "webhook", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s webhooks fail, longest: %s", grouped(n), most)
	}}
	webhookDrops = matter{severity: warning, kind: "webhook", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s webhooks have dropped %s, the last within the hour; most: %s", grouped(n), plural(int64(total), "notice"), most)
	}}
	nodeRestarts = matter{severity: warning, kind: "node", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s nodes start again and again, most often: %s", grouped(n), most)
	}}
	diskSlow = matter{severity: warning, kind: "disk", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the disks of %s nodes are much slower than those of the others: %s", grouped(n), most)
	}}
	deadLettersKept = matter{severity: warning, kind: "dead_letters"}
	failureRates    = matter{severity: warning, kind: "failure_rate"}
	fewReplicas     = matter{severity: warning, kind: "shard", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s shards have fewer replicas that answer than they should: %s", grouped(n), most)
	}}
	replicaLags = matter{severity: warning, kind: "shard", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s replicas of shards are far behind, most: %s", grouped(n), most)
	}}
	longWait = matter{severity: warning, kind: "oldest_wait", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("tasks of %s queues have waited longer than their max_wait, the longest in %s", grouped(n), most)
	}}
	breakerOpen = matter{severity: warning, kind: "breaker_open", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("breakers of %s queues hold back %s, most: %s", grouped(n), ready(int64(total)), most)
	}}
	queuePaused = matter{severity: warning, kind: "queue_paused", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s queues are paused, and have %s, most: %s", grouped(n), ready(int64(total)), most)
	}}
	scheduleLate = matter{severity: warning, kind: "schedule_late", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s ticks of schedules were late or missed, most: %s", grouped(n), most)
	}}

	matters = []*matter{&noLeader, &nodeAway, &clockWrong, &diskFull, &diskLow, &certificateEnds, &deadLetters, &noWorker, &noWorkerForType, &webhookDisabled, &webhookFails,
		&webhookDrops, &nodeRestarts, &diskSlow, &deadLettersKept, &failureRates,
		&fewReplicas, &replicaLags, &longWait, &breakerOpen, &queuePaused, &scheduleLate}
)

// situation is what is known when somebody asks what needs attention.
type situation struct {
	report      stats.Report
	hour        stats.Report // the last
	late        []stats.LateTick
	status      broker.NamespaceStatus
	away        []string // nodes that gave no answer
	webhooks    []cluster.WebhookView
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

// lookAtWebhooks asks how the webhooks of a namespace are doing. Without an answer nothing is known of them: that the system shard gives
// none is told by itself.
func (g *Gateway) lookAtWebhooks(ctx context.Context, ns string) []cluster.WebhookView {
	if g.cfg.Webhooks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	hooks, err := cluster.ListWebhooks.Call(ctx, g.verbs, ns)
	if err != nil {
		return nil
	}
	return hooks
}

// Slowed is how many refusals of wrong tokens had to wait, since the start.
func (g *Gateway) Slowed() uint64 { return g.throttle.slowed.Load() }

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

// findings are what was found to need attention.
type findings map[*matter]*found

type found struct {
	lines  []*pawlv1.Attention
	others int64   // subjects that are not named, none of them graver than those that are
	value  float64 // theirs together
}

func (f findings) add(m *matter, subject string, value float64, format string, args ...any) {
	if f[m] == nil {
		f[m] = &found{}
	}
	f[m].lines = append(f[m].lines, &pawlv1.Attention{Kind: m.kind, Severity: m.severity, Subject: subject, Value: value, Detail: fmt.Sprintf(format, args...)})
}

func (f findings) last(m *matter) *pawlv1.Attention { return f[m].lines[len(f[m].lines)-1] }

// list is what was found, the gravest first, and many of one matter in one line.
func (f findings) list() (list []*pawlv1.Attention) {
	for _, m := range matters {
		if of := f[m]; of != nil {
			list = append(list, of.told(m)...)
		}
	}
	return list
}

// told are the lines of a matter: few, or one that sums them up.
func (of *found) told(m *matter) []*pawlv1.Attention {
	slices.SortStableFunc(of.lines, func(a, b *pawlv1.Attention) int {
		if m.least {
			a, b = b, a
		}
		return cmp.Compare(b.Value, a.Value)
	})
	if of.others == 0 && len(of.lines) <= apart {
		return of.lines
	}
	n, total := int64(len(of.lines))+of.others, of.value
	names := make([]string, 0, apart)
	for i, l := range of.lines {
		n, total = n+l.More, total+l.Value
		if i < apart && !slices.Contains(names, l.Subject) {
			names = append(names, l.Subject)
		}
	}
	most := of.lines[0]
	return []*pawlv1.Attention{{Kind: m.kind, Severity: m.severity, Subject: most.Subject, Value: most.Value, More: n - 1,
		Detail: m.sum(n, total, strings.Join(names, ", "))}}
}

// attention lists what needs attention, the gravest first.
func (s *situation) attention(now time.Time) []*pawlv1.Attention {
	f := findings{}
	if !s.narrow {
		s.ofCluster(now, f)
	}
	s.ofQueues(f)
	s.ofTasks(f)
	s.ofWebhooks(now, f)
	s.ofSchedules(f)
	return f.list()
}

func (s *situation) ofCluster(now time.Time, f findings) {
	if left := s.certificate.Sub(now); !s.certificate.IsZero() && left < lastDays {
		f.add(&certificateEnds, "", left.Seconds(), "the certificate that clients are shown ends in %s", left.Truncate(time.Minute))
	}
	s.ofNodes(f)
	if !s.known {
		f.add(&noLeader, "0", 0, "the system shard could not be asked how the cluster stands")
		return
	}
	s.ofShards(f)
}

// nodeMatters are the troubles of nodes that need attention. One that a new leader has not heard of yet may be well.
var nodeMatters = map[cluster.ProblemKind]*matter{cluster.ClockWrong: &clockWrong, cluster.DiskFull: &diskFull, cluster.DiskLow: &diskLow, cluster.DiskSlow: &diskSlow,
	cluster.NodeRestart: &nodeRestarts}

// ofNodes looks at nodes: those that are away, not heard of or without an answer just now, and those that have troubles.
func (s *situation) ofNodes(f findings) {
	told := map[string]bool{}
	for _, p := range s.overview.Problems() {
		if p.Kind == cluster.NodeAway {
			f.add(&nodeAway, p.Node, p.For.Seconds(), "%s", p.Text)
			told[p.Node] = true
		} else if m := nodeMatters[p.Kind]; m != nil {
			f.add(m, p.Node, p.Value, "%s", p.Text)
		}
	}
	for _, name := range s.away {
		if !told[name] {
			f.add(&nodeAway, name, 0, "node %s gives no answer", name)
		}
	}
}

// shardMatters are the troubles of shards that need attention. What only takes time does not.
var shardMatters = map[cluster.ProblemKind]*matter{cluster.NoLeader: &noLeader, cluster.FewReplicas: &fewReplicas, cluster.ReplicaLags: &replicaLags}

// ofShards looks at shards, all that have the same trouble at once.
func (s *situation) ofShards(f findings) {
	for _, p := range s.overview.Problems() {
		if m := shardMatters[p.Kind]; m != nil {
			f.add(m, strconv.FormatUint(uint64(p.Shards[0]), 10), p.Value, "%s", p.Text)
			f.last(m).More = int64(len(p.Shards) - 1)
		}
	}
}

func (s *situation) ofQueues(f findings) {
	for _, q := range s.status.Busy {
		switch {
		case q.Waits(task.WhyQueuePaused) > 0:
			f.add(&queuePaused, q.Queue, float64(q.Ready), "queue %s is paused, and has %s", q.Queue, ready(q.Ready))
		case q.Waits(task.WhyNoWorker) > 0:
			f.add(&noWorker, q.Queue, float64(q.Ready), "queue %s has %s, and no worker takes it", q.Queue, ready(q.Ready))
		case q.Waits(task.WhyNoWorkerForType) > 0:
			n := q.Waits(task.WhyNoWorkerForType)
			f.add(&noWorkerForType, q.Queue, float64(n), "queue %s has %s of types that no worker takes", q.Queue, ready(n))
		case q.OldestReady > q.MaxWait:
			f.add(&longWait, q.Queue, q.OldestReady.Seconds(), "a task of queue %s has been ready for %s, longer than its max_wait of %s", q.Queue,
				q.OldestReady.Truncate(time.Second), contract.SpanText(q.MaxWait))
		}
		if n := q.Waits(task.WhyBreakerOpen); n > 0 {
			f.add(&breakerOpen, q.Queue, float64(n), "breakers of queue %s hold back %s", q.Queue, ready(n))
		}
	}
	if idle := &s.status.Idle; idle.Queues > 0 {
		f.add(&noWorker, idle.Largest, float64(idle.Most), "queue %s has %s, and no worker takes it", idle.Largest, ready(idle.Most))
		of := f[&noWorker]
		of.others, of.value = idle.Queues-1, float64(idle.Tasks-idle.Most)
	}
}

// ofTasks looks at what became of tasks.
func (s *situation) ofTasks(f findings) {
	switch kept := max(s.status.Dead, s.status.NewDead, 0); {
	case s.status.NewDead > 0:
		least := ""
		if s.status.MoreNewDead {
			least = "at least "
		}
		f.add(&deadLetters, "", float64(s.status.NewDead), "%s%s in the last hour, %s in all", least, plural(s.status.NewDead, "dead letter"), grouped(kept))
	case kept > 0:
		f.add(&deadLettersKept, "", float64(kept), "%s, none of them from the last hour", plural(kept, "dead letter"))
	}
	s.ofFailures(f)
}

// ofFailures looks at how many attempts end badly: in the last hour, unless all is well again since.
func (s *situation) ofFailures(f findings) {
	total, since := s.hour.Total(), s.hour.Lately(soundTime, stats.Hour)
	rate := failureRate(total)
	if rate <= badRate || total.Bad()+total.Succeeded < fewAttempts || since.Succeeded > 0 && failureRate(since) <= badRate {
		return
	}
	worst := ""
	if len(s.hour.Failing) > 0 {
		of := s.hour.Failing[0]
		worst = fmt.Sprintf("; most often %s of %s, %s", typeWords(of.Type), queueWords(of.Queue), plural(countOf(of.Failures), "time"))
	}
	f.add(&failureRates, "", rate, "%.0f %% of the attempts of the last hour ended badly%s", 100*rate, worst)
}

// queueWords names a queue in a sentence, or all those that have no figures of their own.
func queueWords(name string) string {
	if name == stats.Other {
		return "other queues"
	}
	return "queue " + name
}

func typeWords(name string) string {
	if name == stats.Other {
		return "other types"
	}
	return "type " + name
}

// ofWebhooks looks at those whose receivers hear nothing, though nobody paused them.
func (s *situation) ofWebhooks(now time.Time, f findings) {
	since := func(at time.Time) time.Duration { return max(now.Sub(at), 0).Truncate(time.Second) }
	for i := range s.webhooks {
		h := &s.webhooks[i]
		state := h.State()
		switch {
		case state == cluster.HookDisabled:
			f.add(&webhookDisabled, h.Name, since(h.DisabledAt.Time()).Seconds(), "webhook %s has been disabled for %s: %s", h.Name, since(h.DisabledAt.Time()), task.Cut(h.DisabledReason, maxWhy))
		case state == cluster.HookFailing && h.Failures >= hookFails:
			f.add(&webhookFails, h.Name, since(h.FailsSince.Time()).Seconds(), "webhook %s has failed for %s, %s: %s", h.Name, since(h.FailsSince.Time()),
				plural(int64(h.Failures), "attempt"), task.Cut(h.LastError, maxWhy))
		case state != cluster.HookPaused && h.Pending > 0 && since(h.PendingSince.Time()) > hookLate:
			f.add(&webhookFails, h.Name, since(h.PendingSince.Time()).Seconds(), "a notice for webhook %s has waited for %s%s", h.Name, since(h.PendingSince.Time()),
				lead(": ", task.Cut(h.LastError, maxWhy)))
		case h.Dropped > 0 && since(h.DroppedAt.Time()) < hookDropped:
			f.add(&webhookDrops, h.Name, float64(h.Dropped), "webhook %s has dropped %s, the last %s ago", h.Name, plural(h.Dropped, "notice"), since(h.DroppedAt.Time()))
		}
	}
}

// lead puts something before a text, if there is one.
func lead(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

func (s *situation) ofSchedules(f findings) {
	for _, t := range s.late {
		if t.Skipped > 0 {
			f.add(&scheduleLate, t.Schedule, float64(t.Skipped), "schedule %s missed %s", t.Schedule, plural(int64(t.Skipped), "tick"))
		} else {
			f.add(&scheduleLate, t.Schedule, t.Late.Seconds(), "a tick of schedule %s came %s late", t.Schedule, t.Late.Truncate(time.Second))
		}
	}
}

func ready(n int64) string { return plural(n, "ready task") }

// plural is a number of things: "1 tick", "14,000 ticks".
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(n) + " " + thing + "s"
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
