package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
)

// Marker is a marker for programs.
type Marker struct {
	ID        string           `json:"id"`
	Kind      admin.MarkerKind `json:"kind"`
	Title     string           `json:"title"`
	Version   string           `json:"version,omitempty"`
	URL       string           `json:"url,omitempty"`
	Queues    []string         `json:"queues,omitempty"`
	Types     []string         `json:"types,omitempty"`
	At        time.Time        `json:"at"`
	EndedAt   time.Time        `json:"ended_at,omitzero"`
	CreatedBy string           `json:"created_by,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
}

// NewMarker converts a marker.
func NewMarker(m *admin.Marker) Marker { return Marker(*m) }
