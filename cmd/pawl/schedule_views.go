package main

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// scheduleSpecView is what operators say of a schedule: also the form of a file for "schedule apply".
type scheduleSpecView struct {
	Name     string            `json:"name"`
	Cron     string            `json:"cron,omitempty"`
	Every    string            `json:"every,omitempty"`
	TimeZone string            `json:"time_zone,omitempty"`
	Jitter   string            `json:"jitter,omitempty"`
	Missed   admin.Missed      `json:"missed,omitempty"`
	Overlap  admin.Overlap     `json:"overlap,omitempty"`
	Owner    string            `json:"owner,omitempty"`
	Task     scheduledTaskView `json:"task"`
}

type scheduledTaskView struct {
	Type        string            `json:"type"`
	Payload     any               `json:"payload,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Queue       string            `json:"queue,omitempty"`
	Priority    pawltype.Priority `json:"priority,omitempty"`
	MaxAttempts *int              `json:"max_attempts,omitempty"`
	Retry       *retryView        `json:"retry,omitempty"`
	Timeout     string            `json:"timeout,omitempty"`
	ExpiresIn   string            `json:"expires_in,omitempty"`
	Retention   string            `json:"retention,omitempty"`
	Key         string            `json:"key,omitempty"`
	Unique      *uniqueView       `json:"unique,omitempty"`
	Cost        *int              `json:"cost,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	// Then is what follows it.
	Then []scheduledTaskView `json:"then,omitempty"`

	// Of a task that follows another.
	Delay          string `json:"delay,omitempty"`
	RunAt          string `json:"run_at,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	IdempotencyTTL string `json:"idempotency_ttl,omitempty"`
}

type scheduleView struct {
	scheduleSpecView
	ScheduleID    string      `json:"schedule_id"`
	Paused        bool        `json:"paused"`
	PausedReason  string      `json:"paused_reason,omitempty"`
	PausedBy      string      `json:"paused_by,omitempty"`
	PausedAt      time.Time   `json:"paused_at,omitzero"`
	CreatedAt     time.Time   `json:"created_at,omitzero"`
	UpdatedAt     time.Time   `json:"updated_at,omitzero"`
	NextRunAt     time.Time   `json:"next_run_at,omitzero"`
	NextPlannedAt time.Time   `json:"next_planned_at,omitzero"`
	Coming        []time.Time `json:"coming,omitempty"`
	Last          *tickView   `json:"last,omitempty"`
	ETag          string      `json:"etag,omitempty"`
}

type tickView struct {
	Seq       int64             `json:"seq"`
	PlannedAt time.Time         `json:"planned_at,omitzero"`
	Until     time.Time         `json:"until,omitzero"`
	Count     int               `json:"count"`
	DecidedAt time.Time         `json:"decided_at,omitzero"`
	Outcome   admin.TickOutcome `json:"outcome"`
	Reason    string            `json:"reason,omitempty"`
	TaskID    string            `json:"task_id,omitempty"`
	Late      string            `json:"late,omitempty"`
}

func viewSchedule(s *admin.Schedule) scheduleView {
	v := scheduleView{scheduleSpecView: viewScheduleSpec(s), ScheduleID: s.ID, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		NextRunAt: s.NextRunAt, NextPlannedAt: s.PlannedAt, Coming: s.Coming, ETag: s.ETag}
	if s.Pause != nil {
		v.Paused, v.PausedReason, v.PausedBy, v.PausedAt = true, s.Pause.Reason, s.Pause.By, s.Pause.At
	}
	if s.Last != nil {
		last := viewTick(s.Last)
		v.Last = &last
	}
	return v
}

func viewScheduleSpec(s *admin.Schedule) scheduleSpecView {
	return scheduleSpecView{Name: s.Name, Cron: s.Cron, Every: period(s.Every), TimeZone: s.TimeZone, Jitter: period(s.Jitter),
		Missed: s.Missed, Overlap: s.Overlap, Owner: s.Owner, Task: viewScheduledTask(&s.Task)}
}

func viewScheduledTask(t *admin.ScheduledTask) scheduledTaskView {
	v := scheduledTaskView{Type: t.Type, Payload: viewBytes(t.Payload, t.ContentType), ContentType: t.ContentType, Queue: t.Queue, Priority: t.Priority,
		Timeout: period(t.Timeout), ExpiresIn: period(t.ExpiresIn), Key: t.Key, Unique: viewUnique(t.Unique), Tags: t.Tags, Headers: t.Headers,
		Delay: period(t.In), IdempotencyKey: t.IdempotencyKey, IdempotencyTTL: period(t.IdempotencyTTL)}
	if t.MaxAttempts > 0 {
		v.MaxAttempts = &t.MaxAttempts
	}
	if t.Cost > 1 {
		v.Cost = &t.Cost
	}
	if !t.At.IsZero() {
		v.RunAt = t.At.Format(time.RFC3339Nano)
	}
	if t.Retry != nil {
		v.Retry = viewRetry(*t.Retry)
	}
	if t.Retention != nil {
		v.Retention = period(*t.Retention)
	}
	for i := range t.Then {
		v.Then = append(v.Then, viewScheduledTask(&t.Then[i]))
	}
	return v
}

func viewTick(t *admin.Tick) tickView {
	return tickView{Seq: t.Seq, PlannedAt: t.PlannedAt, Until: t.Until, Count: t.Count, DecidedAt: t.DecidedAt, Outcome: t.Outcome,
		Reason: t.Reason, TaskID: t.TaskID, Late: period(t.Late)}
}
