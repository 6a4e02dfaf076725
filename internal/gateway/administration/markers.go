package administration

import (
	"context"
	"encoding/binary"
	"log/slog"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/markers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// MarkerService implements MarkerService.
type MarkerService struct {
	pawlv1.UnimplementedMarkerServiceServer
	Verbs  verb.Runner
	Limits task.Limits
	Log    *slog.Logger
}

// AddMarker adds a marker.
func (g *MarkerService) AddMarker(ctx context.Context, r *pawlv1.AddMarkerRequest) (*pawlv1.AddMarkerResponse, error) {
	m := markers.Marker{Namespace: callinfo.Namespace(ctx), Kind: markers.Kind(r.GetKind()), Title: r.GetTitle(), Version: r.GetVersion(),
		URL: r.GetUrl(), Queues: r.GetQueues(), Types: r.GetTypes()}
	var err error
	if m.ID, err = apiproto.RequestIDOf(r.GetRequestId()); err != nil {
		return nil, err
	}
	if m.At, err = apiproto.MomentOf("at", r.GetAt()); err != nil {
		return nil, err
	}
	if m.EndedAt, err = apiproto.MomentOf("ended_at", r.GetEndedAt()); err != nil {
		return nil, err
	}
	if err := m.Check(g.Limits); err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	if m, err = markers.Add.Call(ctx, g.Verbs, markers.Call{By: by, Marker: m}); err != nil {
		return nil, err
	}
	g.Log.Info("marker added", "marker_id", m.ID.String(), "namespace", m.Namespace, "kind", string(m.Kind), "title", m.Title, "by", by)
	return &pawlv1.AddMarkerResponse{Marker: markerProto(&m)}, nil
}

// ListMarkers returns a page of the markers that overlap a range of time.
func (g *MarkerService) ListMarkers(ctx context.Context, r *pawlv1.ListMarkersRequest) (*pawlv1.ListMarkersResponse, error) {
	q, err := g.markerQuery(ctx, r)
	if err != nil {
		return nil, err
	}
	page, err := markers.List.Call(ctx, g.Verbs, q)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.ListMarkersResponse{Items: make([]*pawlv1.Marker, len(page.Markers))}
	for i := range page.Markers {
		out.Items[i] = markerProto(&page.Markers[i])
	}
	if page.More {
		last := &page.Markers[len(page.Markers)-1]
		at := binary.BigEndian.AppendUint64(nil, uint64(last.At)) // #nosec G115 -- not negative
		out.NextCursor = apiproto.EncodeCursor(apiproto.MarkerCursor, append(at, last.ID[:]...))
	}
	return out, nil
}

func (g *MarkerService) markerQuery(ctx context.Context, r *pawlv1.ListMarkersRequest) (q markers.Query, err error) {
	q = markers.Query{Namespace: callinfo.Namespace(ctx), Kind: markers.Kind(r.GetKind()), Queue: r.GetQueue(), Type: r.GetType()}
	var at []byte
	if q.Limit, at, err = apiproto.PageOf(r, apiproto.MarkerCursor); err != nil {
		return q, err
	}
	if q.Kind != "" {
		if err := markers.CheckKind(q.Kind); err != nil {
			return q, err
		}
	}
	if q.Since, err = apiproto.MomentOf("since", r.GetSince()); err != nil {
		return q, err
	}
	if q.Until, err = apiproto.MomentOf("until", r.GetUntil()); err != nil {
		return q, err
	}
	if q.Queue != "" {
		if err := task.CheckQueue("queue", q.Queue, g.Limits); err != nil {
			return q, err
		}
		if err := callinfo.MayUse(ctx, q.Queue); err != nil {
			return q, err
		}
	}
	if err := task.CheckName("type", q.Type, g.Limits); err != nil {
		return q, err
	}
	switch {
	case at == nil:
		return q, nil
	case len(at) != 8+len(q.BehindID):
		return q, apiproto.BadCursor(r.GetCursor())
	}
	q.BehindAt, q.BehindID = broker.Time(binary.BigEndian.Uint64(at)), task.ID(at[8:]) // #nosec G115 -- as it was written
	return q, nil
}

// markerOf returns the name of the requested marker.
func (g *MarkerService) markerOf(ctx context.Context, id string) (of markers.Name, err error) {
	of.Namespace = callinfo.Namespace(ctx)
	if of.ID, err = task.ParseID(id); err != nil {
		return of, task.Invalid("id", "%v", err)
	}
	of.By, err = callinfo.Author(ctx, "")
	return of, err
}

// EndMarker sets when a marker ended.
func (g *MarkerService) EndMarker(ctx context.Context, r *pawlv1.EndMarkerRequest) (*pawlv1.EndMarkerResponse, error) {
	of, err := g.markerOf(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	end, err := apiproto.MomentOf("ended_at", r.GetEndedAt())
	if err != nil {
		return nil, err
	}
	m, err := markers.End.Call(ctx, g.Verbs, markers.Ending{Name: of, EndedAt: end})
	if err != nil {
		return nil, err
	}
	g.Log.Info("marker ended", "marker_id", m.ID.String(), "namespace", m.Namespace, "by", of.By)
	return &pawlv1.EndMarkerResponse{Marker: markerProto(&m)}, nil
}

// RemoveMarker removes a marker.
func (g *MarkerService) RemoveMarker(ctx context.Context, r *pawlv1.RemoveMarkerRequest) (*pawlv1.RemoveMarkerResponse, error) {
	of, err := g.markerOf(ctx, r.GetId())
	if err == nil {
		_, err = markers.Remove.Call(ctx, g.Verbs, of)
	}
	if err != nil {
		return nil, err
	}
	g.Log.Info("marker removed", "marker_id", of.ID.String(), "namespace", of.Namespace, "by", of.By)
	return &pawlv1.RemoveMarkerResponse{}, nil
}

func markerProto(m *markers.Marker) *pawlv1.Marker {
	return &pawlv1.Marker{Id: m.ID.String(), Kind: string(m.Kind), Title: m.Title, Version: m.Version, Url: m.URL, Queues: m.Queues,
		Types: m.Types, At: apiproto.TimeProto(m.At), EndedAt: apiproto.TimeProto(m.EndedAt), CreatedBy: m.CreatedBy,
		CreatedAt: apiproto.TimeProto(m.CreatedAt)}
}
