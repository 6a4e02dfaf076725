package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
)

func TestAttention(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	busy := func(q string, oldest time.Duration, why ...task.Why) *broker.Standing {
		s := &broker.Standing{Queue: q, Ready: 7, Looked: true, OldestReady: oldest, MaxWait: time.Minute}
		for _, w := range why {
			s.Blocked = append(s.Blocked, broker.Blocked{Why: w, Tasks: 7})
		}
		return s
	}
	queue := func(s *broker.Standing) situation {
		return situation{known: true, standing: broker.NamespaceStanding{Busy: []*broker.Standing{s}}}
	}
	hour := func(r stats.Rates) situation {
		return situation{known: true, hour: stats.Report{Rates: []stats.Rates{r}, Failing: []stats.Failing{{Queue: "q", Type: "t", Failures: 9}}}}
	}
	node := func(n cluster.NodeOverview) situation {
		n.Name = "n2"
		return situation{known: true, overview: cluster.Overview{Nodes: []cluster.NodeOverview{n}}}
	}
	shardIs := func(s cluster.ShardOverview) situation {
		s.ID = 3
		return situation{known: true, overview: cluster.Overview{Shards: []cluster.ShardOverview{s}}}
	}
	for _, c := range []struct {
		name string
		s    situation
		want string
	}{
		{"nothing", situation{known: true}, ""},
		{"nobody to ask", situation{}, "critical shard 0"},
		{"a node gives no answer", situation{known: true, away: []string{"n3"}}, "critical node n3"},
		{"a node is away", node(cluster.NodeOverview{Heard: true, Silent: time.Minute}), "critical node n2"},
		{"a node was not heard of yet", node(cluster.NodeOverview{}), ""},
		{"a disk is short", node(cluster.NodeOverview{Alive: true, Report: cluster.Report{DiskFree: 9, DiskTotal: 100}}), "critical disk n2"},
		{"a disk is not", node(cluster.NodeOverview{Alive: true, Report: cluster.Report{DiskFree: 11, DiskTotal: 100}}), ""},
		{"no leader", shardIs(cluster.ShardOverview{Known: true}), "critical shard 3"},
		{"too few replicas", shardIs(cluster.ShardOverview{Known: true, Leader: 1, Under: true}), "warning shard 3"},
		{"a replica lags", shardIs(cluster.ShardOverview{Known: true, Leader: 1, Members: []cluster.ReplicaOverview{{Lag: lagEntries + 1}}}), "warning shard 3"},
		{"a queue is well", queue(busy("q", time.Minute)), ""},
		{"a long wait", queue(busy("q", time.Minute+1)), "warning oldest_wait q"},
		{"paused with work, which says all", queue(busy("q", time.Hour, task.WhyQueuePaused, task.WhyNoWorker)), "warning queue_paused q"},
		{"no worker", queue(busy("q", 0, task.WhyNoWorker)), "critical no_worker q"},
		{"no worker for a type", queue(busy("q", 0, task.WhyNoWorkerForType)), "critical no_worker q"},
		{"a breaker is open", queue(busy("q", 0, task.WhyBreakerOpen)), "warning breaker_open q"},
		{"dead letters", hour(stats.Rates{Dead: 1, Succeeded: 100}), "critical dead_letters "},
		{"few attempts fail", hour(stats.Rates{Failed: 9}), ""},
		{"a fifth fails", hour(stats.Rates{Failed: 20, Succeeded: 80}), ""},
		{"more fail", hour(stats.Rates{Failed: 20, Crashed: 1, Succeeded: 80}), "warning failure_rate "},
		{"a late tick", situation{known: true, late: []stats.LateTick{{Schedule: "s", Late: time.Hour}}}, "warning schedule_late s"},
		{"a certificate ends", situation{known: true, certificate: now.Add(lastDays - 1)}, "critical certificate "},
		{"what is the cluster's, to somebody of one namespace", situation{narrow: true, away: []string{"n3"}, certificate: now.Add(1)}, ""},
		{"a certificate lasts", situation{known: true, certificate: now.Add(lastDays)}, ""},
	} {
		var got []string
		for _, a := range c.s.attention(now) {
			got = append(got, fmt.Sprintf("%s %s %s", a.Severity, a.Kind, a.Subject))
			if a.Detail == "" || strings.Contains(a.Detail, "%!") {
				t.Errorf("%s: detail %q", c.name, a.Detail)
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	var many situation
	for i := range 300 {
		many.standing.Busy = append(many.standing.Busy, busy(fmt.Sprint(i), time.Hour))
	}
	if got := many.attention(now); len(got) != maxAttention || got[0].Kind != "shard" {
		t.Errorf("of many it tells %d, first %s; want %d, the critical first", len(got), got[0].Kind, maxAttention)
	}
}
