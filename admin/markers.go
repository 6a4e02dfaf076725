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

// MarkerSpec describes a marker to create, in the client's namespace.
type MarkerSpec struct {
	Kind    MarkerKind
	Title   string    // one line, up to 200 bytes
	Version string    // what was deployed: one line, up to 100 bytes
	URL     string    // http or https, up to 1,000 bytes
	Queues  []string  // patterns of the queues it concerns, at most 16; nil: all
	Types   []string  // patterns of the task types it concerns, at most 16; nil: all
	At      time.Time // within the last 90 days, or up to a day ahead; zero: now
	EndedAt time.Time // zero: an incident is still open; other markers are points in time
	// RequestID is a UUID that identifies the call: a repeat with the same RequestID after a lost response returns the marker of the first
	// call. "": the client generates one, for its own retries.
	RequestID string
}

// Marker is a point or span of time with a title, drawn on charts.
type Marker struct {
	ID        string
	Kind      MarkerKind
	Title     string
	Version   string
	URL       string
	Queues    []string // patterns; nil: all
	Types     []string // patterns; nil: all
	At        time.Time
	EndedAt   time.Time // zero: an incident is still open; other markers are points in time
	CreatedBy string
	CreatedAt time.Time
}

// Open reports whether the marker is an incident that is not over.
func (m *Marker) Open() bool { return m.Kind == MarkerIncident && m.EndedAt.IsZero() }

// MarkerFilter selects markers. Zero fields match all.
type MarkerFilter struct {
	Since, Until time.Time // markers that overlap this range
	Kind         MarkerKind
	Queue, Type  string // markers that concern it
}

// Add creates a marker. A namespace keeps its newest 1,000 markers of the last 90 days.
func (a Markers) Add(ctx context.Context, m MarkerSpec) (*Marker, error) {
	request, err := requestID(m.RequestID)
	if err != nil {
		return nil, fmt.Errorf("add marker %q: %w", m.Title, err)
	}
	p, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).AddMarker, &pawlv1.AddMarkerRequest{Kind: string(m.Kind),
		Title: m.Title, Version: convert.Text(m.Version), Url: convert.Text(m.URL), Queues: m.Queues, Types: m.Types, At: convert.Timestamp(m.At),
		EndedAt: convert.Timestamp(m.EndedAt), RequestId: convert.Text(request)})
	if err != nil {
		return nil, fmt.Errorf("add marker %q: %w", m.Title, err)
	}
	return markerOf(p.GetMarker()), nil
}

// End sets when a marker ended. The zero time means now, but does not change an end that is already set.
func (a Markers) End(ctx context.Context, id string, at time.Time) (*Marker, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).EndMarker, &pawlv1.EndMarkerRequest{Id: id,
		EndedAt: convert.Timestamp(at)})
	if err != nil {
		return nil, fmt.Errorf("end marker %s: %w", id, err)
	}
	return markerOf(p.GetMarker()), nil
}

// Delete removes a marker.
func (a Markers) Delete(ctx context.Context, id string) error {
	if _, err := operate(ctx, a.calls, false, pawlv1.NewMarkerServiceClient(a.rpc).RemoveMarker, &pawlv1.RemoveMarkerRequest{
		Id: id}); err != nil {
		return fmt.Errorf("remove marker %s: %w", id, err)
	}
	return nil
}

// List iterates over markers, newest first.
func (a Markers) List(ctx context.Context, f MarkerFilter) iter.Seq2[*Marker, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Marker], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of markers, newest first.
func (a Markers) ListPage(ctx context.Context, f MarkerFilter, page pawltype.PageRequest) (pawltype.Page[*Marker], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).ListMarkers, &pawlv1.ListMarkersRequest{
		Since: convert.Timestamp(f.Since), Until: convert.Timestamp(f.Until),
		Kind: convert.Text(string(f.Kind)), Queue: convert.Text(f.Queue), Type: convert.Text(f.Type), Limit: convert.Int32(page.Limit),
		Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Marker]{}, fmt.Errorf("list markers: %w", err)
	}
	return convert.Page(resp, markerOf), nil
}

func markerOf(p *pawlv1.Marker) *Marker {
	return &Marker{ID: p.GetId(), Kind: MarkerKind(p.GetKind()), Title: p.GetTitle(), Version: p.GetVersion(), URL: p.GetUrl(),
		Queues: p.GetQueues(), Types: p.GetTypes(), At: convert.Time(p.GetAt()), EndedAt: convert.Time(p.GetEndedAt()),
		CreatedBy: p.GetCreatedBy(), CreatedAt: convert.Time(p.GetCreatedAt())}
}
