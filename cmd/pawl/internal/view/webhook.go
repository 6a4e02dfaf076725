package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// Webhook is a webhook for programs.
type Webhook struct {
	Name           string               `json:"name"`
	URL            string               `json:"url"`
	Events         []admin.WebhookEvent `json:"events"`
	Queues         []string             `json:"queues"`
	DepthOver      int64                `json:"depth_over,omitempty"`
	WaitOver       string               `json:"wait_over,omitempty"`
	CreatedBy      string               `json:"created_by,omitempty"`
	CreatedAt      time.Time            `json:"created_at"`
	ChangedAt      time.Time            `json:"changed_at"`
	RotatedAt      time.Time            `json:"rotated_at,omitzero"`
	OldUntil       time.Time            `json:"old_until,omitzero"`
	State          admin.WebhookState   `json:"state"`
	Paused         bool                 `json:"paused"`
	PausedReason   string               `json:"paused_reason,omitempty"`
	PausedBy       string               `json:"paused_by,omitempty"`
	PausedAt       time.Time            `json:"paused_at,omitzero"`
	DisabledReason string               `json:"disabled_reason,omitempty"`
	DisabledAt     time.Time            `json:"disabled_at,omitzero"`
	Pending        int64                `json:"pending"`
	PendingSince   time.Time            `json:"pending_since,omitzero"`
	NextAttemptAt  time.Time            `json:"next_attempt_at,omitzero"`
	Failures       int64                `json:"failures"`
	FailingSince   time.Time            `json:"failing_since,omitzero"`
	Delivered      int64                `json:"delivered"`
	Failed         int64                `json:"failed"`
	Dropped        int64                `json:"dropped"`
	DeliveredAt    time.Time            `json:"delivered_at,omitzero"`
	FailedAt       time.Time            `json:"failed_at,omitzero"`
	DroppedAt      time.Time            `json:"dropped_at,omitzero"`
	LastStatus     int                  `json:"last_status,omitempty"`
	LastError      string               `json:"last_error,omitempty"`

	Secret      string     `json:"secret,omitempty"`
	Unconfirmed []uint32   `json:"unconfirmed_shards,omitempty"`
	Deliveries  []Delivery `json:"deliveries,omitempty"`
}

// Delivery is a webhook delivery for programs.
type Delivery struct {
	ID        string               `json:"id"`
	Event     admin.WebhookEvent   `json:"event"`
	Queue     string               `json:"queue,omitempty"`
	Count     int64                `json:"count,omitempty"`
	CreatedAt time.Time            `json:"created_at"`
	At        time.Time            `json:"at"`
	Attempts  int                  `json:"attempts"`
	Outcome   admin.WebhookOutcome `json:"outcome"`
	Status    int                  `json:"status,omitempty"`
	Error     string               `json:"error,omitempty"`
	Took      string               `json:"took,omitempty"`
}

// NewWebhook converts a webhook.
func NewWebhook(h *admin.Webhook) Webhook {
	return Webhook{Name: h.Name, URL: h.URL, Events: h.Events, Queues: h.Queues, DepthOver: h.DepthOver, WaitOver: text.Period(h.WaitOver), CreatedBy: h.CreatedBy,
		CreatedAt: h.CreatedAt, ChangedAt: h.ChangedAt, RotatedAt: h.RotatedAt, OldUntil: h.OldUntil, Paused: h.Paused, PausedReason: h.PausedReason,
		PausedBy: h.PausedBy, PausedAt: h.PausedAt, DisabledReason: h.DisabledReason, DisabledAt: h.DisabledAt, Pending: h.Pending,
		PendingSince: h.PendingSince, NextAttemptAt: h.NextAttemptAt, Failures: h.Failures, Delivered: h.Delivered, Failed: h.Failed, Dropped: h.Dropped,
		DeliveredAt: h.DeliveredAt, FailedAt: h.FailedAt, DroppedAt: h.DroppedAt, LastStatus: h.LastStatus, LastError: h.LastError,
		State: h.State, FailingSince: h.FailingSince}
}

// NewDelivery converts a delivery.
func NewDelivery(d *admin.WebhookDelivery) Delivery {
	return Delivery{ID: d.ID, Event: d.Event, Queue: d.Queue, Count: d.Count, CreatedAt: d.CreatedAt, At: d.At, Attempts: d.Attempts, Outcome: d.Outcome, Status: d.Status,
		Error: d.Error, Took: text.Period(d.Took)}
}
