package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/pawlq/pawl/admin"
)

// webhookView is a webhook for programs.
type webhookView struct {
	Name           string               `json:"name"`
	URL            string               `json:"url"`
	Events         []admin.WebhookEvent `json:"events"`
	Queues         []string             `json:"queues"`
	DepthOver      int64                `json:"depth_over,omitempty"`
	WaitOver       string               `json:"wait_over,omitempty"`
	CreatedBy      string               `json:"created_by,omitempty"`
	CreatedAt      time.Time            `json:"created_at"`
	ChangedAt      time.Time            `json:"changed_at"`
	RotatedAt      *time.Time           `json:"rotated_at,omitempty"`
	OldUntil       *time.Time           `json:"old_until,omitempty"`
	State          admin.WebhookState   `json:"state"`
	Paused         bool                 `json:"paused"`
	PausedReason   string               `json:"paused_reason,omitempty"`
	PausedBy       string               `json:"paused_by,omitempty"`
	PausedAt       *time.Time           `json:"paused_at,omitempty"`
	DisabledReason string               `json:"disabled_reason,omitempty"`
	DisabledAt     *time.Time           `json:"disabled_at,omitempty"`
	Pending        int64                `json:"pending"`
	PendingSince   *time.Time           `json:"pending_since,omitempty"`
	NextAttemptAt  *time.Time           `json:"next_attempt_at,omitempty"`
	Failures       int64                `json:"failures"`
	FailingSince   *time.Time           `json:"failing_since,omitempty"`
	Delivered      int64                `json:"delivered"`
	Failed         int64                `json:"failed"`
	Dropped        int64                `json:"dropped"`
	DeliveredAt    *time.Time           `json:"delivered_at,omitempty"`
	FailedAt       *time.Time           `json:"failed_at,omitempty"`
	DroppedAt      *time.Time           `json:"dropped_at,omitempty"`
	LastStatus     int                  `json:"last_status,omitempty"`
	LastError      string               `json:"last_error,omitempty"`

	Secret      string         `json:"secret,omitempty"`
	Unconfirmed []uint32       `json:"unconfirmed_shards,omitempty"`
	Deliveries  []deliveryView `json:"deliveries,omitempty"`
}

// deliveryView is a notice for programs.
type deliveryView struct {
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

func viewWebhook(h *admin.Webhook) webhookView {
	return webhookView{Name: h.Name, URL: h.URL, Events: h.Events, Queues: h.Queues, DepthOver: h.DepthOver, WaitOver: period(h.WaitOver), CreatedBy: h.CreatedBy,
		CreatedAt: h.CreatedAt, ChangedAt: h.ChangedAt, RotatedAt: whenSet(h.RotatedAt), OldUntil: whenSet(h.OldUntil), Paused: h.Paused, PausedReason: h.PausedReason,
		PausedBy: h.PausedBy, PausedAt: whenSet(h.PausedAt), DisabledReason: h.DisabledReason, DisabledAt: whenSet(h.DisabledAt), Pending: h.Pending,
		PendingSince: whenSet(h.PendingSince), NextAttemptAt: whenSet(h.NextAttemptAt), Failures: h.Failures, Delivered: h.Delivered, Failed: h.Failed, Dropped: h.Dropped,
		DeliveredAt: whenSet(h.DeliveredAt), FailedAt: whenSet(h.FailedAt), DroppedAt: whenSet(h.DroppedAt), LastStatus: h.LastStatus, LastError: h.LastError,
		State: h.State, FailingSince: whenSet(h.FailingSince)}
}

func viewDelivery(d *admin.WebhookDelivery) deliveryView {
	return deliveryView{ID: d.ID, Event: d.Event, Queue: d.Queue, Count: d.Count, CreatedAt: d.CreatedAt, At: d.At, Attempts: d.Attempts, Outcome: d.Outcome, Status: d.Status,
		Error: d.Error, Took: period(d.Took)}
}

// hookState says in a few words how a webhook is doing.
func hookState(h *admin.Webhook) string {
	why := ""
	switch h.State {
	case admin.WebhookPaused:
		why = h.PausedReason
	case admin.WebhookFailing:
		why = count(h.Failures, "attempt")
	}
	if why == "" {
		return string(h.State)
	}
	return string(h.State) + ": " + short(why, 40)
}

func writeWebhooks(w io.Writer, hooks []*admin.Webhook, now time.Time) {
	rows := make([][]string, len(hooks))
	for i, h := range hooks {
		rows[i] = []string{h.Name, short(h.URL, 50), eventWords(h.Events), patternWords(h.Queues), hookState(h), strconv.FormatInt(h.Pending, 10), strconv.FormatInt(h.Delivered, 10),
			strconv.FormatInt(h.Dropped, 10), ago(h.DeliveredAt, now)}
	}
	columns(w, "NAME|URL|EVENTS|QUEUES|STATE|PENDING|DELIVERED|DROPPED|LAST", rows)
}

func writeWebhook(w io.Writer, h *admin.Webhook, now time.Time) {
	thresholds := ""
	if h.DepthOver > 0 {
		thresholds = fmt.Sprintf("over %s ready", count(h.DepthOver, "task"))
	}
	if h.WaitOver > 0 {
		if thresholds != "" {
			thresholds += ", or "
		}
		thresholds += "one ready for over " + period(h.WaitOver)
	}
	paused, pending := "", strconv.FormatInt(h.Pending, 10)
	if h.Paused {
		paused = clock(h.PausedAt, now) + byWhom(h.PausedBy)
		if h.PausedReason != "" {
			paused += ": " + h.PausedReason
		}
	}
	if h.Pending > 0 {
		pending += ", the oldest " + clock(h.PendingSince, now)
	}
	disabled := ""
	if h.DisabledReason != "" {
		disabled = clock(h.DisabledAt, now) + ": " + h.DisabledReason
	}
	failure := ""
	if h.LastError != "" {
		failure = clock(h.FailedAt, now) + ": " + h.LastError
	}
	dropped := strconv.FormatInt(h.Dropped, 10)
	if h.Dropped > 0 {
		dropped += ", the last " + clock(h.DroppedAt, now)
	}
	fields(w, "Name", h.Name, "URL", h.URL, "Events", eventWords(h.Events), "Queues", patternWords(h.Queues), "Thresholds", thresholds, "State", hookState(h),
		"Paused", paused, "Disabled", disabled, "Failing since", clock(h.FailingSince, now), "Pending", pending, "Next attempt", clock(h.NextAttemptAt, now), "Delivered", strconv.FormatInt(h.Delivered, 10),
		"Last delivery", clock(h.DeliveredAt, now), "Failed", count(h.Failed, "attempt"), "Last failure", failure, "Dropped", dropped,
		"Created", clock(h.CreatedAt, now)+byWhom(h.CreatedBy), "Rotated", clock(h.RotatedAt, now), "Old secret until", clock(h.OldUntil, now))
}

func writeDeliveries(w io.Writer, last []*admin.WebhookDelivery, now time.Time) {
	rows := make([][]string, len(last))
	for i, d := range last {
		status := ""
		if d.Status != 0 {
			status = strconv.Itoa(d.Status)
		}
		rows[i] = []string{ago(d.At, now), string(d.Event), d.Queue, strconv.FormatInt(d.Count, 10), string(d.Outcome), strconv.Itoa(d.Attempts), status, d.ID, short(d.Error, 60)}
	}
	columns(w, "AT|EVENT|QUEUE|COUNT|OUTCOME|ATTEMPTS|STATUS|ID|ERROR", rows)
}
