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

// MarkerKind is what a marker tells of.
type MarkerKind string

// The kinds of markers.
const (
	MarkerDeploy   MarkerKind = "deploy"
	MarkerIncident MarkerKind = "incident" // open until it has an end
	MarkerNote     MarkerKind = "note"
)

// MarkerSpec says what a marker is to be. Its namespace is that of the client.
type MarkerSpec struct {
	Kind    MarkerKind
	Title   string    // a line of up to 200 bytes
	Version string    // what was deployed: a line of up to 100 bytes
	URL     string    // http or https, up to 1,000 bytes
	Queues  []string  // patterns of the queues that it is about, at most 16; nil: all
	Types   []string  // patterns of the task types that it is about, at most 16; nil: all
	At      time.Time // within the last 90 days, or up to a day ahead; zero: now
	EndedAt time.Time // zero: an incident is open, anything else is a moment
	// RequestID is a UUID that a call which is made again after a lost answer has again: it answers with the marker of the first. "": the
	// repeats that the client makes by itself have one.
	RequestID string
}

// Marker is a moment or a span of time with a title, that is drawn on charts.
type Marker struct {
	ID        string
	Kind      MarkerKind
	Title     string
	Version   string
	URL       string
	Queues    []string // patterns; nil: all
	Types     []string // patterns; nil: all
	At        time.Time
	EndedAt   time.Time // zero: an incident is open, anything else is a moment
	CreatedBy string
	CreatedAt time.Time
}

// Open says whether the marker is an incident that is not over.
func (m *Marker) Open() bool { return m.Kind == MarkerIncident && m.EndedAt.IsZero() }

// MarkerFilter says which markers are wanted. Zero fields want all.
type MarkerFilter struct {
	Since, Until time.Time // those that touch this range
	Kind         MarkerKind
	Queue, Type  string // those that are about it
}

// Add sets a marker. A namespace keeps its newest 1,000 of the last 90 days.
func (a Markers) Add(ctx context.Context, m MarkerSpec) (*Marker, error) {
	request, err := requestID(m.RequestID)
	if err != nil {
		return nil, fmt.Errorf("add marker %q: %w", m.Title, err)
	}
	p, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).AddMarker, &pawlv1.AddMarkerRequest{Kind: string(m.Kind), Title: m.Title, Version: m.Version, Url: m.URL,
		Queues: m.Queues, Types: m.Types, At: convert.Timestamp(m.At), EndedAt: convert.Timestamp(m.EndedAt), RequestId: request})
	if err != nil {
		return nil, fmt.Errorf("add marker %q: %w", m.Title, err)
	}
	return markerOf(p.GetMarker()), nil
}

// End says when a marker was over; the zero time is now, and leaves alone the end that a marker has.
func (a Markers) End(ctx context.Context, id string, at time.Time) (*Marker, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).EndMarker, &pawlv1.EndMarkerRequest{Id: id, EndedAt: convert.Timestamp(at)})
	if err != nil {
		return nil, fmt.Errorf("end marker %s: %w", id, err)
	}
	return markerOf(p.GetMarker()), nil
}

// Delete removes a marker.
func (a Markers) Delete(ctx context.Context, id string) error {
	if _, err := operate(ctx, a.calls, false, pawlv1.NewMarkerServiceClient(a.rpc).RemoveMarker, &pawlv1.RemoveMarkerRequest{Id: id}); err != nil {
		return fmt.Errorf("remove marker %s: %w", id, err)
	}
	return nil
}

// List goes over markers, newest first.
func (a Markers) List(ctx context.Context, f MarkerFilter) iter.Seq2[*Marker, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Marker], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of the markers, newest first.
func (a Markers) ListPage(ctx context.Context, f MarkerFilter, page pawltype.PageRequest) (pawltype.Page[*Marker], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewMarkerServiceClient(a.rpc).ListMarkers, &pawlv1.ListMarkersRequest{Since: convert.Timestamp(f.Since), Until: convert.Timestamp(f.Until),
		Kind: string(f.Kind), Queue: f.Queue, Type: f.Type, Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Marker]{}, fmt.Errorf("list markers: %w", err)
	}
	return convert.Page(resp, markerOf), nil
}

func markerOf(p *pawlv1.Marker) *Marker {
	return &Marker{ID: p.GetId(), Kind: MarkerKind(p.GetKind()), Title: p.GetTitle(), Version: p.GetVersion(), URL: p.GetUrl(), Queues: p.GetQueues(), Types: p.GetTypes(),
		At: convert.Time(p.GetAt()), EndedAt: convert.Time(p.GetEndedAt()), CreatedBy: p.GetCreatedBy(), CreatedAt: convert.Time(p.GetCreatedAt())}
}
