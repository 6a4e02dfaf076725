package ui

import (
	"errors"
	"net/url"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

// Dead letters and poison are the same page for two states.
var deadPages = []page{
	{path: "/dead", template: "dead", nav: "/dead", show: showDead(pawltype.StateDead)},
	{path: "/poison", template: "dead", nav: "/poison", show: showDead(pawltype.StatePoisoned)},
	{path: "/archive", template: "archive", nav: "/dead", show: showArchive},
}

var deadActions = []action{{path: "/archive/restore", nav: "/dead", form: restoreForm, do: doRestore}}

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
	Recent  []*pawltype.Task // of one queue
	All     bulkLinks
	Ticked  []bulkLink // for the ticked ones
	Back    string
}

// deadQueue is a queue that has some, or all queues together.
type deadQueue struct {
	Name string
	N    int64
	URL  string
	On   bool
}

// bulkLinks are links to what can be done with all that match a filter.
type bulkLinks struct{ Find, Replay, Discard string }

type deadGroup struct {
	admin.DeadGroup
	Links bulkLinks
	Bar   chart.Bar
	Trend chart.Trend
	Only  string // the page of the queue that has most of them
}

const (
	// maxGroups is the maximum number of groups on a page, largest first, and recentDead that of single tasks.
	maxGroups  = 50
	recentDead = 10
	// deadQueues is the maximum number of queues that a page links to.
	deadQueues = 12
	// trendTime is the period of a trend.
	trendTime = 24 * time.Hour
)

func showDead(state pawltype.State) func(*visit) (*screen, error) {
	return func(v *visit) (*screen, error) {
		view := deadView{State: state, Queue: v.query("queue"), Back: v.backTo(), Ticked: bulkActionLinks(nil, admin.ActionReplay, admin.ActionDiscard)}
		title := "Dead letters"
		if state == pawltype.StatePoisoned {
			title = "Poison"
		}
		for _, add := range []func(*deadView) error{v.deadTrend, v.deadQueues, v.deadGroups, v.recentDead} {
			if err := add(&view); err != nil {
				return nil, err
			}
		}
		return &screen{Title: title, Data: view, Watch: &live.Watch{Kinds: live.DeadKinds, Queue: view.Queue}}, nil
	}
}

// ofState returns a queue's count for the page's state.
func (d *deadView) ofState(dead, poisoned int64) int64 {
	if d.State == pawltype.StatePoisoned {
		return poisoned
	}
	return dead
}

// deadTrend shows when they arrived, and counts them.
func (v *visit) deadTrend(view *deadView) error {
	var lately *admin.Stats
	if view.Queue == "" {
		all, err := v.admin().Stats(v.ctx, trendTime)
		if errors.Is(err, pawltype.ErrPermissionDenied) { // a visitor limited to some queues can see groups, but not the statistics of all queues
			return nil
		}
		if err != nil {
			return err
		}
		lately, view.Total = &all.Stats, view.ofState(all.Queues.Dead, all.Queues.Poisoned)
	} else {
		q, err := v.admin().Queues().Get(v.ctx, view.Queue)
		if err != nil {
			return err
		}
		view.Total = view.ofState(q.Depth.Dead, q.Depth.Poisoned)
		if lately, err = v.admin().Queues().Stats(v.ctx, view.Queue, trendTime); err != nil {
			return err
		}
	}
	n := make([]int64, len(lately.Series))
	for i, e := range lately.Series {
		n[i] = view.ofState(e.Dead, e.Poisoned)
	}
	word := "dead-lettered"
	if view.State == pawltype.StatePoisoned {
		word = "poisoned"
	}
	view.Trend = chart.New("Tasks "+word+" in the last 24 hours", lately.Start, lately.Step, chart.Panel{Height: chart.PanelHeight, Of: []chart.Series{{State: string(view.State), Word: word, N: n}}})
	v.mark(&view.Trend, view.Queue, "")
	view.Trend.Marks.List(0) // the page is about dead letters, not markers
	return nil
}

