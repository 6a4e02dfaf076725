package ui

import (
	"errors"
	"net/url"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

var typePages = []page{
	{path: "/types", template: "types", nav: "/types", show: showTypes},
	{path: "/types/{type}", template: "type", nav: "/types", show: showType},
}

// typesLimit is the page size of the list, and typeQueues the number of queues that the page of a type links to.
const (
	typesLimit = 40
	typeQueues = 12
)

// typeRow is a type in a list.
type typeRow struct {
	*admin.Type
	Spark *chart.Spark
	URL   string
	Only  string // the first of its queues; "": none
}

// Failed is the share of attempts that failed; a dash if none ended.
func (r typeRow) Failed() string {
	return format.FailureRate(&admin.Stats{Totals: r.Totals, FailureRate: r.FailureRate})
}

// More is the number of queues after the first.
func (r typeRow) More() int { return len(r.Queues) - 1 }

type typesView struct {
	Rows    []typeRow
	Queue   string // only in this queue; "": in all
	Every   string // URL of the list for all queues
	Order   string // preserved by the search field
	Window  string // "1h"
	Windows []chip
	Picks   []chip
	Missing []string // nodes that did not answer
	names
	more
}

var typePicks = []struct {
	order admin.TypeOrder
	label string
}{{admin.TypesByName, "all"}, {admin.TypesMost, "busiest"}, {admin.TypesFailing, "failing most"}}

func showTypes(v *visit) (*screen, error) {
	window, windows, err := v.window()
	if err != nil {
		return nil, err
	}
	view := &typesView{names: v.names(), Queue: v.query("queue"), Order: v.query("order"), Window: v.query("window"), Windows: windows, Every: v.base + v.here("queue", "", "cursor", "")}
	for _, p := range typePicks {
		view.Picks = append(view.Picks, chip{Label: p.label, URL: v.base + v.here("order", string(p.order), "cursor", ""), On: string(p.order) == view.Order})
	}
	page, err := v.admin().Types().ListPage(v.ctx, admin.TypeFilter{Window: window, Queue: view.Queue, Pattern: v.pattern(), Order: admin.TypeOrder(view.Order)},
		pawltype.PageRequest{Limit: typesLimit, Cursor: v.query("cursor")})
	if err = view.refuse(err); err != nil {
		return nil, err
	}
	view.more, view.Missing = v.moreNames(page.NextCursor), page.MissingNodes
	for _, t := range page.Items {
		view.Rows = append(view.Rows, v.typeRow(t, view))
	}
	return &screen{Title: "Types", Data: view, Watch: &live.Watch{Queue: view.Queue}}, nil
}

// typeRow links to the page of a type, with the list's restrictions.
func (v *visit) typeRow(t *admin.Type, view *typesView) typeRow {
	r := typeRow{Type: t, Spark: chart.NewSpark(t.Series), URL: v.typeURL(t.Name, "queue", view.Queue, "window", view.Window)}
	if len(t.Queues) > 0 {
		r.Only = t.Queues[0]
	}
	return r
}

// typeURL returns the URL of a type's page, with the non-empty ones of some parameters.
func (v *visit) typeURL(name string, set ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(set); i += 2 {
		if set[i+1] != "" {
			q.Set(set[i], set[i+1])
		}
	}
	address := v.url("types", name)
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	return address
}

// Filtered reports whether the list is restricted.
func (t *typesView) Filtered() bool {
	return t.Like != "" || t.Order != "" || t.Queue != "" || t.Later
}

type typeView struct {
	*admin.TypeStats
	Apart     bool // it is a single type, rather than all those that are not counted separately
	Windows   []chip
	In        []chip // links to its queues
	States    []chip // links to its tasks by state
	Chart     chart.Chart
	Shares    chart.Shares
	Runs      chart.Histogram
	Waits     chart.Histogram
	Slow      []slowRow
	Errors    []deadGroup
	ErrorsNot string // why they can't be shown
	Cut       int    // number of errors that are not shown
	Deploy    *deployView
}

// slowRow is one of the slowest runs.
type slowRow struct {
	admin.SlowRun
	State string
}

// typeErrors is the maximum number of groups of dead letters on a type's page.
const typeErrors = 8

func showType(v *visit) (*screen, error) {
	name := v.r.PathValue("type")
	window, windows, err := v.window()
	if err != nil {
		return nil, err
	}
	queue := v.query("queue")
	deploy, err := v.lastDeploy(name, queue)
	if err != nil {
		return nil, err
	}
	s, err := v.typeStats(name, admin.TypeQuery{Window: window, Queue: queue}, deploy)
	if err != nil {
		return nil, err
	}
	view := &typeView{TypeStats: s, Apart: name != humanize.Other, Windows: windows, In: v.typeQueues(s),
		Chart: chart.Throughput("Tasks of the type enqueued and ended", &s.Stats), Shares: chart.NewShares(&s.Stats),
		Runs: chart.NewHistogram("How long tasks ran", s.RunHistogram, s.Run), Waits: chart.NewHistogram("How long tasks waited", s.WaitHistogram, s.Wait)}
	v.mark(&view.Chart, queue, name)
	if view.Apart {
		view.States = v.typeStates(name, queue)
	}
	for _, r := range s.Slowest {
		view.Slow = append(view.Slow, slowRowOf(r))
	}
	view.Deploy = deployOf(deploy, s.Comparison)
	if err := v.typeErrors(view); err != nil {
		return nil, err
	}
	return &screen{Title: "Type " + humanize.Named(name, "types"), Data: view, Watch: &live.Watch{Queue: queue, Type: name}}, nil
}

// typeStats reads the statistics, compared before and after a deploy if there was one.
func (v *visit) typeStats(name string, q admin.TypeQuery, deploy *admin.Marker) (*admin.TypeStats, error) {
	if deploy != nil {
		q.Around = deploy.At
	}
	return v.admin().Types().Stats(v.ctx, name, q)
}

// typeQueues link to the statistics in single queues.
func (v *visit) typeQueues(s *admin.TypeStats) []chip {
	chips := []chip{{Label: "all queues", URL: v.base + v.here("queue", ""), On: s.Queue == ""}}
	shown := s.Queue == ""
	for _, q := range s.Queues[:min(len(s.Queues), typeQueues)] {
		chips = append(chips, chip{Label: humanize.Named(q, "queues"), URL: v.base + v.here("queue", q), On: q == s.Queue})
		shown = shown || q == s.Queue
	}
	if !shown {
		chips = append(chips, chip{Label: s.Queue, URL: v.base + v.here(), On: true})
	}
	return chips
}

// typeStates link to the type's tasks.
func (v *visit) typeStates(name, queue string) (chips []chip) {
	for _, state := range []string{"scheduled", "ready", "claimed", "retrying", "succeeded", "dead", "poisoned"} {
		chips = append(chips, chip{Label: state, URL: v.find("type", name, "queue", queue, "state", state)})
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

// typeErrors adds the type's dead letters, grouped by error.
func (v *visit) typeErrors(view *typeView) error {
	if !view.Apart {
		view.ErrorsNot = "Dead letters are listed by their own types."
		return nil
	}
	groups, err := v.admin().DeadLetters().Groups(v.ctx, view.Queue, false)
	if errors.Is(err, pawltype.ErrUnavailable) { // the rest of the page is still useful
		view.ErrorsNot = problem.Of(err).Message
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
		view.Errors = append(view.Errors, deadGroup{DeadGroup: g, Links: v.linksOf(f), Trend: chart.NewTrend(g.Trend)})
	}
	for i := range view.Errors {
		view.Errors[i].Bar = chart.NewBar([]chart.Count{{Word: "dead", N: view.Errors[i].Count}, {Word: "rest", N: max(total-view.Errors[i].Count, 0)}})
	}
	return nil
}
