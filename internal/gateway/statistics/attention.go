package statistics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// What needs attention is decided here, and nowhere else. docs/alerts.md says what to do about each.

const (
	// badRate is the share of an hour's attempts that may end badly, if there were at least fewAttempts.
	badRate     = 0.2
	fewAttempts = 10
	// recoveryTime is how long attempts must have succeeded for earlier failures to be over.
	recoveryTime = 15 * time.Minute
	// hookFails is how many consecutive attempts of a webhook must fail, hookLate how long a notification may wait, and hookDropped
	// for how long dropped notifications are reported.
	hookFails   = 3
	hookLate    = 15 * time.Minute
	hookDropped = time.Hour
	// maxWhy bounds the reason why a webhook fails in a line, in bytes.
	maxWhy = 160
	// maxLines is the maximum number of lines for one kind of problem; more are summed up in one.
	maxLines = 3
)

// Severities.
const (
	critical = "critical"
	warning  = "warning"
)

// problem is one kind of problem that can need attention, of one subject or of many.
type problem struct {
	severity, kind string
	least          bool // the smallest value is the most severe
	// sum describes n subjects in one line; total is the sum of their values, most names the most severe.
	sum func(n int64, total float64, most string) string
}

// What can need attention, most severe first. A list has at most maxLines lines of each, so that no kind crowds out another.
var (
	noLeader = problem{severity: critical, kind: "shard", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s shards have no leader: %s", grouped(n), most)
	}}
	replicaDiffers = problem{severity: critical, kind: "shard", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the replicas of %s shards have different states: %s", grouped(n), most)
	}}
	nodeAway = problem{severity: critical, kind: "node", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s nodes do not answer, longest: %s", grouped(n), most)
	}}
	clockWrong = problem{severity: critical, kind: "clock", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the clocks of %s nodes are wrong, most: %s", grouped(n), most)
	}}
	diskFull = problem{severity: critical, kind: "disk", least: true, sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the disks of %s nodes have less room than --min-free, least: %s", grouped(n), most)
	}}
	diskLow = problem{severity: critical, kind: "disk", least: true, sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the disks of %s nodes are nearly full, most: %s", grouped(n), most)
	}}
	certificateEnds = problem{severity: critical, kind: "certificate", least: true, sum: certificatesEnd}
	rowsApart       = problem{severity: critical, kind: "shard"}
	deadLetters     = problem{severity: critical, kind: "dead_letters"}
	poison          = problem{severity: critical, kind: "poisoned"}
	noWorker        = problem{severity: critical, kind: "no_worker", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s queues have %s, and no worker takes them; most: %s", grouped(n), ready(int64(total)), most)
	}}
	noWorkerForType = problem{severity: critical, kind: "no_worker", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s queues have %s of types that no worker takes; most: %s", grouped(n), ready(int64(total)), most)
	}}
	webhookDisabled = problem{severity: warning, kind: "webhook", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s webhooks are disabled until they are resumed, longest: %s", grouped(n), most)
	}}
	webhookFails = problem{severity: warning, kind: "webhook", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s webhooks fail, longest: %s", grouped(n), most)
	}}
	webhookDrops = problem{severity: warning, kind: "webhook", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s webhooks have dropped %s, the last within the hour; most: %s", grouped(n), plural(int64(total), "notice"),
			most)
	}}
	nodeRestarts = problem{severity: warning, kind: "node", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s nodes keep restarting, most often: %s", grouped(n), most)
	}}
	diskSlow = problem{severity: warning, kind: "disk", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("the disks of %s nodes are much slower than those of the others: %s", grouped(n), most)
	}}
	certificateEndsSoon = problem{severity: warning, kind: "certificate", least: true, sum: certificatesEnd}
	deadLettersKept     = problem{severity: warning, kind: "dead_letters"}
	poisonKept          = problem{severity: warning, kind: "poisoned"}
	failureRates        = problem{severity: warning, kind: "failure_rate"}
	fewReplicas         = problem{severity: warning, kind: "shard", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s shards have fewer replicas that answer than they should: %s", grouped(n), most)
	}}
	replicaLags = problem{severity: warning, kind: "shard", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s replicas of shards are far behind, most: %s", grouped(n), most)
	}}
	longWait = problem{severity: warning, kind: "oldest_wait", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("tasks of %s queues have waited longer than their max_wait, the longest in %s", grouped(n), most)
	}}
	breakerOpen = problem{severity: warning, kind: "breaker_open", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("breakers of %s queues hold back %s, most: %s", grouped(n), ready(int64(total)), most)
	}}
	queuePaused = problem{severity: warning, kind: "queue_paused", sum: func(n int64, total float64, most string) string {
		return fmt.Sprintf("%s queues are paused, and have %s, most: %s", grouped(n), ready(int64(total)), most)
	}}
	scheduleLate = problem{severity: warning, kind: "schedule_late", sum: func(n int64, _ float64, most string) string {
		return fmt.Sprintf("%s ticks of schedules were late or missed, most: %s", grouped(n), most)
	}}

	problems = []*problem{&noLeader, &replicaDiffers, &nodeAway, &clockWrong, &diskFull, &diskLow, &certificateEnds, &rowsApart,
		&deadLetters, &poison, &noWorker, &noWorkerForType, &webhookDisabled, &webhookFails,
		&webhookDrops, &nodeRestarts, &diskSlow, &certificateEndsSoon, &deadLettersKept, &poisonKept, &failureRates,
		&fewReplicas, &replicaLags, &longWait, &breakerOpen, &queuePaused, &scheduleLate}
)

