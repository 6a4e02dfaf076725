package ui

import (
	"errors"
	"net/url"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/tasks"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var typePages = []web.Page{
	{Path: "/types", Template: "types", Nav: "/types", Show: showTypes},
	{Path: "/types/{type}", Template: "type", Nav: "/types", Show: showType},
}

// typesLimit is the page size of the list, and typeQueues the number of queues that the page of a type links to.
const (
	typesLimit = 40
	typeQueues = 12
)

// typeRow is a type in a list.
type typeRow struct {
	*admin.Type
	Spark      *chart.Spark
	URL        string
	FirstQueue string // the first of its queues; "": none
}

// Failed is the share of attempts that failed; a dash if none ended.
func (r typeRow) Failed() string {
	return format.FailureRate(&admin.Stats{Totals: r.Totals, FailureRate: r.FailureRate})
}

// More is the number of queues after the first.
func (r typeRow) More() int { return len(r.Queues) - 1 }

type typesView struct {
	Rows         []typeRow
	Queue        string // only in this queue; "": in all
	AllQueuesURL string // URL of the list for all queues
	Order        string // preserved by the search field
	Window       string // "1h"
	Windows      []web.Chip
	Picks        []web.Chip
	web.Names
	web.More
}

var typePicks = []struct {
	order admin.TypeOrder
	label string
}{{admin.TypesByName, "all"}, {admin.TypesMost, "busiest"}, {admin.TypesFailing, "failing most"}}

func showTypes(req *web.Request) (*web.Screen, error) {
	window, windows, err := windowOf(req)
	if err != nil {
		return nil, err
	}
	view := &typesView{Names: req.Names(), Queue: req.Query("queue"), Order: req.Query("order"), Window: req.Query("window"),
		Windows: windows, AllQueuesURL: req.Here("queue", "", "cursor", "")}
	for _, p := range typePicks {
		view.Picks = append(view.Picks, web.Chip{Label: p.label, URL: req.Here("order", string(p.order), "cursor", ""),
			On: string(p.order) == view.Order})
	}
	page, err := req.Admin().Types().ListPage(req.Ctx, admin.TypeFilter{Window: window, Queue: view.Queue, Pattern: req.Pattern(),
		Order: admin.TypeOrder(view.Order)},
		pawltype.PageRequest{Limit: typesLimit, Cursor: req.Query("cursor")})
	if err = view.Refuse(err); err != nil {
		return nil, err
	}
	view.More = req.MoreByName(page.NextCursor)
	req.Lacks(page.Missing)
	for _, t := range page.Items {
		view.Rows = append(view.Rows, typeRowOf(req, t, view))
	}
	return &web.Screen{Title: "Types", Data: view, Watch: &web.Watch{Queue: view.Queue}}, nil
}

// typeRowOf links to the page of a type, with the list's restrictions.
func typeRowOf(req *web.Request, t *admin.Type, view *typesView) typeRow {
	r := typeRow{Type: t, Spark: chart.NewSpark(t.Series), URL: typeURL(req, t.Name, "queue", view.Queue, "window", view.Window)}
	if len(t.Queues) > 0 {
		r.FirstQueue = t.Queues[0]
	}
	return r
}

// typeURL returns the URL of a type's page, with the non-empty ones of some parameters.
func typeURL(req *web.Request, name string, set ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(set); i += 2 {
		if set[i+1] != "" {
			q.Set(set[i], set[i+1])
		}
	}
	address := req.URL("types", name)
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	return address
}

// Filtered reports whether the list is restricted.
func (t *typesView) Filtered() bool {
	return t.Like != "" || t.Order != "" || t.Queue != "" || t.NotFirst
}

type typeView struct {
	*admin.TypeStats
	Apart         bool // it is a single type, rather than all those that are not counted separately
	Windows       []web.Chip
	In            []web.Chip // links to its queues
	States        []web.Chip // links to its tasks by state
	Chart         chart.Chart
	Shares        chart.Shares
	Runs          chart.Histogram
	Waits         chart.Histogram
	Slow          []slowRow
	Errors        []deadGroup
	ErrorsProblem string // why they can't be shown
	Cut           int    // number of errors that are not shown
	Deploy        *deployView
}

// slowRow is one of the slowest runs.
type slowRow struct {
	admin.SlowRun
	State string
}

// typeErrors is the maximum number of groups of dead letters on a type's page.
const typeErrors = 8

