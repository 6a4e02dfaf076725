package ui

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/tasks"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var overviewPages = []web.Page{{Path: "/{$}", Template: "overview", Nav: "/", Show: showOverview}}

type overviewView struct {
	Counts         []chart.Count
	Totals         admin.QueueTotals
	Stats          *admin.Stats
	Windows        []web.Chip
	Chart          chart.Chart
	Busy           []queueRow
	Alarms         []alarm
	Failing        []failingRow
	Running        []tasks.OperationRow
	GettingStarted []form.Fact // commands, shown if nothing has been enqueued yet
}

// alarm is something that needs attention.
type alarm struct {
	State string // for its color
	Word  string
	Text  string
	URL   string // "": none
	Link  string // the link's name for screen readers
}

// failingRow is a failing type with a link to its tasks.
type failingRow struct {
	admin.FailingType
	URL string
}

const (
	// busyQueues is how many queues the overview lists: the busiest. If there are at most busyAmong, it reads them all
	// and sums their counts. Otherwise the totals and the choice were read from all queues some seconds ago.
	busyQueues = 8
	busyAmong  = 100
	maxFailing = 8
)

func showOverview(req *web.Request) (*web.Screen, error) {
	window, windows, err := windowOf(req)
	if err != nil {
		return nil, err
	}
	stats, err := req.Admin().Stats(req.Ctx, window)
	if err != nil {
		return nil, err
	}
	req.Lacks(stats.Missing)
	t := stats.Queues
	view := &overviewView{Totals: t, Stats: &stats.Stats, Windows: windows, Chart: chart.Throughput("Tasks ended and enqueued",
		&stats.Stats),
		Counts: chart.DepthCounts(admin.Depth{Scheduled: t.Scheduled, Ready: t.Ready, Claimed: t.Claimed, Retrying: t.Retrying,
			Dead: t.Dead, Poisoned: t.Poisoned})}
	addMarkers(req, &view.Chart, "", "")
	for _, a := range stats.Attention { // each kind has only a few entries: many subjects are summarized in one
		one := alarmOf(req, a)
		if a.Kind == "failure_rate" && len(stats.Failing) > 0 { // the text names the worst type
			one.URL = worstURL(req, stats.Failing[0], t)
		}
		view.Alarms = append(view.Alarms, one)
	}
	for _, f := range stats.Failing[:min(len(stats.Failing), maxFailing)] {
		view.Failing = append(view.Failing, failingRow{f, failingURL(req, f, "")})
	}
	if err := view.addQueues(req); err != nil {
		return nil, err
	}
	if view.Totals.Queues == 0 {
		view.GettingStarted = req.GettingStarted()
	}
	page, err := req.Admin().Operations().ListPage(req.Ctx, pawltype.PageRequest{Limit: tasks.OperationsLimit})
	if err != nil {
		return nil, err
	}
	for _, o := range page.Items {
		if !o.State.Ended() {
			view.Running = append(view.Running, tasks.OperationRowOf(o))
		}
	}
	return &web.Screen{Title: "Overview", Data: view, Watch: &web.Watch{}}, nil
}

// addQueues adds the busiest queues.
func (o *overviewView) addQueues(req *web.Request) error {
	page, err := req.Admin().Queues().ListPage(req.Ctx, admin.QueueFilter{}, pawltype.PageRequest{Limit: busyAmong})
	if err != nil {
		return err
	}
	if page.NextCursor == "" {
		o.add(page.Items)
	} else if page, err = req.Admin().Queues().ListPage(req.Ctx, admin.QueueFilter{Most: true},
		pawltype.PageRequest{Limit: busyQueues}); err != nil {
		return err
	}
	slices.SortStableFunc(page.Items, func(a, b *admin.Queue) int { return cmp.Compare(busyness(b.Depth), busyness(a.Depth)) })
	req.Lacks(page.Missing)
	for _, q := range page.Items[:min(len(page.Items), busyQueues)] {
		o.Busy = append(o.Busy, rowOf(q))
	}
	return nil
}

