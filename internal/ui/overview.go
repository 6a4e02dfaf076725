package ui

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl"
)

var overviewPages = []page{{path: "/{$}", template: "overview", nav: "/", show: showOverview}}

type overviewView struct {
	Counts  []count
	Held    int64
	Oldest  time.Duration
	OldestQ string
	Queues  int
	Busy    []queueRow
	Alarms  []alarm
	Running []operationRow
}

// alarm is something that wants attention.
type alarm struct {
	State string // how bad
	Word  string
	Text  string
	More  string
	URL   string
	weigh int64
}

const (
	// busyQueues is how many queues the overview lists: those with most to do.
	busyQueues = 8
	maxAlarms  = 12
	// lateWait is how long a ready task may wait before that is worth a line.
	lateWait = 5 * time.Minute
	lowDisk  = 10 // percent
)

func showOverview(v *visit) (*screen, error) {
	view := &overviewView{}
	var sum pawl.Depth
	for q, err := range v.admin().Queues(v.ctx) {
		if err != nil {
			return nil, err
		}
		view.Queues++
		addDepth(&sum, q.Depth)
		if q.OldestReady > view.Oldest {
			view.Oldest, view.OldestQ = q.OldestReady, q.Name
		}
		view.Busy = append(view.Busy, rowOf(q))
		view.Alarms = append(view.Alarms, v.queueAlarms(q)...)
	}
	view.Counts, view.Held = countsOf(sum), sum.Held
	slices.SortStableFunc(view.Busy, func(a, b queueRow) int { return int(busyness(b) - busyness(a)) })
	view.Busy = view.Busy[:min(len(view.Busy), busyQueues)]
	if err := v.serverAlarms(view); err != nil {
		return nil, err
	}
	slices.SortStableFunc(view.Alarms, func(a, b alarm) int { return int(b.weigh - a.weigh) })
	view.Alarms = view.Alarms[:min(len(view.Alarms), maxAlarms)]
	return &screen{Title: "Overview", Data: view}, nil
}

func busyness(q queueRow) int64 {
	return q.Depth.Claimed + q.Depth.Ready + q.Depth.Retrying + q.Depth.Scheduled
}

func addDepth(sum *pawl.Depth, d pawl.Depth) {
	sum.Scheduled += d.Scheduled
	sum.Ready += d.Ready
	sum.Claimed += d.Claimed
	sum.Retrying += d.Retrying
	sum.Held += d.Held
	sum.Dead += d.Dead
	sum.Poisoned += d.Poisoned
}

// The weights of alarms put what stops work before what only waits to be looked at.
const (
	weighShard   = 1 << 40
	weighBreaker = 1 << 30
	weighWait    = 1 << 28
	weighPause   = 1 << 26
)

func (v *visit) queueAlarms(q *pawl.QueueInfo) (all []alarm) {
	at := v.url("queues", q.Name)
	if q.Depth.Dead > 0 {
		all = append(all, alarm{State: "dead", Word: "dead", Text: plural(q.Depth.Dead, "dead letter") + " in " + q.Name, URL: v.url("dead", "?queue="+q.Name), weigh: q.Depth.Dead})
	}
	if q.Depth.Poisoned > 0 {
		all = append(all, alarm{State: "poisoned", Word: "poison", Text: plural(q.Depth.Poisoned, "poisoned task") + " in " + q.Name, URL: v.url("poison", "?queue="+q.Name), weigh: q.Depth.Poisoned})
	}
	for _, b := range q.Breakers {
		all = append(all, alarm{State: "open", Word: "breaker", Text: fmt.Sprintf("The breaker of %s in %s is %s", b.Type, q.Name, b.State), More: b.Reason, URL: at, weigh: weighBreaker})
	}
	switch {
	case q.Paused:
		all = append(all, alarm{State: "paused", Word: "paused", Text: fmt.Sprintf("Queue %s is paused, with %s", q.Name, plural(q.Depth.Ready, "ready task")), More: q.PausedReason, URL: at, weigh: weighPause})
	case q.OldestReady > lateWait:
		all = append(all, alarm{State: "retrying", Word: "waiting", Text: fmt.Sprintf("A task of %s has waited for %s", q.Name, spanText(q.OldestReady)), URL: at, weigh: weighWait})
	}
	return all
}

// serverAlarms looks at what is not a queue's.
func (v *visit) serverAlarms(view *overviewView) error {
	c, err := v.admin().Cluster(v.ctx)
	if err != nil {
		return err
	}
	at := v.url("cluster")
	for _, s := range c.Shards {
		if s.Leader == "" || s.UnderReplicated && len(c.Nodes) > 1 { // one node is as its owner wants it
			view.Alarms = append(view.Alarms, alarm{State: "problem", Word: "shard", Text: fmt.Sprintf("Shard %d %s", s.Shard, shardProblem(s)), More: s.Problem, URL: at, weigh: weighShard})
		}
	}
	for _, n := range c.Nodes {
		if n.Heard && !n.Alive {
			view.Alarms = append(view.Alarms, alarm{State: "silent", Word: "node", Text: "Node " + n.Name + " is silent for " + spanText(n.Silent.Round(time.Second)), URL: at, weigh: weighShard})
		}
		if n.DiskTotal > 0 && n.DiskFree*100/n.DiskTotal < lowDisk {
			view.Alarms = append(view.Alarms, alarm{State: "problem", Word: "disk", Text: fmt.Sprintf("Node %s has %s of disk left", n.Name, sizeText(n.DiskFree)), URL: at, weigh: weighShard})
		}
	}
	page, err := v.admin().OperationsPage(v.ctx, pawl.PageRequest{Limit: operationsLimit})
	if err != nil {
		return err
	}
	for _, o := range page.Items {
		if !o.State.Ended() {
			view.Running = append(view.Running, operationRowOf(o))
		}
	}
	return nil
}

func shardProblem(s pawl.ShardStatus) string {
	if s.Leader == "" {
		return "has no leader"
	}
	return "has too few replicas"
}