// deadQueues links to the queues with the most, and to the one shown.
func (v *visit) deadQueues(view *deadView) error {
	having := admin.QueueDead
	if view.State == pawltype.StatePoisoned {
		having = admin.QueuePoisoned
	}
	page, err := v.admin().Queues().ListPage(v.ctx, admin.QueueFilter{Having: having, Most: true}, pawltype.PageRequest{Limit: deadQueues})
	if err != nil {
		return err
	}
	view.Queues = []deadQueue{{Name: "all queues", N: view.Total, URL: v.base + v.here("queue", ""), On: view.Queue == ""}}
	if view.Queue != "" {
		view.Queues[0].N = 0 // unknown
	}
	shown := view.Queue == ""
	for _, q := range page.Items {
		if n := view.ofState(q.Depth.Dead, q.Depth.Poisoned); n > 0 {
			view.Queues = append(view.Queues, deadQueue{Name: q.Name, N: n, URL: v.base + v.here("queue", q.Name), On: q.Name == view.Queue})
			shown = shown || q.Name == view.Queue
		}
	}
	if !shown {
		view.Queues = append(view.Queues, deadQueue{Name: view.Queue, N: view.Total, URL: v.base + v.here(), On: true})
	}
	if len(page.Items) == deadQueues {
		view.More = v.url("queues", "?having="+string(having))
	}
	return nil
}

// deadGroups groups them by error.
func (v *visit) deadGroups(view *deadView) error {
	filter := admin.Filter{Queue: view.Queue, States: []pawltype.State{view.State}}
	view.All = v.linksOf(filter)
	groups, err := v.admin().DeadLetters().Groups(v.ctx, view.Queue, view.State == pawltype.StatePoisoned)
	if err != nil {
		return err
	}
	view.Partial = groups.Partial
	view.Cut = max(len(groups.Groups)-maxGroups, 0)
	counted := int64(0)
	for _, g := range groups.Groups {
		counted += g.Count
	}
	view.Total = max(view.Total, counted) // the count over all queues may be some seconds older
	for _, g := range groups.Groups[:min(len(groups.Groups), maxGroups)] {
		f := filter
		f.Type, f.Fingerprint = g.Type, g.Fingerprint
		view.Groups = append(view.Groups, deadGroup{DeadGroup: g, Links: v.linksOf(f), Only: v.base + v.here("queue", g.Queue), Trend: chart.NewTrend(g.Trend),
			Bar: chart.NewBar([]chart.Count{{Word: string(view.State), N: g.Count}, {Word: "rest", N: max(view.Total-g.Count, 0)}})})
	}
	return nil
}

// recentDead lists the newest ones of a queue. There is no such list over all queues: shards keep one per queue.
func (v *visit) recentDead(view *deadView) error {
	if view.Queue == "" {
		return nil
	}
	page, err := v.admin().Tasks().ListPage(v.ctx, admin.Filter{Queue: view.Queue, States: []pawltype.State{view.State}}, pawltype.PageRequest{Limit: recentDead})
	view.Recent = page.Items
	return err
}

func (v *visit) linksOf(f admin.Filter) bulkLinks {
	text := url.QueryEscape(filterText(f))
	return bulkLinks{Find: v.url("tasks", "?q="+text), Replay: v.url("operations", "new", "?action=replay&q="+text),
		Discard: v.url("operations", "new", "?action=discard&q="+text)}
}

type archiveView struct {
	Queue string
	Items []admin.ArchivedTask
	more
}

// archiveLimit is the page size of the archive.
const archiveLimit = 50

func showArchive(v *visit) (*screen, error) {
	page, err := v.admin().DeadLetters().ArchivePage(v.ctx, v.query("queue"), pawltype.PageRequest{Limit: archiveLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	return &screen{Title: "Archive of dead letters", Data: archiveView{Queue: v.query("queue"), Items: page.Items, more: v.moreOf(page.NextCursor)}}, nil
}

func restoreForm(v *visit) (*form.Form, error) {
	place := v.query("place")
	if v.r.PostForm != nil {
		place = v.value("place")
	}
	return &form.Form{Title: "Restore from the archive", Text: "Enqueues the task again as a new task. Restoring it twice creates only one.", Button: "Restore", Back: "/archive",
		Facts: []form.Fact{{Name: "Place", Value: place}}, Fields: []form.Field{{Name: "place", Kind: "hidden", Value: place}, form.Reason()}}, nil
}

func doRestore(v *visit) (done, error) {
	results, err := v.admin().WithReason(v.value("reason")).DeadLetters().Restore(v.ctx, v.value("place"))
	if err != nil {
		return done{}, err
	}
	if len(results) != 1 {
		return done{}, problem.BadField("place", "%d tasks were restored", len(results))
	}
	if results[0].Err != nil {
		return done{}, results[0].Err
	}
	said := "Restored."
	if results[0].Duplicate {
		said = "Already restored as this task."
	}
	return done{Said: said, Next: "/tasks/" + results[0].TaskID}, nil
}
