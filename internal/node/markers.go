package node

import (
	"context"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router"
)

// markers are the calls on markers, wherever the system shard is led: it is the gateway.Markers.
type markers struct {
	add    func(context.Context, cluster.MarkerCall) (cluster.Marker, error)
	end    func(context.Context, cluster.MarkerEnd) (cluster.Marker, error)
	remove func(context.Context, cluster.MarkerName) (struct{}, error)
	list   func(context.Context, cluster.MarkerQuery) (cluster.MarkerPage, error)
}

func newMarkers(r *router.Router, c *cluster.Control) *markers {
	return &markers{
		add: router.OnSystem(r, "add-marker", true, c.AddMarker),
		end: router.OnSystem(r, "end-marker", true, c.EndMarker),
		remove: router.OnSystem(r, "remove-marker", false, func(ctx context.Context, a cluster.MarkerName) (struct{}, error) { // a repeat would not find it
			return struct{}{}, c.RemoveMarker(ctx, a)
		}),
		list: router.OnSystem(r, "markers", true, c.Markers),
	}
}

// AddMarker implements gateway.Markers.
func (m *markers) AddMarker(ctx context.Context, a cluster.MarkerCall) (cluster.Marker, error) {
	return m.add(ctx, a)
}

// EndMarker implements gateway.Markers.
func (m *markers) EndMarker(ctx context.Context, a cluster.MarkerEnd) (cluster.Marker, error) {
	return m.end(ctx, a)
}

// RemoveMarker implements gateway.Markers.
func (m *markers) RemoveMarker(ctx context.Context, a cluster.MarkerName) error {
	_, err := m.remove(ctx, a)
	return err
}

// Markers implements gateway.Markers.
func (m *markers) Markers(ctx context.Context, q cluster.MarkerQuery) (cluster.MarkerPage, error) {
	return m.list(ctx, q)
}
