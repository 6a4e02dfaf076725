package broker

import (
	"cmp"
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Types of the engine for schedules.
type (
	ScheduleView    = schedule.View
	SchedulePage    = schedule.Page
	SchedulePut     = schedule.PutCall
	SchedulePutDone = schedule.PutDone
	Tick            = schema.Tick
	OutboxMessage   = schema.Message
)

// The engine's constants for the outcome of a put and of a tick.
const (
	ScheduleUnchanged = schedule.Unchanged
	TickSkipped       = schema.TickSkipped
)

// ErrScheduleRaced: a later call took effect first. Retry with a newer version.
var ErrScheduleRaced = schedule.ErrRaced

// Overlaps refuses a trigger while another task holds the schedule's unique key.
func Overlaps(name string, id task.ID) error { return schedule.Overlaps(name, id) }

// CheckSchedule refuses a complete schedule that breaks a rule. The error names field, value and rule.
func CheckSchedule(s *task.Schedule, l task.Limits) error { return schedule.CheckSpec(s, l) }

// ScheduleWords describes in English when a schedule is due.
func ScheduleWords(s *task.Schedule) string { return schedule.Words(s) }

// Triggered is the answer to a trigger: a task, or the message that carries it to its shard.
type Triggered struct {
	Accepted
	Message *OutboxMessage
}

// OnSchedule is a request about a schedule in a shard.
type OnSchedule struct {
	OnShard
	Name string
}

func (o *OnSchedule) within(round *engine.Round, s task.Scope) error {
	return schedule.Within(round, s, o.Namespace, o.Name)
}

// AtHome is a request about a schedule. The system shard maps the schedule's name to the shard that it lives in.
type AtHome struct{ OnSchedule }

// ObjectName implements verb.ByName.
func (a *AtHome) ObjectName() (ns, name string) { return a.Namespace, a.Name }

// SchedulePutCall asks to create or replace a schedule in a shard.
type SchedulePutCall struct {
	OnShard
	Authored
	Put SchedulePut
}

func (p *SchedulePutCall) within(round *engine.Round, s task.Scope) error {
	return schedule.Within(round, s, p.Namespace, p.Put.Schedule.Name)
}

// ScheduleIsPut is the schedule after the call.
type ScheduleIsPut struct {
	Done SchedulePutDone
	Stamped
}

// All of these verbs are idempotent: a schedule's version, or the id of the request, shows that a call has already taken effect.

// PutSchedule creates or replaces a schedule. The shard assigns its id.
var PutSchedule = onReplica(verb.Rule{Name: "put-schedule", Idempotent: true}, func(ctx context.Context, r *replica,
	q *SchedulePutCall) (out ScheduleIsPut, err error) {
	if !q.Put.DryRun {
		if err := r.b.room(); err != nil {
			return out, err
		}
	}
	put := q.Put
	put.ID = r.newID()
	out.Done, out.At, err = change(ctx, r, inScope(ctx, q.within, func(round *engine.Round) (SchedulePutDone, error) {
		return schedule.Audited(round, q.By, task.SchedulePut, q.Namespace, put.Schedule.Name, func() (SchedulePutDone, error) {
			return schedule.Put(round, q.Namespace, put)
		})
	}))
	return out, err
})

// ScheduleDeletion names the schedule to delete, with the version of its name.
type ScheduleDeletion struct {
	OnSchedule
	Authored
	Version uint64
}

// ScheduleDeleted holds the time at which the schedule was deleted.
type ScheduleDeleted struct{ Stamped }

// DeleteSchedule removes a schedule. Like a call of another shard it waits while a backup begins: the system shard
// forgets the name afterwards.
var DeleteSchedule = onReplica(verb.Rule{Name: "delete-schedule", Idempotent: true}, func(ctx context.Context, r *replica,
	q *ScheduleDeletion) (out ScheduleDeleted, err error) {
	existed, at, err := changeWhenFree(ctx, r, inScope(ctx, q.within, func(round *engine.Round) (bool, error) {
		return schedule.Audited(round, q.By, task.ScheduleDeleted, q.Namespace, q.Name, func() (bool, error) {
			return schedule.Delete(round, q.Namespace, q.Name, q.Version)
		})
	}))
	if out.At = at; err == nil && !existed {
		err = task.NotFound("schedule", q.Name)
	}
	return out, err
})

// ScheduleCommand is an operator's call on a schedule.
type ScheduleCommand struct {
	AtHome
	Authored
	Reason string
}

// PauseSchedule pauses a schedule.
var PauseSchedule = changes(verb.Rule{Name: "pause-schedule", Idempotent: true}, func(round *engine.Round,
	q *ScheduleCommand) (out Shown[*ScheduleView], err error) {
	out.View, err = schedule.Audited(round, q.By, task.SchedulePaused, q.Namespace, q.Name, func() (*ScheduleView, error) {
		return schedule.Pause(round, q.Namespace, q.Name, q.Reason, q.By.Name)
	})
	return out, err
})

// ResumeSchedule resumes a schedule.
var ResumeSchedule = changes(verb.Rule{Name: "resume-schedule", Idempotent: true}, func(round *engine.Round,
	q *ScheduleCommand) (out Shown[*ScheduleView], err error) {
	out.View, err = schedule.Audited(round, q.By, task.ScheduleResumed, q.Namespace, q.Name, func() (*ScheduleView, error) {
		return schedule.Resume(round, q.Namespace, q.Name)
	})
	return out, err
})

// ScheduleTrigger names the schedule to create a task of now, and the request.
type ScheduleTrigger struct {
	AtHome
	Authored
	Request task.ID
}

// ScheduleTriggered is the new task, or the message that carries it to another shard.
type ScheduleTriggered struct {
	Made Triggered
	Stamped
}

// TriggerSchedule creates a task of a schedule now.
var TriggerSchedule = onReplica(verb.Rule{Name: "trigger-schedule", Idempotent: true}, func(ctx context.Context, r *replica,
	q *ScheduleTrigger) (out ScheduleTriggered, err error) {
	if err := r.b.room(); err != nil {
		return out, err
	}
	call := schedule.Trigger{Request: q.Request, ID: r.newID()}
	out.Made, out.At, err = change(ctx, r, inScope(ctx, q.within, func(round *engine.Round) (Triggered, error) {
		return schedule.Audited(round, q.By, task.ScheduleTriggered, q.Namespace, q.Name, func() (made Triggered, err error) {
			made.Accepted, made.Message, err = schedule.Fire(round, q.Namespace, q.Name, call)
			return made, err
		})
	}))
	return out, err
})

// ShowSchedule reads a schedule.
var ShowSchedule = reads(verb.Rule{Name: "schedule"}, func(from store.Reader, scope task.Scope, q *AtHome) (out Shown[*ScheduleView],
	err error) {
	out.View, err = scheduleSeen(from, scope, q.Namespace, q.Name)
	return out, err
})

// ScheduleList asks for a page of schedules in the order of their names, starting after a name.
type ScheduleList struct {
	OnShard
	After string
	Limit int
}

// ListSchedules returns up to Limit schedules of all shards after a name, in the order of their names.
var ListSchedules = reads(verb.Rule{Name: "schedules"}, func(from store.Reader, scope task.Scope, q *ScheduleList) (out Paged[SchedulePage],
	err error) {
	out.Page = schedule.List(from, q.Namespace, scope, q.After, q.Limit)
	return out, nil
}).Merged(func(q *ScheduleList, parts []Paged[SchedulePage]) (out Paged[SchedulePage], err error) {
	out.Page.Schedules, out.Page.More = verb.MergePages(parts, q.Limit, func(p Paged[SchedulePage]) ([]*ScheduleView, bool) {
		return p.Page.Schedules, p.Page.More
	},
		func(a, b *ScheduleView) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
})

// ScheduleHistoryList asks for up to Limit entries of a schedule's history below a number, newest first; 0 starts at the newest.
type ScheduleHistoryList struct {
	AtHome
	Below uint64
	Limit int
}

// ScheduleHistoryPage is a page of a schedule's history.
type ScheduleHistoryPage struct {
	Entries []*Tick
	Stamped
}

// ScheduleHistory reads a page of a schedule's history.
var ScheduleHistory = reads(verb.Rule{Name: "schedule-history"}, func(from store.Reader, scope task.Scope,
	q *ScheduleHistoryList) (out ScheduleHistoryPage, err error) {
	if _, err := scheduleSeen(from, scope, q.Namespace, q.Name); err != nil {
		return out, err
	}
	out.Entries, err = schedule.History(from, q.Namespace, q.Name, q.Below, q.Limit)
	return out, err
})

// scheduleSeen reads a schedule, if it is visible to the call.
func scheduleSeen(from store.Reader, scope task.Scope, ns, name string) (*ScheduleView, error) {
	v, err := schedule.Show(from, ns, name)
	if err == nil && !scope.Sees(v.Task.Queue) {
		return nil, task.NotFound("schedule", name)
	}
	return v, err
}
