package ui

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/tasks"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// Dead letters and poison are the same page for two states.
var deadPages = []web.Page{
	{Path: "/dead", Template: "dead", Nav: "/dead", Show: showDead(pawltype.StateDead)},
	{Path: "/poison", Template: "dead", Nav: "/poison", Show: showDead(pawltype.StatePoisoned)},
}

type deadView struct {
	State  pawltype.State
	Queues []deadQueue // the queues with the most, preceded by all
	More   string      // the page that lists the other queues; "": there are none
	Queue  string      // the queue shown; "": all
	Total  int64       // of what is shown
	Groups []deadGroup
	Cut    int         // number of groups that are not shown
	Trend  chart.Chart // over the last 24 h
	// Partial: there are more than one call reads.
	Partial bool
	counted bool             // Total is exact: the groups contain all
	Recent  []*pawltype.Task // of one queue
	All     tasks.BulkLinks
	Ticked  []tasks.BulkLink // for the ticked ones
	Back    string
}

// Actions returns the actions on all dead letters of a page.
func (d deadView) Actions() (a web.ActionBar) {
	if d.Total > 0 {
		a.Main = &web.Button{Label: "Replay all…", URL: d.All.Replay}
		a.Beside = []web.Button{{Label: "List", URL: d.All.Find, Page: true}}
		a.Danger = []web.Button{{Label: "Discard all…", URL: d.All.Discard}}
	}
	return a
}

// deadQueue is a queue that has some, or all queues together.
type deadQueue struct {
	Name string
	N    int64
	URL  string
	On   bool
}

type deadGroup struct {
	admin.DeadGroup
	Links    tasks.BulkLinks
	Bar      chart.Bar
	Trend    chart.Trend
	QueueURL string // the page of the queue that has most of them
}

const (
	// maxGroups is the maximum number of groups on a page, largest first, and recentDead that of single tasks.
	maxGroups  = 50
	recentDead = 10
	// deadQueues is the maximum number of queues that a page links to, and deadAmong that of queues whose counts it sums.
	deadQueues = 12
	deadAmong  = 100
	// trendTime is the period of a trend.
	trendTime = 24 * time.Hour
)

func showDead(state pawltype.State) func(*web.Request) (*web.Screen, error) {
	return func(req *web.Request) (*web.Screen, error) {
		view := deadView{State: state, Queue: req.Query("queue"), Back: req.ReturnPath(), Ticked: tasks.BulkActionLinks(nil,
			admin.ActionReplay, admin.ActionDiscard)}
		title := "Dead letters"
		if state == pawltype.StatePoisoned {
			title = "Poison"
		}
		for _, add := range []func(*web.Request) error{view.addTrend, view.addGroups, view.addQueues, view.addRecent} {
			if err := add(req); err != nil {
				return nil, err
			}
		}
		return &web.Screen{Title: title, Data: view, Watch: &web.Watch{Kinds: web.DeadKinds, Queue: view.Queue}}, nil
	}
}

// ofState returns a queue's count for the page's state.
func (d *deadView) ofState(dead, poisoned int64) int64 {
	if d.State == pawltype.StatePoisoned {
		return poisoned
	}
	return dead
}

// addTrend shows when they arrived, and counts them.
func (d *deadView) addTrend(req *web.Request) error {
	var lately *admin.Stats
	if d.Queue == "" {
		if !req.MayOpen("/") { // a visitor limited to some queues can see groups, but not the statistics of all queues
			return nil
		}
		all, err := req.Admin().Stats(req.Ctx, trendTime)
		if err != nil {
			return err
		}
		lately, d.Total = &all.Stats, d.ofState(all.Queues.Dead, all.Queues.Poisoned)
	} else {
		q, err := req.Admin().Queues().Get(req.Ctx, d.Queue)
		if err != nil {
			return err
		}
		d.Total = d.ofState(q.Depth.Dead, q.Depth.Poisoned)
		req.Lacks(q.Missing)
		if lately, err = req.Admin().Queues().Stats(req.Ctx, d.Queue, trendTime); err != nil {
			return err
		}
	}
	req.Lacks(lately.Missing)
	n := make([]int64, len(lately.Series))
	for i, e := range lately.Series {
		n[i] = d.ofState(e.Dead, e.Poisoned)
	}
	word := "dead-lettered"
	if d.State == pawltype.StatePoisoned {
		word = "poisoned"
	}
	d.Trend = chart.New("Tasks "+word+" in the last 24 hours", lately.Start, lately.Step, chart.Panel{Height: chart.PanelHeight,
		Of: []chart.Series{{State: string(d.State), Word: word, N: n}}})
	addMarkers(req, &d.Trend, d.Queue, "")
	d.Trend.Marks.List(0) // the page is about dead letters, not markers
	return nil
}