func certificatesEnd(n int64, _ float64, most string) string {
	return fmt.Sprintf("certificates of %s nodes expire or have expired, first: %s", grouped(n), most)
}

// situation is everything that is known when attention is computed.
type situation struct {
	report   stats.Report
	hour     stats.Report // the last
	status   broker.NamespaceStatus
	missing  []verb.Missing // nodes that did not answer, and shards that none of the others leads
	webhooks []webhooks.View
	narrow   bool // for a caller limited to one namespace, whom the cluster doesn't concern
	overview cluster.Overview
	known    bool // whether overview is known
}

// askOverview asks for the state of the cluster; it is not ok if the answer is missing.
func (g *Service) askOverview(ctx context.Context) (cluster.Overview, bool) {
	if g.Nodes == nil {
		return cluster.Overview{}, true
	}
	ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
	defer cancel()
	o, err := g.Nodes.Overview(ctx)
	return o, err == nil
}

// overviewTimeout bounds how long to wait for the cluster's answer.
const overviewTimeout = 2 * time.Second

// askWebhooks asks for the state of a namespace's webhooks. Without an answer nothing is known of them: that the system shard
// does not answer is reported separately.
func (g *Service) askWebhooks(ctx context.Context, ns string) []webhooks.View {
	if !g.Webhooks {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
	defer cancel()
	hooks, err := webhooks.List.Call(ctx, g.Verbs, ns)
	if err != nil {
		return nil
	}
	return hooks
}

// findings are the problems found.
type findings map[*problem]*problemLines

type problemLines struct {
	lines  []*pawlv1.Attention
	others int64   // subjects that are not named, none of them more severe than those that are
	value  float64 // sum over the others
}

func (f findings) add(m *problem, subject string, value float64, format string, args ...any) {
	if f[m] == nil {
		f[m] = &problemLines{}
	}
	f[m].lines = append(f[m].lines, &pawlv1.Attention{Kind: m.kind, Severity: m.severity, Subject: subject, Value: value,
		Detail: fmt.Sprintf(format, args...)})
}

func (f findings) last(m *problem) *pawlv1.Attention { return f[m].lines[len(f[m].lines)-1] }

// list returns what was found, most severe first, with many of one kind in one line.
func (f findings) list() (list []*pawlv1.Attention) {
	for _, m := range problems {
		if of := f[m]; of != nil {
			list = append(list, of.list(m)...)
		}
	}
	return list
}

// list returns the lines for one kind: a few, or one that sums them up.
func (of *problemLines) list(m *problem) []*pawlv1.Attention {
	slices.SortStableFunc(of.lines, func(a, b *pawlv1.Attention) int {
		if m.least {
			a, b = b, a
		}
		return cmp.Compare(b.Value, a.Value)
	})
	if of.others == 0 && len(of.lines) <= maxLines {
		return of.lines
	}
	n, total := int64(len(of.lines))+of.others, of.value
	names := make([]string, 0, maxLines)
	for i, l := range of.lines {
		n, total = n+l.More, total+l.Value
		if i < maxLines && !slices.Contains(names, l.Subject) {
			names = append(names, l.Subject)
		}
	}
	most := of.lines[0]
	return []*pawlv1.Attention{{Kind: m.kind, Severity: m.severity, Subject: most.Subject, Value: most.Value, More: n - 1,
		Detail: m.sum(n, total, strings.Join(names, ", "))}}
}

// attention lists what needs attention, most severe first.
func (s *situation) attention(now time.Time) []*pawlv1.Attention {
	f := findings{}
	if !s.narrow {
		s.ofCluster(f)
	}
	s.ofQueues(f)
	s.ofTasks(f)
	s.ofWebhooks(now, f)
	s.ofSchedules(f)
	return f.list()
}

func (s *situation) ofCluster(f findings) {
	s.ofNodes(f)
	if !s.known {
		f.add(&noLeader, "0", 0, "the system shard could not be asked for the state of the cluster")
		return
	}
	s.ofShards(f)
}

// nodeProblems are the problems of nodes that need attention.
var nodeProblems = map[cluster.ProblemKind]*problem{cluster.ClockWrong: &clockWrong, cluster.DiskFull: &diskFull, cluster.DiskLow: &diskLow,
	cluster.DiskSlow: &diskSlow, cluster.NodeRestart: &nodeRestarts, cluster.CertEnds: &certificateEnds,
	cluster.CertEndsSoon: &certificateEndsSoon}

// ofNodes checks nodes: those that are away, and those with problems. If the overview is not known, those away are the
// ones that gave no statistics.
func (s *situation) ofNodes(f findings) {
	for _, p := range s.overview.Problems() {
		if p.Kind == cluster.NodeAway {
			f.add(&nodeAway, p.Node, p.For.Seconds(), "%s", p.Text)
		} else if m := nodeProblems[p.Kind]; m != nil {
			f.add(m, p.Node, p.Value, "%s", p.Text)
		}
	}
	for _, m := range s.missing {
		if m.Node != "" && !s.known {
			f.add(&nodeAway, m.Node, 0, "no answer from node %s", m.Node)
		}
	}
}

// shardProblems are the problems of shards that need attention. What merely takes time does not.
var shardProblems = map[cluster.ProblemKind]*problem{
	cluster.NoLeader: &noLeader, cluster.ReplicaDiffers: &replicaDiffers, cluster.FewReplicas: &fewReplicas,
	cluster.ReplicaLags: &replicaLags,
}

// ofShards checks shards; all that have the same problem share a line.
func (s *situation) ofShards(f findings) {
	for _, p := range s.overview.Problems() {
		if m := shardProblems[p.Kind]; m != nil {
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
			f.add(&longWait, q.Queue, q.OldestReady.Seconds(), "a task of queue %s has been ready for %s, longer than its max_wait of %s",
				q.Queue, q.OldestReady.Truncate(time.Second), humanize.DurationText(q.MaxWait))
		}
		if n := q.Waits(task.WhyBreakerOpen); n > 0 {
			f.add(&breakerOpen, q.Queue, float64(n), "breakers of queue %s hold back %s", q.Queue, ready(n))
		}
	}
	if idle := s.status.Idle; len(idle) > 0 {
		most := slices.MaxFunc(idle, func(a, b broker.QueueCount) int { return cmp.Compare(a.N, b.N) })
		f.add(&noWorker, most.Queue, float64(most.N), "queue %s has %s, and no worker takes it", most.Queue, ready(most.N))
		of := f[&noWorker]
		of.others = int64(len(idle)) - 1
		for _, q := range idle {
			of.value += float64(q.N)
		}
		of.value -= float64(most.N)
	}
}

// manyDead is how many dead letters of an hour are critical, as in the alert rules: a single one can wait for office hours.
const manyDead = 10

// ofTasks checks the outcomes of tasks.
func (s *situation) ofTasks(f findings) {
	switch kept := max(s.status.Dead, s.status.NewDead, 0); {
	case s.status.NewDead > 0:
		least, severity := "", &deadLettersKept
		if s.status.MoreNewDead {
			least = "at least "
		}
		if s.status.MoreNewDead || s.status.NewDead >= manyDead {
			severity = &deadLetters
		}
		f.add(severity, "", float64(s.status.NewDead), "%s%s in the last hour, %s in all", least, plural(s.status.NewDead, "dead letter"),
			grouped(kept))
	case kept > 0:
		f.add(&deadLettersKept, "", float64(kept), "%s, none of them from the last hour", plural(kept, "dead letter"))
	}
	switch kept, found := s.status.Poisoned, int64(s.hour.Total().Poisoned); {
	case kept > 0 && found > 0: // there are no more new ones than there are
		f.add(&poison, "", float64(min(kept, found)), "%s in the last hour, %s in all", plural(min(kept, found), "poisoned task"),
			grouped(kept))
	case kept > 0:
		f.add(&poisonKept, "", float64(kept), "%s, none of them from the last hour", plural(kept, "poisoned task"))
	}
	if n := s.status.Apart; n > 0 {
		f.add(&rowsApart, "", float64(n), "%s of the last day could not be handled and were set apart: `pawl verify` and the log name them",
			plural(n, "row"))
	}
	s.ofFailures(f)
}

// ofFailures checks how many attempts fail: over the last hour, unless they have been succeeding since.
func (s *situation) ofFailures(f findings) {
	total, since := s.hour.Total(), s.hour.Lately(recoveryTime, stats.Hour)
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

// queueWords names a queue in a sentence, or all queues without figures of their own.
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

// ofWebhooks checks webhooks whose receivers get nothing although they are not paused.
func (s *situation) ofWebhooks(now time.Time, f findings) {
	since := func(at time.Time) time.Duration { return max(now.Sub(at), 0).Truncate(time.Second) }
	for i := range s.webhooks {
		h := &s.webhooks[i]
		state := h.State()
		switch {
		case state == webhooks.Disabled:
			f.add(&webhookDisabled, h.Name, since(h.DisabledAt.Time()).Seconds(), "webhook %s has been disabled for %s: %s", h.Name,
				since(h.DisabledAt.Time()), task.Cut(h.DisabledReason, maxWhy))
		case state == webhooks.Failing && h.Failures >= hookFails:
			f.add(&webhookFails, h.Name, since(h.FailsSince.Time()).Seconds(), "webhook %s has failed for %s, %s: %s", h.Name,
				since(h.FailsSince.Time()), plural(int64(h.Failures), "attempt"), task.Cut(h.LastError, maxWhy))
		case state != webhooks.Paused && h.Pending > 0 && since(h.PendingSince.Time()) > hookLate:
			f.add(&webhookFails, h.Name, since(h.PendingSince.Time()).Seconds(), "a notice for webhook %s has waited for %s%s", h.Name,
				since(h.PendingSince.Time()), prefixed(": ", task.Cut(h.LastError, maxWhy)))
		case h.Dropped > 0 && since(h.DroppedAt.Time()) < hookDropped:
			f.add(&webhookDrops, h.Name, float64(h.Dropped), "webhook %s has dropped %s, the last %s ago", h.Name,
				plural(h.Dropped, "notice"), since(h.DroppedAt.Time()))
		}
	}
}

// prefixed prefixes a text, if there is one.
func prefixed(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

func (s *situation) ofSchedules(f findings) {
	for _, t := range s.report.Late {
		if t.Skipped > 0 {
			f.add(&scheduleLate, t.Schedule, float64(t.Skipped), "schedule %s missed %s", t.Schedule, plural(int64(t.Skipped), "tick"))
		} else {
			f.add(&scheduleLate, t.Schedule, t.Late.Seconds(), "a tick of schedule %s came %s late", t.Schedule,
				t.Late.Truncate(time.Second))
		}
	}
}

func ready(n int64) string { return plural(n, "ready task") }

// plural formats a number of things: "1 tick", "14,000 ticks".
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(n) + " " + thing + "s"
}

// grouped formats 1234567 as 1,234,567.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
