package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// MarkerKind is what a marker stands for.
type MarkerKind string

// The kinds of markers.
const (
	MarkerDeploy   MarkerKind = "deploy"
	MarkerIncident MarkerKind = "incident" // open until it has an end
	MarkerNote     MarkerKind = "note"
)

// Open reports whether the marker is an incident that is not over.
func (m *Marker) Open() bool { return m.Kind == MarkerIncident && m.EndedAt.IsZero() }

// Add creates a marker. A namespace keeps its newest 1,000 markers of the last 90 days.
func (a Markers) Add(ctx context.Context, m MarkerSpec) (*Marker, error) {
	request, err := requestID(m.RequestID)
	if err != nil {
		return nil, fmt.Errorf("add marker %q: %w", m.Title, err)
	}
	m.RequestID = request
	p, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).AddMarker, m.message())
	return answer(markerOf, p.GetMarker(), err, "add marker %q", m.Title)
}

// End sets when a marker ended. The zero time means now, but does not change an end that is already set.
func (a Markers) End(ctx context.Context, id string, at time.Time) (*Marker, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).EndMarker, &pawlv1.EndMarkerRequest{Id: id,
		EndedAt: convert.Timestamp(at)})
	return answer(markerOf, p.GetMarker(), err, "end marker %s", id)
}

// Delete removes a marker.
func (a Markers) Delete(ctx context.Context, id string) error {
	_, err := operate(ctx, a.calls, false, pawlv1.NewMarkerServiceClient(a.rpc).RemoveMarker, &pawlv1.RemoveMarkerRequest{
		Id: id})
	return wrap(err, "remove marker %s", id)
}

// List iterates over markers, newest first.
func (a Markers) List(ctx context.Context, f MarkerFilter) iter.Seq2[*Marker, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Marker], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of markers, newest first.
func (a Markers) ListPage(ctx context.Context, f MarkerFilter, page pawltype.PageRequest) (pawltype.Page[*Marker], error) {
	req := f.message()
	req.Limit, req.Cursor = convert.Int32(page.Limit), page.Cursor
	resp, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).ListMarkers, req)
	return pageOf(markerOf, resp, err, "list markers")
}
