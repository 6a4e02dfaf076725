package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/chart"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var markerPages = []web.Page{{Path: "/markers", Template: "markers", Nav: "/", Show: showMarkers}}

var markerActions = []web.Action{
	{Path: "/new-marker", Nav: "/", Form: newMarkerForm, Do: doNewMarker},
	{Path: "/markers/{marker}/end", Nav: "/", Form: endMarkerForm, Do: doEndMarker},
	{Path: "/markers/{marker}/remove", Nav: "/", Form: removeMarkerForm, Do: doRemoveMarker},
}

// markersLimit is the page size of the list.
const markersLimit = 50

type markersView struct {
	Rows  []chart.Flag
	Kinds []web.Chip
	New   string
	web.More
}

func showMarkers(req *web.Request) (*web.Screen, error) {
	kind := req.Query("kind")
	page, err := req.Admin().Markers().ListPage(req.Ctx, admin.MarkerFilter{Kind: admin.MarkerKind(kind)},
		pawltype.PageRequest{Limit: markersLimit, Cursor: req.Query("cursor")})
	if err != nil {
		return nil, err
	}
	view := markersView{New: newMarkerURL(req, "", ""), More: req.More(page.NextCursor)}
	for _, k := range []struct{ kind, label string }{{"", "all"}, {"deploy", "deploys"}, {"incident", "incidents"}, {"note", "notes"}} {
		view.Kinds = append(view.Kinds, web.Chip{Label: k.label, URL: req.Here("kind", k.kind, "cursor", ""), On: kind == k.kind})
	}
	for _, m := range page.Items {
		view.Rows = append(view.Rows, chart.Flag{Marker: m, Label: chart.MarkerLabel(m), About: chart.MarkerAbout(m)})
	}
	return &web.Screen{Title: "Markers", Data: view}, nil
}

func newMarkerForm(req *web.Request) (*form.Form, error) {
	return &form.Form{Title: "New marker", Button: "Set marker", Back: "/",
		Text: "Charts show the marker, so that you can see what caused a change. Pipelines set markers with pawl marker add or " +
			"through the API.",
		Fields: []form.Field{
			{Name: "kind", Label: "Kind", Kind: "choice", Value: req.Query("kind"),
				Options: []form.Option{{Value: "deploy", Label: "deploy"},
					{Value: "incident", Label: "incident, open until you end it"}, {Value: "note", Label: "note"}}},
			{Name: "title", Label: "Title", Kind: "text", Required: true, Placeholder: "web 1.4.2"},
			{Name: "at", Label: "When", Kind: "text", Placeholder: "now", Hint: form.PastHint},
			{Name: "ended_at", Label: "Ended", Kind: "text", Placeholder: "open, or a point in time", Hint: form.PastHint},
			{Name: "version", Label: "Version", Kind: "text", Placeholder: "1.4.2", Fold: "Version, link, queues and types"},
			{Name: "url", Label: "Link", Kind: "text", Placeholder: "https://ci.example.com/runs/42"},
			{Name: "queues", Label: "Queues", Kind: "text", Value: req.Query("queues"), Placeholder: "all",
				Hint: "Comma-separated names. * matches any characters: mail*, reports"},
			{Name: "types", Label: "Task types", Kind: "text", Value: form.ListText(req.HTTP.URL.Query()["types"]), Placeholder: "all",
				Hint: "Comma-separated names, as above."},
		}}, nil
}

func doNewMarker(req *web.Request) (web.Done, error) {
	f, err := newMarkerForm(req)
	if err != nil {
		return web.Done{}, err
	}
	r := req.Edits(f)
	spec := admin.MarkerSpec{Kind: admin.MarkerKind(r.Required("kind")), Title: r.Required("title"), Version: r.Text("version"),
		URL: r.Text("url"), Queues: r.Patterns("queues"), Types: r.List("types"), At: r.Past("at"), EndedAt: r.Past("ended_at")}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	made, err := req.Admin().Markers().Add(req.Ctx, spec)
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Set: " + chart.MarkerLabel(made) + ".", Next: markerHome(made)}, nil
}

// markerHome returns the page whose chart shows a marker.
func markerHome(m *admin.Marker) string {
	if len(m.Queues) == 1 && !strings.Contains(m.Queues[0], "*") {
		return "/queues/" + m.Queues[0]
	}
	return "/"
}

// markerOf returns the marker that a form is about.
func markerOf(req *web.Request) (*admin.Marker, error) {
	id := req.PathValue("marker")
	for m, err := range req.Admin().Markers().List(req.Ctx, admin.MarkerFilter{}) {
		if err != nil {
			return nil, err
		}
		if m.ID == id {
			return m, nil
		}
	}
	return nil, &pawltype.Error{Code: "not_found", Message: "there is no such marker: it was removed, or newer ones have replaced it"}
}

