package statistics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

func TestAttention(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	busy := func(q string, oldest time.Duration, why ...task.Why) *broker.QueueStatus {
		s := &broker.QueueStatus{Queue: q, Ready: 7, Examined: true, OldestReady: oldest, MaxWait: time.Minute}
		for _, w := range why {
			s.Blocked = append(s.Blocked, broker.Blocked{Why: w, Tasks: 7})
		}
		return s
	}
	queue := func(s *broker.QueueStatus) situation {
		return situation{known: true, status: broker.NamespaceStatus{Busy: []*broker.QueueStatus{s}}}
	}
	// held returns a queue in which one of seven tasks waits for a reason.
	held := func(why task.Why) situation {
		s := busy("q", 0)
		s.Blocked = []broker.Blocked{{Why: why, Tasks: 1}}
		return queue(s)
	}
	hour := func(r stats.Rates) situation {
		return situation{known: true, hour: stats.Report{Rates: []stats.Rates{r},
			Failing: []stats.Failing{{Queue: "q", Type: "t", Failures: 9}}}}
	}
	with := func(s broker.NamespaceStatus, r stats.Rates) situation {
		of := hour(r)
		of.status = s
		return of
	}
	// course returns an hour in which some attempts ended the given time ago, and others just now.
	course := func(then stats.Rates, ago time.Duration, now stats.Rates) situation {
		rates := make([]stats.Rates, 360)
		rates[359-int(ago/stats.Hour.Step())], rates[359] = then, now
		return situation{known: true, hour: stats.Report{Rates: rates}}
	}
	node := func(n cluster.NodeOverview) situation {
		n.Name = "n2"
		return situation{known: true, overview: cluster.Overview{Nodes: []cluster.NodeOverview{n}}}
	}
	// ends returns nodes whose certificates expire after the given times.
	ends := func(left ...time.Duration) situation {
		s := situation{known: true}
		for i, d := range left {
			s.overview.Nodes = append(s.overview.Nodes, cluster.NodeOverview{Node: cluster.Node{Name: fmt.Sprint("n", i+1)}, Alive: true,
				Report: cluster.Report{CertsLeft: map[string]time.Duration{"peer": d}}})
		}
		return s
	}
	shardIs := func(s cluster.ShardOverview) situation {
		s.ID = 3
		return situation{known: true, overview: cluster.Overview{Shards: []cluster.ShardOverview{s}}}
	}
	var told strings.Builder // in full
	for _, c := range []struct {
		name string
		s    situation
		want string
	}{
		{"nothing", situation{known: true}, ""},
		{"nobody to ask", situation{}, "critical shard 0"},
		{"a node gives no answer either", situation{missing: []verb.Missing{{Node: "n3"}, {Shard: 4}}},
			"critical shard 0, critical node n3"},
		{"a node gives no statistics, but is alive", situation{known: true, missing: []verb.Missing{{Node: "n3"}, {Shard: 4}}}, ""},
		{"a node is away", node(cluster.NodeOverview{Reported: true, Silent: time.Minute}), "critical node n2"},
		{"a node does not answer a new leader", node(cluster.NodeOverview{}), "critical node n2"},
		{"a node answers, but does not report", node(cluster.NodeOverview{Answers: true, Silent: time.Minute}), "critical node n2"},
		{"a clock is wrong", node(cluster.NodeOverview{Alive: true, Report: cluster.Report{ClockOffset: -time.Hour}}), "critical clock n2"},
		{"a disk is below its bound, which says all",
			node(cluster.NodeOverview{Alive: true, Report: cluster.Report{DiskFree: 9, DiskTotal: 100,
				DiskShort: true, MinFree: 10}}), "critical disk n2"},
		{"a disk is slow", node(cluster.NodeOverview{Alive: true, Report: cluster.Report{SlowDisk: true}}), "warning disk n2"},
		{"a node starts again and again", node(cluster.NodeOverview{Alive: true, Starts: 3, Proof: time.Minute}), "warning node n2"},
		{"a disk is short", node(cluster.NodeOverview{Alive: true, Report: cluster.Report{DiskFree: 9, DiskTotal: 100}}),
			"critical disk n2"},
		{"a disk is not", node(cluster.NodeOverview{Alive: true, Report: cluster.Report{DiskFree: 11, DiskTotal: 100}}), ""},
		{"no leader", shardIs(cluster.ShardOverview{Known: true}), "critical shard 3"},
		{"too few replicas", shardIs(cluster.ShardOverview{Known: true, Leader: 1, Under: true}), "warning shard 3"},
		{"a replica lags", shardIs(cluster.ShardOverview{Known: true, Leader: 1, Members: []cluster.ReplicaOverview{
			{Answers: true, Lag: 100_001}}}), "warning shard 3"},
		{"a replica lags a little", shardIs(cluster.ShardOverview{Known: true, Leader: 1, Members: []cluster.ReplicaOverview{
			{Answers: true, Lag: 100_000}}}), ""},
		{"a queue is well", queue(busy("q", time.Minute)), ""},
		{"a long wait", queue(busy("q", time.Minute+1)), "warning oldest_wait q"},
		{"paused with work, which says all", queue(busy("q", time.Hour, task.WhyQueuePaused, task.WhyNoWorker)), "warning queue_paused q"},
		{"no worker", queue(busy("q", 0, task.WhyNoWorker)), "critical no_worker q"},
		{"no worker for a type", queue(busy("q", 0, task.WhyNoWorkerForType)), "critical no_worker q"},
		{"a breaker is open", queue(busy("q", 0, task.WhyBreakerOpen)), "warning breaker_open q"},
		{"no worker for one task", held(task.WhyNoWorkerForType), "critical no_worker q"},
		{"a breaker holds one back", held(task.WhyBreakerOpen), "warning breaker_open q"},
		{"one idle queue", situation{known: true, status: broker.NamespaceStatus{Idle: []broker.QueueCount{{Queue: "i", N: 2}}}},
			"critical no_worker i"},
		{"new dead letters", situation{known: true, status: broker.NamespaceStatus{Dead: 19, NewDead: 10}}, "critical dead_letters "},
		{"a few new ones", situation{known: true, status: broker.NamespaceStatus{Dead: 19, NewDead: 9}}, "warning dead_letters "},
		{"a few, and more that were not counted", situation{known: true, status: broker.NamespaceStatus{Dead: 19, NewDead: 9,
			MoreNewDead: true}},
			"critical dead_letters "},
		{"old ones", situation{known: true, status: broker.NamespaceStatus{Dead: 9}}, "warning dead_letters "},
		{"one old one", situation{known: true, status: broker.NamespaceStatus{Dead: 1}}, "warning dead_letters "},
		{"new poison", with(broker.NamespaceStatus{Poisoned: 9}, stats.Rates{Poisoned: 2}), "critical poisoned "},
		{"old poison", with(broker.NamespaceStatus{Poisoned: 9}, stats.Rates{Dead: 1}), "warning poisoned "},
		{"new poison, all retried or discarded", hour(stats.Rates{Poisoned: 2}), ""},
		{"new ones, all replayed or discarded", hour(stats.Rates{Dead: 407, Succeeded: 5000, Replayed: 407}), ""},
		{"few attempts fail", hour(stats.Rates{Failed: 9}), ""},
		{"ten fail", hour(stats.Rates{Failed: 10}), "warning failure_rate "},
		{"a fifth fails", hour(stats.Rates{Failed: 20, Succeeded: 80}), ""},
		{"a fifth failed, and nothing ended since", course(stats.Rates{Failed: 20, Succeeded: 80}, 16*time.Minute, stats.Rates{}), ""},
		{"a tenth fails", hour(stats.Rates{Failed: 10, Succeeded: 90}), ""},
		{"more fail", hour(stats.Rates{Failed: 20, Crashed: 1, Succeeded: 80}), "warning failure_rate "},
		{"more failed, and all is well since", course(stats.Rates{Failed: 50, Succeeded: 50}, 16*time.Minute, stats.Rates{Succeeded: 30}),
			""},
		{"more failed, and one ended well since", course(stats.Rates{Failed: 50, Succeeded: 50}, 16*time.Minute, stats.Rates{Succeeded: 1}),
			""},
		{"more failed, and a fifth since", course(stats.Rates{Failed: 50, Succeeded: 50}, 16*time.Minute,
			stats.Rates{Failed: 2, Succeeded: 8}),
			""},
		{"more failed, and nothing ended since", course(stats.Rates{Failed: 50, Succeeded: 50}, 16*time.Minute, stats.Rates{}),
			"warning failure_rate "},
		{"more failed a moment ago", course(stats.Rates{Failed: 50, Succeeded: 50}, 14*time.Minute, stats.Rates{Succeeded: 30}),
			"warning failure_rate "},
		{"more failed, and do", course(stats.Rates{Failed: 50, Succeeded: 50}, 16*time.Minute, stats.Rates{Failed: 3, Succeeded: 7}),
			"warning failure_rate "},
		{"a late tick", situation{known: true, report: stats.Report{Late: []stats.LateTick{{Schedule: "s", Late: time.Hour}}}},
			"warning schedule_late s"},
		{"ticks were missed", situation{known: true, report: stats.Report{Late: []stats.LateTick{{Schedule: "s", Skipped: 2,
			Late: time.Hour}}}},
			"warning schedule_late s"},
		{"one tick was missed", situation{known: true, report: stats.Report{Late: []stats.LateTick{{Schedule: "s", Skipped: 1,
			Late: time.Hour}}}}, "warning schedule_late s"},
		{"a certificate ends", ends(14*24*time.Hour - 1), "critical certificate n1"},
		{"a certificate ends soon", ends(30*24*time.Hour - 1), "warning certificate n1"},
		{"in two weeks", ends(14 * 24 * time.Hour), "warning certificate n1"},
		{"it lasts", ends(30 * 24 * time.Hour), ""},
		{"it has expired", ends(-1), "critical certificate n1"},
		{"many end", ends(4*time.Hour, 3*time.Hour, time.Hour, 2*time.Hour), "critical certificate n3"},
		{"what is the cluster's, to somebody of one namespace", situation{narrow: true, missing: []verb.Missing{{Node: "n3"}, {Shard: 4}},
			overview: ends(1).overview}, ""},
	} {
		var got []string
		for _, a := range c.s.attention(now) {
			got = append(got, fmt.Sprintf("%s %s %s", a.Severity, a.Kind, a.Subject))
			fmt.Fprintf(&told, "%s: %v +%d: %s\n", c.name, a.Value, a.More, a.Detail)
			if a.Detail == "" || strings.Contains(a.Detail, "%!") {
				t.Errorf("%s: detail = %q", c.name, a.Detail)
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	golden(t, "testdata/attention.txt", []byte(told.String()))
}

// TestManyNeedAttention checks that thousands of subjects with one problem take one line, with the most severe of them, and crowd out
// nothing.
func TestManyNeedAttention(t *testing.T) {
	s := situation{known: true, status: broker.NamespaceStatus{Dead: 2_500, NewDead: 2_000, MoreNewDead: true}}
	for i := range 13_800 {
		s.status.Idle = append(s.status.Idle, broker.QueueCount{Queue: fmt.Sprint("small", i), N: 1 + int64(min(i, 13_700)/13_700)})
	}
	for i := range 200 {
		s.status.Busy = append(s.status.Busy, &broker.QueueStatus{Queue: fmt.Sprintf("idle-%03d", i), Ready: int64(100 + i), Examined: true,
			Blocked: []broker.Blocked{{Why: task.WhyNoWorker, Tasks: int64(100 + i)}}})
	}
	for i := range 5 {
		s.status.Busy = append(s.status.Busy, &broker.QueueStatus{Queue: fmt.Sprintf("paused-%d", i), Ready: int64(i + 1), Examined: true,
			Blocked: []broker.Blocked{{Why: task.WhyQueuePaused, Tasks: int64(i + 1)}}})
	}
	for i := range 3 {
		s.status.Busy = append(s.status.Busy, &broker.QueueStatus{Queue: fmt.Sprintf("slow-%d", i), Ready: 1, Examined: true,
			MaxWait: time.Minute, OldestReady: time.Duration(i+1) * time.Hour})
		s.overview.Nodes = append(s.overview.Nodes, cluster.NodeOverview{Node: cluster.Node{Name: fmt.Sprintf("n%d", i)},
			Reported: true, Alive: true, Report: cluster.Report{DiskFree: int64(3-i) << 30, DiskTotal: 100 << 30}})
	}
	var got strings.Builder
	for _, a := range s.attention(time.Now()) {
		fmt.Fprintf(&got, "%s %s %s %v +%d: %s\n", a.Severity, a.Kind, a.Subject, a.Value, a.More, a.Detail)
	}
	want := `critical disk n2 1.073741824e+09 +0: the disk of node n2 has 1GiB of 100GiB free
critical disk n1 2.147483648e+09 +0: the disk of node n1 has 2GiB of 100GiB free
critical disk n0 3.221225472e+09 +0: the disk of node n0 has 3GiB of 100GiB free
critical dead_letters  2000 +0: at least 2,000 dead letters in the last hour, 2,500 in all
critical no_worker idle-199 299 +13999: 14,000 queues have 53,800 ready tasks, and no worker takes them; most: idle-199, idle-198, idle-197
warning oldest_wait slow-2 10800 +0: a task of queue slow-2 has been ready for 3h0m0s, longer than its max_wait of 1m
warning oldest_wait slow-1 7200 +0: a task of queue slow-1 has been ready for 2h0m0s, longer than its max_wait of 1m
warning oldest_wait slow-0 3600 +0: a task of queue slow-0 has been ready for 1h0m0s, longer than its max_wait of 1m
warning queue_paused paused-4 5 +4: 5 queues are paused, and have 15 ready tasks, most: paused-4, paused-3, paused-2
`
	if got.String() != want {
		t.Errorf("got:\n%swant:\n%s", got.String(), want)
	}
	s.overview, s.status.Busy, s.status.NewDead = cluster.Overview{}, nil, 0
	got.Reset()
	for _, a := range s.attention(time.Now()) {
		fmt.Fprintf(&got, "%s %s %s +%d: %s\n", a.Severity, a.Kind, a.Subject, a.More, a.Detail)
	}
	want = `critical no_worker small13700 +13799: 13,800 queues have 13,900 ready tasks, and no worker takes them; most: small13700
warning dead_letters  +0: 2,500 dead letters, none of them from the last hour
`
	if got.String() != want {
		t.Errorf("idle queues without details: got:\n%swant:\n%s", got.String(), want)
	}
}

// TestRemainderIsNotAQueue checks that queues or types without statistics of their own are not reported as if they were one queue.
func TestRemainderIsNotAQueue(t *testing.T) {
	s := situation{known: true, hour: stats.Report{Rates: []stats.Rates{{Failed: 90, Succeeded: 10}},
		Failing: []stats.Failing{{Queue: stats.Other, Type: stats.Other, Failures: 90}}}}
	const want = "90 % of the attempts of the last hour ended badly; most often other types of other queues, 90 times"
	if got := s.attention(time.Now()); len(got) != 1 || got[0].GetDetail() != want {
		t.Errorf("got %v, want %q", got, want)
	}
}

// TestWebhooksNeedAttention checks that webhooks whose receivers get nothing are reported, also to callers of a single namespace.
func TestWebhooksNeedAttention(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) store.Time { return store.TimeOf(now.Add(-d)) }
	gone := webhooks.Webhook{DisabledReason: "410 Gone", DisabledAt: ago(time.Hour)}
	for _, c := range []struct {
		name  string
		hook  webhooks.Webhook
		is    webhooks.Status
		since time.Duration // of the oldest notification
		want  string
	}{
		{"one that is well", webhooks.Webhook{}, webhooks.Status{Pending: 1}, time.Minute, ""},
		{"two attempts failed", webhooks.Webhook{}, webhooks.Status{Failures: 2, FailsSince: ago(10 * time.Minute), Pending: 1},
			15 * time.Minute, ""},
		{"a third did", webhooks.Webhook{}, webhooks.Status{Failures: 3, FailsSince: ago(18 * time.Minute), LastError: "no", Pending: 1},
			time.Hour, "webhook a has failed for 18m0s, 3 attempts: no"},
		{"it fails, and is paused", webhooks.Webhook{Paused: true}, webhooks.Status{Failures: 9, Pending: 1}, time.Hour, ""},
		{"it is disabled", gone, webhooks.Status{Failures: 1, Pending: 1}, time.Hour, "webhook a has been disabled for 1h0m0s: 410 Gone"},
		{"it is disabled, and was paused", webhooks.Webhook{Paused: true, DisabledReason: "410 Gone", DisabledAt: ago(time.Second)},
			webhooks.Status{}, 0, "webhook a has been disabled for 1s: 410 Gone"},
		{"a notice waits for long", webhooks.Webhook{}, webhooks.Status{Pending: 1}, 16 * time.Minute,
			"a notice for webhook a has waited for 16m0s"},
		{"its receiver wants to be left alone for long", webhooks.Webhook{}, webhooks.Status{Pending: 1, Failures: 1, LastError: "busy"},
			16 * time.Minute, "a notice for webhook a has waited for 16m0s: busy"},
		{"notices were dropped", webhooks.Webhook{Paused: true}, webhooks.Status{Dropped: 3, DroppedAt: ago(59 * time.Minute)}, 0,
			"webhook a has dropped 3 notices, the last 59m0s ago"},
		{"none were, ever", webhooks.Webhook{}, webhooks.Status{DroppedAt: ago(time.Minute)}, 0, ""},
		{"some were, an hour ago", webhooks.Webhook{}, webhooks.Status{Dropped: 3, DroppedAt: ago(time.Hour)}, 0, ""},
		{"some were, long ago", webhooks.Webhook{}, webhooks.Status{Dropped: 3, DroppedAt: ago(2 * time.Hour)}, 0, ""},
	} {
		c.hook.Name = "a"
		got := ""
		for _, a := range (&situation{narrow: true, webhooks: []webhooks.View{{Webhook: c.hook, Status: c.is,
			PendingSince: ago(c.since)}}}).attention(now) {
			if got += a.Detail; a.Kind != "webhook" || a.Severity != warning || a.Subject != "a" || a.Value <= 0 {
				t.Errorf("%s: attention = %+v", c.name, a)
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	many := situation{narrow: true}
	for i := range 5 {
		n := time.Duration(i + 1)
		many.webhooks = append(many.webhooks, webhooks.View{Webhook: webhooks.Webhook{Name: fmt.Sprint("gone-", i), DisabledReason: "no",
			DisabledAt: ago(n * time.Minute)}},
			webhooks.View{Webhook: webhooks.Webhook{Name: fmt.Sprint("down-", i)}, Status: webhooks.Status{Failures: 7,
				FailsSince: ago(n * time.Minute)}},
			webhooks.View{Webhook: webhooks.Webhook{Name: fmt.Sprint("full-", i)}, Status: webhooks.Status{Dropped: int64(i + 1),
				DroppedAt: ago(time.Minute)}})
	}
	var got []string
	for _, a := range many.attention(now) {
		got = append(got, a.Detail)
	}
	want := []string{"5 webhooks are disabled until they are resumed, longest: gone-4, gone-3, gone-2",
		"5 webhooks fail, longest: down-4, down-3, down-2",
		"5 webhooks have dropped 15 notices, the last within the hour; most: full-4, full-3, full-2"}
	if !slices.Equal(got, want) {
		t.Errorf("many webhooks: got %q\nwant %q", got, want)
	}
}

// Many subjects with the same problem are reported with their number and the most severe ones, whatever the problem.
func TestProblemsAreMerged(t *testing.T) {
	for _, m := range []*problem{&noLeader, &replicaDiffers, &nodeAway, &clockWrong, &diskFull, &diskLow, &noWorkerForType, &nodeRestarts,
		&diskSlow, &fewReplicas, &replicaLags, &longWait, &breakerOpen, &scheduleLate} {
		if got := m.sum(1234, 5678, "a, b"); !strings.Contains(got, "1,234") && !strings.Contains(got, "5,678") ||
			!strings.Contains(got, "a, b") || strings.Contains(got, "%!") {
			t.Errorf("summary of %s = %s", m.kind, got)
		}
		if least := m == &diskFull || m == &diskLow; m.least != least {
			t.Errorf("in %q the lowest value is the most severe: %t", m.sum(2, 0, "a"), m.least)
		}
	}
	line := func(subject string, value float64, more int64) *pawlv1.Attention {
		return &pawlv1.Attention{Subject: subject, Value: value, More: more}
	}
	of := problemLines{lines: []*pawlv1.Attention{line("a", 1, 2), line("b", 2, 0), line("b", 3, 3), line("c", 4, 0)}, others: 5}
	if got := of.list(&replicaLags); len(got) != 1 || got[0].More != 4+2+3+5-1 || got[0].Subject != "c" ||
		got[0].Detail != "14 replicas of shards are far behind, most: c, b" {
		t.Errorf("lines of several subjects and others = %v", got)
	}
}

// Numbers are formatted in groups of three digits, and nouns agree with them.
func TestNumberFormats(t *testing.T) {
	for n, want := range map[int64]string{0: "0 ticks", 1: "1 tick", 2: "2 ticks", 999: "999 ticks", 1000: "1,000 ticks",
		99999: "99,999 ticks", 1234567: "1,234,567 ticks", -1: "-1 ticks", -123: "-123 ticks", -1234: "-1,234 ticks",
		-123456: "-123,456 ticks"} {
		if got := plural(n, "tick"); got != want {
			t.Errorf("plural of %d = %q, want %q", n, got, want)
		}
	}
	if got := prefixed(": ", "a") + prefixed(": ", ""); got != ": a" {
		t.Errorf("prefixed = %q, want \": a\"", got)
	}
}

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares got with a golden file. -rewrite rewrites the file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\ngot\n%swant\n%s", path, err, got, want)
	}
}
