package ui

import (
	"net/url"
	"time"

	"github.com/pawlq/pawl"
)

// Dead letters and poison are the same page of two states.
var deadPages = []page{
	{path: "/dead", template: "dead", nav: "/dead", show: showDead(pawl.StateDead)},
	{path: "/poison", template: "dead", nav: "/poison", show: showDead(pawl.StatePoisoned)},
	{path: "/archive", template: "archive", nav: "/dead", show: showArchive},
}

var deadActions = []action{{path: "/archive/restore", nav: "/dead", form: restoreForm, do: doRestore}}

type deadView struct {
	State  pawl.State
	Path   string
	Queues []deadQueue
	Queue  string // the one that is shown; "": none has any
	Total  int64  // of it
	Groups []deadGroup
	Trend  chart // of the last 24 h
	// Partial: there are more than one call reads.
	Partial bool
	Recent  []*pawl.TaskInfo
	All     bulkLinks
	Ticked  []bulkLink // for those that are ticked
	Back    string
}

// deadQueue is a queue that has some.
type deadQueue struct {
	Name string
	N    int64
	URL  string
	On   bool
}

// bulkLinks lead to what can be done with all of a filter.
type bulkLinks struct{ Find, Replay, Discard string }

type deadGroup struct {
	pawl.DeadGroup
	Links bulkLinks
	Bar   bar
}

// maxGroups is how many groups a page shows: the largest. recentDead is how many single ones.
const (
	maxGroups  = 50
	recentDead = 10
)

func showDead(state pawl.State) func(*visit) (*screen, error) {
	return func(v *visit) (*screen, error) {
		view := deadView{State: state, Path: v.r.URL.Path, Queue: v.query("queue"), Back: v.backTo(), Ticked: tickLinks(pawl.ActionReplay, pawl.ActionDiscard)}
		title := "Dead letters"
		if state == pawl.StatePoisoned {
			title = "Poison"
		}
		if err := v.deadQueues(&view); err != nil || view.Queue == "" {
			return &screen{Title: title, Data: view, Watch: &watch{Kinds: deadKinds}}, err
		}
		filter := pawl.Filter{Queue: view.Queue, States: []pawl.State{state}}
		view.All = v.linksOf(filter)
		groups, err := v.admin().GroupDead(v.ctx, view.Queue, state == pawl.StatePoisoned)
		if err != nil {
			return nil, err
		}
		view.Partial = groups.Partial
		if view.Trend, err = v.deadTrend(view.Queue, state); err != nil {
			return nil, err
		}
		for _, g := range groups.Groups[:min(len(groups.Groups), maxGroups)] {
			f := filter
			f.Type, f.Fingerprint = g.Type, g.Fingerprint
			view.Groups = append(view.Groups, deadGroup{DeadGroup: g, Links: v.linksOf(f),
				Bar: barOf([]count{{string(state), g.Count}, {"rest", max(view.Total-g.Count, 0)}})})
		}
		page, err := v.client.ListPage(v.ctx, filter, pawl.PageRequest{Limit: recentDead})
		view.Recent = page.Items
		return &screen{Title: title, Data: view, Watch: &watch{Kinds: deadKinds}}, err
	}
}

// trendTime is the time that a trend is of.
const trendTime = 24 * time.Hour

func (v *visit) deadTrend(queue string, state pawl.State) (chart, error) {
	stats, err := v.admin().QueueStats(v.ctx, queue, trendTime)
	if err != nil {
		return chart{}, err
	}
	n := make([]int64, len(stats.Series))
	for i, e := range stats.Series {
		n[i] = e.Dead
		if state == pawl.StatePoisoned {
			n[i] = e.Poisoned
		}
	}
	return chartOf("Tasks that came here in the last 24 hours", stats.Start, stats.Step, []series{{string(state), "came here", n}}, series{}), nil
}

// deadQueues finds the queues that have some, and shows the one with most unless one is chosen.
func (v *visit) deadQueues(view *deadView) error {
	var most int64
	chosen := view.Queue
	for q, err := range v.admin().Queues(v.ctx) {
		if err != nil {
			return err
		}
		n := q.Depth.Dead
		if view.State == pawl.StatePoisoned {
			n = q.Depth.Poisoned
		}
		if n == 0 && q.Name != chosen {
			continue
		}
		view.Queues = append(view.Queues, deadQueue{Name: q.Name, N: n, URL: v.base + v.here("queue", q.Name)})
		if chosen == "" && n > most {
			most, view.Queue = n, q.Name
		}
	}
	for i, q := range view.Queues {
		if q.Name == view.Queue {
			view.Queues[i].On, view.Total = true, q.N
		}
	}
	if view.Total == 0 && chosen == "" {
		view.Queue = ""
	}
	return nil
}

func (v *visit) linksOf(f pawl.Filter) bulkLinks {
	text := url.QueryEscape(filterText(f))
	return bulkLinks{Find: v.url("tasks", "?q="+text), Replay: v.url("operations", "new", "?action=replay&q="+text),
		Discard: v.url("operations", "new", "?action=discard&q="+text)}
}

type archiveView struct {
	Queue string
	Items []pawl.ArchivedTask
	more
}

// archiveLimit is how many tasks a page of the archive has.
const archiveLimit = 50

func showArchive(v *visit) (*screen, error) {
	page, err := v.admin().ArchivePage(v.ctx, v.query("queue"), pawl.PageRequest{Limit: archiveLimit, Cursor: v.query("cursor")})
	if err != nil {
		return nil, err
	}
	return &screen{Title: "Archive of dead letters", Data: archiveView{Queue: v.query("queue"), Items: page.Items, more: v.moreOf(page.NextCursor)}}, nil
}

func restoreForm(v *visit) (*form, error) {
	place := v.query("place")
	if v.r.PostForm != nil {
		place = v.value("place")
	}
	return &form{Title: "Restore from the archive", Text: "It is enqueued again, as a new task. Doing so twice makes two.", Button: "Restore", Back: "/archive",
		Facts: []fact{{"Place", place}}, Fields: []field{{Name: "place", Kind: "hidden", Value: place}, reasonField()}}, nil
}

func doRestore(v *visit) (done, error) {
	results, err := v.admin().Because(v.value("reason")).RestoreArchive(v.ctx, v.value("place"))
	if err != nil {
		return done{}, err
	}
	if len(results) != 1 {
		return done{}, badField("place", "%d tasks were restored", len(results))
	}
	if results[0].Err != nil {
		return done{}, results[0].Err
	}
	return done{Said: "Restored.", Next: "/tasks/" + results[0].TaskID}, nil
}