// addQueues links to the queues with the most, and to the one shown.
func (d *deadView) addQueues(req *web.Request) error {
	having := admin.QueueDead
	if d.State == pawltype.StatePoisoned {
		having = admin.QueuePoisoned
	}
	page, err := req.Admin().Queues().ListPage(req.Ctx, admin.QueueFilter{Having: having, Most: true},
		pawltype.PageRequest{Limit: deadAmong})
	if err != nil {
		return err
	}
	req.Lacks(page.Missing)
	if d.Queue == "" {
		if !d.counted {
			d.sum(page.Items)
		}
		path := "/dead"
		if d.State == pawltype.StatePoisoned {
			path = "/poison"
		}
		req.Counted(path, d.Total)
	}
	d.Queues = []deadQueue{{Name: "all queues", N: d.Total, URL: req.Here("queue", ""), On: d.Queue == ""}}
	if d.Queue != "" {
		d.Queues[0].N = 0 // unknown
	}
	shown := d.Queue == ""
	for i, q := range page.Items {
		if n := d.ofState(q.Depth.Dead, q.Depth.Poisoned); n > 0 && i < deadQueues {
			d.Queues = append(d.Queues, deadQueue{Name: q.Name, N: n, URL: req.Here("queue", q.Name), On: q.Name == d.Queue})
			shown = shown || q.Name == d.Queue
		}
	}
	if !shown {
		d.Queues = append(d.Queues, deadQueue{Name: d.Queue, N: d.Total, URL: req.Here(), On: true})
	}
	if len(page.Items) > deadQueues {
		d.More = req.URL("queues", "?having="+string(having))
	}
	return nil
}

// sum counts what the queues have: the count in the statistics is some seconds old. If there may be more queues, it is all there is, unless
// the visitor can't see it.
func (d *deadView) sum(queues []*admin.Queue) {
	n := int64(0)
	for _, q := range queues {
		n += d.ofState(q.Depth.Dead, q.Depth.Poisoned)
	}
	if len(queues) < deadAmong || n > d.Total {
		d.Total = n
	}
}

// addGroups groups them by error.
func (d *deadView) addGroups(req *web.Request) error {
	filter := admin.Filter{Queue: d.Queue, States: []pawltype.State{d.State}}
	d.All = tasks.BulkLinksOf(req, filter)
	groups, err := req.Admin().DeadLetters().Groups(req.Ctx, d.Queue, d.State == pawltype.StatePoisoned)
	if err != nil {
		return err
	}
	d.Partial = groups.Partial
	req.Lacks(groups.Missing)
	d.Cut = max(len(groups.Groups)-maxGroups, 0)
	counted := int64(0)
	for _, g := range groups.Groups {
		counted += g.Count
	}
	if d.counted = !groups.Partial && len(groups.Missing) == 0; d.counted {
		d.Total = counted
	}
	d.Total = max(d.Total, counted) // the statistics may be some seconds old
	for _, g := range groups.Groups[:min(len(groups.Groups), maxGroups)] {
		f := filter
		f.Type, f.Fingerprint = g.Type, g.Fingerprint
		d.Groups = append(d.Groups, deadGroup{DeadGroup: g, Links: tasks.BulkLinksOf(req, f), QueueURL: req.Here("queue", g.Queue),
			Trend: chart.NewTrend(g.Trend), Bar: chart.NewBar([]chart.Count{{Word: string(d.State), N: g.Count},
				{Word: "rest", N: max(d.Total-g.Count, 0)}})})
	}
	return nil
}

// addRecent lists the newest ones of a queue. There is no such list over all queues: shards keep one per queue.
func (d *deadView) addRecent(req *web.Request) error {
	if d.Queue == "" {
		return nil
	}
	page, err := req.Admin().Tasks().ListPage(req.Ctx, admin.Filter{Queue: d.Queue, States: []pawltype.State{d.State}},
		pawltype.PageRequest{Limit: recentDead})
	d.Recent = page.Items
	req.Lacks(page.Missing)
	return err
}
