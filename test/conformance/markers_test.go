package conformance

import (
	"context"
	"net/url"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/admin"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// markers is what an API can do with markers.
type markers interface {
	AddMarker(ctx context.Context, m markerSpec) (markerInfo, error)
	// EndMarker with the zero time leaves the time to the server.
	EndMarker(ctx context.Context, id string, at time.Time) (markerInfo, error)
	RemoveMarker(ctx context.Context, id string) error
	Markers(ctx context.Context, q markerQuery) (list []markerInfo, next string, err error)
}

func (w *world) markers() markers { return w.api.(markers) }

// markerSpec is a marker to set. Zero fields are omitted.
type markerSpec struct {
	Kind    string    `json:"kind"`
	Title   string    `json:"title"`
	Version string    `json:"version,omitempty"`
	URL     string    `json:"url,omitempty"`
	Queues  []string  `json:"queues,omitempty"`
	Types   []string  `json:"types,omitempty"`
	At      time.Time `json:"at,omitzero"`
	EndedAt time.Time `json:"ended_at,omitzero"`
	Request string    `json:"request_id,omitempty"`
}

// markerInfo is everything that the API shows of a marker.
type markerInfo struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Title     string    `json:"title"`
	Version   string    `json:"version"`
	URL       string    `json:"url"`
	Queues    []string  `json:"queues"`
	Types     []string  `json:"types"`
	At        time.Time `json:"at"`
	EndedAt   time.Time `json:"ended_at"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
}

type markerQuery struct {
	Since, Until      time.Time
	Kind, Queue, Type string
	part
}

func TestMarkers(t *testing.T) {
	const deploy, request = "deploy", "0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77"
	tellAll(t, []story{
		{gateway: true, name: "a marker is created once, shown, listed by time, queue and type, removed, and audited",
			tell: func(w *world) {
				spec := markerSpec{Kind: deploy, Title: "web 1.4.2", Version: "1.4.2", URL: "https://ci.example.com/runs/42",
					Queues: []string{"mail*"}, Types: []string{"mail.*"}, Request: request}
				made := ok[markerInfo](w)(w.markers().AddMarker(w.ctx(), spec))
				want := markerInfo{request, deploy, "web 1.4.2", "1.4.2", spec.URL, spec.Queues, spec.Types, w.now(),
					time.Time{}, actor, w.now()}
				is(w, "what was set", made, want)
				w.pass(minute)
				is(w, "a repeat", ok[markerInfo](w)(w.markers().AddMarker(w.ctx(), spec)), want)
				spec.Title = "web 1.4.3"
				_, err := w.markers().AddMarker(w.ctx(), spec)
				w.refused("another under the same request", err, refusal{Code: "conflict"})
				note := ok[markerInfo](w)(w.markers().AddMarker(w.ctx(), markerSpec{Kind: "note", Title: "prices imported"}))
				titles := func(q markerQuery) (all []string) {
					for _, m := range w.listMarkers(q) {
						all = append(all, m.Title)
					}
					return all
				}
				is(w, "all, newest first", titles(markerQuery{}), []string{"prices imported", "web 1.4.2"})
				is(w, "since a second ago", titles(markerQuery{Since: w.now().Add(-time.Second)}), []string{"prices imported"})
				is(w, "until then", titles(markerQuery{Until: w.now()}), []string{"web 1.4.2"})
				is(w, "deploys", titles(markerQuery{Kind: deploy}), []string{"web 1.4.2"})
				is(w, "of a queue and a type", titles(markerQuery{Queue: "mail-eu", Type: "mail.welcome"}),
					[]string{"prices imported", "web 1.4.2"})
				is(w, "of another queue", titles(markerQuery{Queue: "images"}), []string{"prices imported"})
				is(w, "of another type", titles(markerQuery{Type: "resize"}), []string{"prices imported"})
				first, next, err := w.markers().Markers(w.ctx(), markerQuery{part: part{Limit: 1}})
				must(w.T, err)
				rest, last, err := w.markers().Markers(w.ctx(), markerQuery{part: part{Limit: 1, Cursor: next}})
				must(w.T, err)
				is(w, "by pages", append(first, rest...), []markerInfo{note, made})
				is(w, "behind the last page", last, "")
				w.done(w.markers().RemoveMarker(w.ctx(), note.ID))
				w.refused("once more", w.markers().RemoveMarker(w.ctx(), note.ID), refusal{Code: "not_found"})
				is(w, "what is left", titles(markerQuery{}), []string{"web 1.4.2"})
				is(w, "the audit", w.audited(), []string{"marker.add", "marker.add", "marker.remove"})
			}},
		{gateway: true, name: "an incident is open until it ends, and covers all the time between", tell: func(w *world) {
			began := w.now()
			open := ok[markerInfo](w)(w.markers().AddMarker(w.ctx(), markerSpec{Kind: "incident", Title: "provider down",
				At: began.Add(-time.Hour)}))
			w.pass(hour)
			is(w, "open, and so here now", len(w.listMarkers(markerQuery{Since: w.now()})), 1)
			ended := ok[markerInfo](w)(w.markers().EndMarker(w.ctx(), open.ID, began))
			is(w, "its end", ended.EndedAt, began)
			is(w, "the end again", ok[markerInfo](w)(w.markers().EndMarker(w.ctx(), open.ID, time.Time{})).EndedAt, began)
			is(w, "over, and so not here", len(w.listMarkers(markerQuery{Since: began.Add(time.Microsecond)})), 0)
			is(w, "where it was", len(w.listMarkers(markerQuery{Since: began, Until: began.Add(time.Second)})), 1)
			is(w, "before it", len(w.listMarkers(markerQuery{Until: began.Add(-time.Hour)})), 0)
			_, err := w.markers().EndMarker(w.ctx(), open.ID, began.Add(-2*time.Hour))
			w.refused("an end before its beginning", err, refusal{Code: "invalid_argument", Field: "ended_at"})
			_, err = w.markers().EndMarker(w.ctx(), request, time.Time{})
			w.refused("of one that is not there", err, refusal{Code: "not_found"})
			is(w, "the audit", w.audited(), []string{"marker.add", "marker.end"})
		}},
		{gateway: true, name: "invalid markers are refused by field", tell: func(w *world) {
			long := make([]byte, 201)
			for i := range long {
				long[i] = 'x'
			}
			for field, m := range map[string]markerSpec{
				"kind":       {Kind: "release", Title: "x"},
				"title":      {Kind: deploy, Title: string(long)},
				"version":    {Kind: deploy, Title: "x", Version: "1\n2"},
				"url":        {Kind: deploy, Title: "x", URL: "javascript:alert(1)"},
				"queues":     {Kind: deploy, Title: "x", Queues: []string{"a b"}},
				"types":      {Kind: deploy, Title: "x", Types: make([]string, 17)},
				"at":         {Kind: deploy, Title: "x", At: w.now().Add(-90 * 24 * time.Hour)},
				"ended_at":   {Kind: deploy, Title: "x", EndedAt: w.now().Add(25 * time.Hour)},
				"request_id": {Kind: deploy, Title: "x", Request: "42"},
			} {
				_, err := w.markers().AddMarker(w.ctx(), m)
				w.refused(field, err, refusal{Code: "invalid_argument", Field: field})
			}
			_, err := w.markers().EndMarker(w.ctx(), "42", time.Time{})
			w.refused("an id", err, refusal{Code: "invalid_argument", Field: "id"})
			_, _, err = w.markers().Markers(w.ctx(), markerQuery{Queue: "a b"})
			w.refused("a queue", err, refusal{Code: "invalid_argument", Field: "queue"})
			_, _, err = w.markers().Markers(w.ctx(), markerQuery{part: part{Cursor: "x"}})
			w.refused("a cursor", err, refusal{Code: "invalid_argument", Field: "cursor"})
			is(w, "the audit", len(w.audited()), 0)
		}},
	})
}

func (w *world) listMarkers(q markerQuery) []markerInfo {
	w.Helper()
	list, _, err := w.markers().Markers(w.ctx(), q)
	must(w.T, err)
	return list
}

// REST

func (d *rest) AddMarker(ctx context.Context, m markerSpec) (made markerInfo, err error) {
	return made, d.call(ctx, "POST", "/markers", m, &made)
}

func (d *rest) EndMarker(ctx context.Context, id string, at time.Time) (m markerInfo, err error) {
	return m, d.call(ctx, "POST", "/markers/"+url.PathEscape(id)+"/end", fields{}.with(!at.IsZero(), "ended_at", at), &m)
}

func (d *rest) RemoveMarker(ctx context.Context, id string) error {
	return d.query(ctx, "DELETE", "/markers/"+url.PathEscape(id), nil, &struct{}{})
}

func (d *rest) Markers(ctx context.Context, q markerQuery) ([]markerInfo, string, error) {
	values := filter{}.query(q.part)
	for name, value := range map[string]string{"kind": q.Kind, "queue": q.Queue, "type": q.Type} {
		if value != "" {
			values.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			values.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	var a struct {
		Items []markerInfo `json:"items"`
		Next  string       `json:"next_cursor"`
	}
	err := d.query(ctx, "GET", "/markers", values, &a)
	return a.Items, a.Next, err
}

// gRPC

func stampOrNone(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (d *rpc) AddMarker(ctx context.Context, m markerSpec) (markerInfo, error) {
	p, err := ask(ctx, d.marker.AddMarker, &pawlv1.AddMarkerRequest{Kind: m.Kind, Title: m.Title, Version: text(m.Version),
		Url: text(m.URL), Queues: m.Queues, Types: m.Types, At: stampOrNone(m.At), EndedAt: stampOrNone(m.EndedAt),
		RequestId: text(m.Request)})
	return markerProto(p.GetMarker()), err
}

func (d *rpc) EndMarker(ctx context.Context, id string, at time.Time) (markerInfo, error) {
	p, err := ask(ctx, d.marker.EndMarker, &pawlv1.EndMarkerRequest{Id: id, EndedAt: stampOrNone(at)})
	return markerProto(p.GetMarker()), err
}

func (d *rpc) RemoveMarker(ctx context.Context, id string) error {
	_, err := ask(ctx, d.marker.RemoveMarker, &pawlv1.RemoveMarkerRequest{Id: id})
	return err
}

func (d *rpc) Markers(ctx context.Context, q markerQuery) (list []markerInfo, next string, err error) {
	a, err := ask(ctx, d.marker.ListMarkers, &pawlv1.ListMarkersRequest{Since: stampOrNone(q.Since), Until: stampOrNone(q.Until),
		Kind: text(q.Kind), Queue: text(q.Queue), Type: text(q.Type), Limit: int32(q.Limit), Cursor: q.Cursor})
	for _, m := range a.GetItems() {
		list = append(list, markerProto(m))
	}
	return list, a.GetNextCursor(), err
}

func markerProto(p *pawlv1.Marker) markerInfo {
	return markerInfo{p.GetId(), p.GetKind(), p.GetTitle(), p.GetVersion(), p.GetUrl(), p.GetQueues(), p.GetTypes(), timeOf(p.GetAt()),
		timeOf(p.GetEndedAt()), p.GetCreatedBy(), timeOf(p.GetCreatedAt())}
}

// The SDK

func markerSDK(m *admin.Marker, err error) (markerInfo, error) {
	if err != nil {
		return markerInfo{}, refusedBySDK(err)
	}
	return markerInfo{m.ID, string(m.Kind), m.Title, m.Version, m.URL, m.Queues, m.Types, m.At, m.EndedAt, m.CreatedBy, m.CreatedAt}, nil
}

func (d *sdk) AddMarker(ctx context.Context, m markerSpec) (markerInfo, error) {
	return markerSDK(d.admin().Markers().Add(ctx, admin.MarkerSpec{Kind: admin.MarkerKind(m.Kind), Title: m.Title, Version: m.Version,
		URL: m.URL, Queues: m.Queues, Types: m.Types, At: m.At, EndedAt: m.EndedAt, RequestID: m.Request}))
}

func (d *sdk) EndMarker(ctx context.Context, id string, at time.Time) (markerInfo, error) {
	return markerSDK(d.admin().Markers().End(ctx, id, at))
}

func (d *sdk) RemoveMarker(ctx context.Context, id string) error {
	return refusedBySDK(d.admin().Markers().Delete(ctx, id))
}

func (d *sdk) Markers(ctx context.Context, q markerQuery) (list []markerInfo, next string, err error) {
	got, err := d.admin().Markers().ListPage(ctx, admin.MarkerFilter{Since: q.Since, Until: q.Until, Kind: admin.MarkerKind(q.Kind),
		Queue: q.Queue, Type: q.Type},
		pawltype.PageRequest{Limit: q.Limit, Cursor: q.Cursor})
	for _, m := range got.Items {
		shown, _ := markerSDK(m, nil)
		list = append(list, shown)
	}
	return list, got.NextCursor, refusedBySDK(err)
}

// Each in turn

func (d *roundRobin) marker() markers { return d.next().(markers) }

func (d *roundRobin) AddMarker(ctx context.Context, m markerSpec) (markerInfo, error) {
	return d.marker().AddMarker(ctx, m)
}

func (d *roundRobin) EndMarker(ctx context.Context, id string, at time.Time) (markerInfo, error) {
	return d.marker().EndMarker(ctx, id, at)
}

func (d *roundRobin) RemoveMarker(ctx context.Context, id string) error {
	return d.marker().RemoveMarker(ctx, id)
}

func (d *roundRobin) Markers(ctx context.Context, q markerQuery) ([]markerInfo, string, error) {
	return d.marker().Markers(ctx, q)
}