// add sums the counts of all queues.
func (o *overviewView) add(all []*admin.Queue) {
	var sum admin.Depth
	o.Totals = admin.QueueTotals{Queues: int64(len(all))}
	for _, q := range all {
		d := q.Depth
		sum.Scheduled += d.Scheduled
		sum.Ready += d.Ready
		sum.Claimed += d.Claimed
		sum.Retrying += d.Retrying
		sum.Dead += d.Dead
		sum.Poisoned += d.Poisoned
		if q.OldestReady > o.Totals.OldestReady {
			o.Totals.OldestReady, o.Totals.OldestReadyQueue = q.OldestReady, q.Name
		}
	}
	o.Counts = chart.DepthCounts(sum)
}

func busyness(d admin.Depth) int64 { return d.Claimed + d.Ready + d.Retrying + d.Scheduled }

// windows are the time spans of charts.
var windows = []struct {
	word string
	span time.Duration
}{{"5m", 5 * time.Minute}, {"1h", time.Hour}, {"24h", 24 * time.Hour}}

// windowOf returns the time span in the URL, 1 h by default, and links to the others.
func windowOf(req *web.Request) (time.Duration, []web.Chip, error) {
	var chosen time.Duration
	word := req.Query("window")
	if word == "" {
		word = "1h"
	}
	var chips []web.Chip
	for _, w := range windows {
		if w.word == word {
			chosen = w.span
		}
		chips = append(chips, web.Chip{Label: w.word, URL: req.Here("window", w.word, "cursor", ""), On: w.word == word})
	}
	if chosen == 0 {
		return 0, nil, format.BadField("window", "%q is not one of 5m, 1h and 24h", format.Clip(word, 20))
	}
	return chosen, chips, nil
}

// alarmOf adds a link to where the problem can be seen.
func alarmOf(req *web.Request, a admin.Attention) alarm {
	out := alarm{State: "retrying", Word: strings.ReplaceAll(a.Kind, "_", " "), Text: format.GroupDigits(a.Detail)}
	out.Link = linkName(out.Word, a)
	if a.Severity == "critical" {
		out.State = "dead"
	}
	switch a.Kind {
	case "dead_letters":
		out.URL = req.URL("dead")
	case "poisoned":
		out.URL = req.URL("poison")
	case "failure_rate":
		out.URL = req.URL("queues")
	case "oldest_wait", "breaker_open", "queue_paused", "no_worker":
		out.URL = subjectURL(req, "queues", a)
	case "schedule_late":
		out.URL = subjectURL(req, "schedules", a)
	case "webhook":
		out.URL = subjectURL(req, "webhooks", a)
	case "shard", "node", "clock", "disk", "certificate":
		out.URL = req.URL("cluster")
	}
	return out
}

// linkName returns the name of an alarm's link. It includes the subject, since a page has several alarms.
func linkName(word string, a admin.Attention) string {
	name := "View: " + word
	if a.Subject != "" {
		name += ", " + format.Clip(a.Subject, 60)
	}
	if a.More > 0 {
		name += " and " + format.Number(a.More) + " more"
	}
	return name
}

// failedStates are the states of tasks with a failed attempt that may need attention.
const failedStates = "retrying,dead"

// failingURL links to the tasks of a failing type in the given states, or in all for "". A type or queue that is not
// counted separately has no name to search by; if neither has a name, failedStates are searched.
func failingURL(req *web.Request, f admin.FailingType, states string) string {
	if f.Queue == humanize.Other {
		f.Queue = ""
	}
	if f.Type == humanize.Other {
		f.Type = ""
	}
	if f.Queue == "" && f.Type == "" {
		states = failedStates
	}
	return req.Find("queue", f.Queue, "type", f.Type, "state", states)
}

// worstURL links to the tasks of the type that fails most: the failed ones, unless all of them have succeeded on a retry.
func worstURL(req *web.Request, f admin.FailingType, t admin.QueueTotals) string {
	if t.Retrying+t.Dead == 0 {
		return failingURL(req, f, "")
	}
	return failingURL(req, f, failedStates)
}

// subjectURL returns the page of an alarm's subject, or the list if there are several.
func subjectURL(req *web.Request, list string, a admin.Attention) string {
	if a.More > 0 {
		return req.URL(list)
	}
	return req.URL(list, a.Subject)
}
