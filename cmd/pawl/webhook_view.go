package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// webhookState summarizes the state of a webhook.
func webhookState(h *admin.Webhook) string {
	why := ""
	switch h.State {
	case admin.WebhookPaused:
		why = h.PausedReason
	case admin.WebhookFailing:
		why = text.Count(h.Failures, "attempt")
	}
	if why == "" {
		return string(h.State)
	}
	return string(h.State) + ": " + text.Short(why, 40)
}

func writeWebhooks(w io.Writer, hooks []*admin.Webhook) {
	now := time.Now()
	rows := make([][]string, len(hooks))
	for i, h := range hooks {
		rows[i] = []string{h.Name, text.Short(h.URL, 50), eventWords(h.Events), patternWords(h.Queues), webhookState(h),
			strconv.FormatInt(h.Pending, 10), strconv.FormatInt(h.Delivered, 10), strconv.FormatInt(h.Dropped, 10),
			text.Ago(h.DeliveredAt, now)}
	}
	text.Columns(w, "NAME|URL|EVENTS|QUEUES|STATE|PENDING|DELIVERED|DROPPED|LAST", rows)
}

func writeWebhook(w io.Writer, h *admin.Webhook, now time.Time) {
	thresholds := ""
	if h.DepthOver > 0 {
		thresholds = fmt.Sprintf("over %s ready", text.Count(h.DepthOver, "task"))
	}
	if h.WaitOver > 0 {
		if thresholds != "" {
			thresholds += ", or "
		}
		thresholds += "one ready for over " + text.Period(h.WaitOver)
	}
	paused, pending := "", strconv.FormatInt(h.Pending, 10)
	if h.Paused {
		paused = text.Clock(h.PausedAt, now) + byWhom(h.PausedBy)
		if h.PausedReason != "" {
			paused += ": " + h.PausedReason
		}
	}
	if h.Pending > 0 {
		pending += ", the oldest " + text.Clock(h.PendingSince, now)
	}
	disabled := ""
	if h.DisabledReason != "" {
		disabled = text.Clock(h.DisabledAt, now) + ": " + h.DisabledReason
	}
	failure := ""
	if h.LastError != "" {
		failure = text.Clock(h.FailedAt, now) + ": " + h.LastError
	}
	dropped := strconv.FormatInt(h.Dropped, 10)
	if h.Dropped > 0 {
		dropped += ", the last " + text.Clock(h.DroppedAt, now)
	}
	text.Fields(w, "Name", h.Name, "URL", h.URL, "Events", eventWords(h.Events), "Queues", patternWords(h.Queues), "Thresholds", thresholds,
		"State", webhookState(h), "Paused", paused, "Disabled", disabled, "Failing since", text.Clock(h.FailingSince, now),
		"Pending", pending, "Next attempt", text.Clock(h.NextAttemptAt, now), "Delivered", strconv.FormatInt(h.Delivered, 10),
		"Last delivery", text.Clock(h.DeliveredAt, now), "Failed", text.Count(h.Failed, "attempt"), "Last failure", failure,
		"Dropped", dropped, "Created", text.Clock(h.CreatedAt, now)+byWhom(h.CreatedBy), "Rotated", text.Clock(h.RotatedAt, now),
		"Old secret until", text.Clock(h.OldUntil, now))
}

func writeDeliveries(w io.Writer, last []*admin.WebhookDelivery, now time.Time) {
	rows := make([][]string, len(last))
	for i, d := range last {
		status := ""
		if d.Status != 0 {
			status = strconv.Itoa(d.Status)
		}
		rows[i] = []string{text.Ago(d.At, now), string(d.Event), d.Queue, strconv.FormatInt(d.Count, 10), string(d.Outcome),
			strconv.Itoa(d.Attempts), status, d.ID, text.Short(d.Error, 60)}
	}
	text.Columns(w, "AT|EVENT|QUEUE|COUNT|OUTCOME|ATTEMPTS|STATUS|ID|ERROR", rows)
}
