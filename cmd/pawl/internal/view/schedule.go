package view

import (
	"encoding/json"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

// ScheduleSpec is a schedule as operators write it, also in the file of "schedule apply": see SpecOf.
type ScheduleSpec struct {
	Name     string        `json:"name"`
	Cron     string        `json:"cron,omitempty"`
	Every    string        `json:"every,omitempty"`
	TimeZone string        `json:"time_zone,omitempty"`
	Jitter   string        `json:"jitter,omitempty"`
	Missed   admin.Missed  `json:"missed,omitempty"`
	Overlap  admin.Overlap `json:"overlap,omitempty"`
	Owner    string        `json:"owner,omitempty"`
	Task     ScheduledTask `json:"task"`
}

// ScheduledTask is the task that a schedule enqueues.
type ScheduledTask struct {
	Type        string            `json:"type"`
	Payload     json.RawMessage   `json:"payload,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Queue       string            `json:"queue,omitempty"`
	Priority    pawltype.Priority `json:"priority,omitempty"`
	MaxAttempts *int              `json:"max_attempts,omitempty"`
	Retry       *Retry            `json:"retry,omitempty"`
	Timeout     string            `json:"timeout,omitempty"`
	ExpiresIn   string            `json:"expires_in,omitempty"`
	Retention   string            `json:"retention,omitempty"`
	Key         string            `json:"key,omitempty"`
	Unique      *Unique           `json:"unique,omitempty"`
	Cost        *int              `json:"cost,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	// Then lists the follow-up tasks.
	Then []ScheduledTask `json:"then,omitempty"`

	// Only for a follow-up task.
	Delay          string `json:"delay,omitempty"`
	RunAt          string `json:"run_at,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	IdempotencyTTL string `json:"idempotency_ttl,omitempty"`
}

// Schedule is a schedule with its last and next runs.
type Schedule struct {
	ScheduleSpec
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
	Last          *Tick       `json:"last,omitempty"`
	ETag          string      `json:"etag,omitempty"`
	InWords       string      `json:"in_words,omitempty"`
}

// Tick is one run of a schedule.
type Tick struct {
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

// NewSchedule converts a schedule.
func NewSchedule(s *admin.Schedule) Schedule {
	v := Schedule{ScheduleSpec: NewScheduleSpec(s), ScheduleID: s.ID, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		NextRunAt: s.NextRunAt, NextPlannedAt: s.PlannedAt, Coming: s.Coming, ETag: s.ETag, InWords: s.InWords}
	if s.Pause != nil {
		v.Paused, v.PausedReason, v.PausedBy, v.PausedAt = true, s.Pause.Reason, s.Pause.By, s.Pause.At
	}
	if s.Last != nil {
		last := NewTick(s.Last)
		v.Last = &last
	}
	return v
}

// NewScheduleSpec converts the spec of a schedule.
func NewScheduleSpec(s *admin.Schedule) ScheduleSpec {
	return ScheduleSpec{Name: s.Name, Cron: s.Cron, Every: text.Period(s.Every), TimeZone: s.TimeZone, Jitter: text.Period(s.Jitter),
		Missed: s.Missed, Overlap: s.Overlap, Owner: s.Owner, Task: NewScheduledTask(&s.Task)}
}

// NewScheduledTask converts a schedule's task.
func NewScheduledTask(t *admin.ScheduledTask) ScheduledTask {
	v := ScheduledTask{Type: t.Type, Payload: NewBytes(t.Payload, t.ContentType), ContentType: t.ContentType, Queue: t.Queue, Priority: t.Priority,
		Timeout: text.Period(t.Timeout), ExpiresIn: text.Period(t.ExpiresIn), Key: t.Key, Unique: NewUnique(t.Unique), Tags: t.Tags, Headers: t.Headers,
		Delay: text.Period(t.In), IdempotencyKey: t.IdempotencyKey, IdempotencyTTL: text.Period(t.IdempotencyTTL)}
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
		v.Retry = NewRetry(*t.Retry)
	}
	if t.Retention != nil {
		v.Retention = text.Period(*t.Retention)
	}
	for i := range t.Then {
		v.Then = append(v.Then, NewScheduledTask(&t.Then[i]))
	}
	return v
}

// NewTick converts a run of a schedule.
func NewTick(t *admin.Tick) Tick {
	return Tick{Seq: t.Seq, PlannedAt: t.PlannedAt, Until: t.Until, Count: t.Count, DecidedAt: t.DecidedAt, Outcome: t.Outcome,
		Reason: t.Reason, TaskID: t.TaskID, Late: text.Period(t.Late)}
}