func showType(req *web.Request) (*web.Screen, error) {
	name := req.PathValue("type")
	window, windows, err := windowOf(req)
	if err != nil {
		return nil, err
	}
	queue := req.Query("queue")
	deploy, err := lastDeploy(req, name, queue)
	if err != nil {
		return nil, err
	}
	s, err := typeStatsOf(req, name, admin.TypeQuery{Window: window, Queue: queue}, deploy)
	if err != nil {
		return nil, err
	}
	req.Lacks(s.Missing)
	view := &typeView{TypeStats: s, Apart: name != humanize.Other, Windows: windows, In: typeQueueChips(req, s),
		Chart: chart.Throughput("Tasks of the type enqueued and ended", &s.Stats), Shares: chart.NewShares(&s.Stats),
		Runs: chart.NewHistogram("How long tasks ran", s.RunHistogram, s.Run), Waits: chart.NewHistogram("How long tasks waited",
			s.WaitHistogram, s.Wait)}
	addMarkers(req, &view.Chart, queue, name)
	if view.Apart {
		view.States = typeStateChips(req, name, queue)
	}
	for _, r := range s.Slowest {
		view.Slow = append(view.Slow, slowRowOf(r))
	}
	view.Deploy = deployOf(deploy, s.Comparison)
	if err := view.addErrors(req); err != nil {
		return nil, err
	}
	return &web.Screen{Title: "Type " + humanize.Named(name, "types"), Data: view, Watch: &web.Watch{Queue: queue, Type: name}}, nil
}

// typeStatsOf reads the statistics, compared before and after a deploy if there was one.
func typeStatsOf(req *web.Request, name string, q admin.TypeQuery, deploy *admin.Marker) (*admin.TypeStats, error) {
	if deploy != nil {
		q.Around = deploy.At
	}
	return req.Admin().Types().Stats(req.Ctx, name, q)
}

// typeQueueChips link to the statistics in single queues.
func typeQueueChips(req *web.Request, s *admin.TypeStats) []web.Chip {
	chips := []web.Chip{{Label: "all queues", URL: req.Here("queue", ""), On: s.Queue == ""}}
	shown := s.Queue == ""
	for _, q := range s.Queues[:min(len(s.Queues), typeQueues)] {
		chips = append(chips, web.Chip{Label: humanize.Named(q, "queues"), URL: req.Here("queue", q), On: q == s.Queue})
		shown = shown || q == s.Queue
	}
	if !shown {
		chips = append(chips, web.Chip{Label: s.Queue, URL: req.Here(), On: true})
	}
	return chips
}

// typeStateChips link to the type's tasks.
func typeStateChips(req *web.Request, name, queue string) (chips []web.Chip) {
	for _, state := range []string{"scheduled", "ready", "claimed", "retrying", "succeeded", "dead", "poisoned"} {
		chips = append(chips, web.Chip{Label: state, URL: req.Find("type", name, "queue", queue, "state", state)})
	}
	return chips
}

func slowRowOf(r admin.SlowRun) slowRow {
	row := slowRow{SlowRun: r, State: "succeeded"}
	if r.Failed {
		row.State = "failed"
	}
	return row
}

// addErrors adds the type's dead letters, grouped by error.
func (view *typeView) addErrors(req *web.Request) error {
	if !view.Apart {
		view.ErrorsProblem = "Dead letters are listed by their own types."
		return nil
	}
	groups, err := req.Admin().DeadLetters().Groups(req.Ctx, view.Queue, false)
	if errors.Is(err, pawltype.ErrUnavailable) { // the rest of the page is still useful
		view.ErrorsProblem = format.ProblemOf(err).Message
		return nil
	}
	if err != nil {
		return err
	}
	total := int64(0)
	for _, g := range groups.Groups {
		if g.Type != view.Type {
			continue
		}
		total += g.Count
		if len(view.Errors) == typeErrors {
			view.Cut++
			continue
		}
		f := admin.Filter{Queue: view.Queue, Type: g.Type, Fingerprint: g.Fingerprint, States: []pawltype.State{pawltype.StateDead}}
		view.Errors = append(view.Errors, deadGroup{DeadGroup: g, Links: tasks.BulkLinksOf(req, f), Trend: chart.NewTrend(g.Trend)})
	}
	for i := range view.Errors {
		view.Errors[i].Bar = chart.NewBar([]chart.Count{{Word: "dead", N: view.Errors[i].Count},
			{Word: "rest", N: max(total-view.Errors[i].Count, 0)}})
	}
	return nil
}