func markerFacts(m *admin.Marker) []form.Fact {
	facts := []form.Fact{{Name: "Marker", Value: chart.MarkerLabel(m)},
		{Name: "Began", Value: m.At.UTC().Format("2006-01-02 15:04:05 MST")}}
	if about := chart.MarkerAbout(m); about != "" {
		facts = append(facts, form.Fact{Name: "About", Value: about})
	}
	if m.CreatedBy != "" {
		facts = append(facts, form.Fact{Name: "Set by", Value: m.CreatedBy})
	}
	return facts
}

func endMarkerForm(req *web.Request) (*form.Form, error) {
	m, err := markerOf(req)
	if err != nil {
		return nil, err
	}
	return &form.Form{Title: "End " + string(m.Kind), Button: "End marker", Back: "/markers", Facts: markerFacts(m),
		Fields: []form.Field{{Name: "ended_at", Label: "Ended", Kind: "text", Placeholder: "now", Hint: form.PastHint}}}, nil
}

func doEndMarker(req *web.Request) (web.Done, error) {
	r := req.Reader()
	at := r.Past("ended_at")
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	m, err := req.Admin().Markers().End(req.Ctx, req.PathValue("marker"), at)
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Ended: " + chart.MarkerLabel(m) + ", after " + format.Duration(m.EndedAt.Sub(m.At).Round(time.Second)) + ".",
		Next: markerHome(m)}, nil
}

func removeMarkerForm(req *web.Request) (*form.Form, error) {
	m, err := markerOf(req)
	if err != nil {
		return nil, err
	}
	return &form.Form{Title: "Remove " + string(m.Kind), Text: "The marker disappears from the charts. The audit log keeps a record of it.",
		Button: "Remove marker", Danger: true, Back: "/markers", Facts: markerFacts(m), Fields: []form.Field{form.Reason()}}, nil
}

func doRemoveMarker(req *web.Request) (web.Done, error) {
	if err := req.Admin().WithReason(req.Value("reason")).Markers().Delete(req.Ctx, req.PathValue("marker")); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Removed.", Next: "/markers"}, nil
}

// ownMarkers returns markers that Pawl derives from a queue's current state: it is paused, or a breaker is open.
func ownMarkers(q *admin.Queue) (own []*admin.Marker) {
	if q.Paused && !q.PausedAt.IsZero() {
		own = append(own, &admin.Marker{Kind: admin.MarkerIncident, Title: withReason("the queue is paused", q.PausedReason),
			At: q.PausedAt, CreatedBy: q.PausedBy})
	}
	for _, p := range q.PausedSubsets {
		what := "type " + p.Type
		if p.Type == "" {
			what = "key " + p.Key
		}
		own = append(own, &admin.Marker{Kind: admin.MarkerIncident, Title: withReason(format.Clip(what, 60)+" is paused", p.Reason),
			At: p.At, CreatedBy: p.By})
	}
	for _, b := range q.Breakers {
		own = append(own, &admin.Marker{Kind: admin.MarkerIncident, Title: "the breaker of " + format.Clip(b.Type, 60) +
			" is " + string(b.State),
			At: b.Since})
	}
	return slices.DeleteFunc(own, func(m *admin.Marker) bool { return m.At.IsZero() })
}

func withReason(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// addMarkers adds the markers within the chart's time span. A chart without them is still useful.
func addMarkers(req *web.Request, c *chart.Chart, queue, typ string, own ...*admin.Marker) {
	c.Marks = &chart.Marks{New: newMarkerURL(req, queue, typ), All: req.URL("markers")}
	page, err := req.Admin().Markers().ListPage(req.Ctx, admin.MarkerFilter{Since: c.Start, Until: c.End(), Queue: queue, Type: typ},
		pawltype.PageRequest{Limit: chart.MaxFlags})
	if err != nil {
		c.Marks.Problem = format.ProblemOf(err).Message
	}
	for i, m := range own {
		m.ID = "own-" + strconv.Itoa(i)
		c.Mark(m, true)
	}
	for _, m := range page.Items {
		c.Mark(m, false)
	}
	c.Marks.List(chart.MaxListed)
	c.Marks.Cut = page.NextCursor != ""
}

// newMarkerURL returns the URL of the form for a marker about a queue and a type; "" for any.
func newMarkerURL(req *web.Request, queue, typ string) string {
	about := url.Values{}
	for name, value := range map[string]string{"queues": queue, "types": typ} {
		if value != "" {
			about.Set(name, value)
		}
	}
	if len(about) == 0 {
		return req.URL("new-marker")
	}
	return req.URL("new-marker", "?"+about.Encode())
}
