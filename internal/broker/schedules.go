package broker

import (
	"context"
	"math/rand/v2"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The engine's words for schedules.
type (
	ScheduleView    = schedule.View
	SchedulePage    = schedule.Page
	SchedulePut     = schedule.PutCall
	SchedulePutDone = schedule.PutDone
	LedgerEntry     = schema.LedgerEntry
	OutboxMessage   = engine.OutboxMessage
)

// The engine's words for what came of a schedule that was put, and of a tick.
const (
	ScheduleUnchanged = schedule.Unchanged
	TickSkipped       = schema.TickSkipped
)

// ErrScheduleRaced: a call that came later was faster. Come again with a newer version.
var ErrScheduleRaced = schedule.ErrRaced

// Overlaps refuses a trigger while another task holds the unique key of the schedule's.
func Overlaps(name string, id task.ID) error { return schedule.Overlaps(name, id) }

// CheckSchedule refuses a filled schedule outside the rules, naming field, value and rule.
func CheckSchedule(s *task.Schedule, l task.Limits) error { return schedule.CheckSpec(s, l) }

// ScheduleWords says in English when a schedule is due.
func ScheduleWords(s *task.Schedule) string { return schedule.Words(s) }

// ScheduleCalls are the calls on the schedules of a shard, their home.
type ScheduleCalls interface {
	PutSchedule(ctx context.Context, by task.Author, shard uint32, ns string, put SchedulePut) (SchedulePutDone, Stamp, error)
	DeleteSchedule(ctx context.Context, by task.Author, shard uint32, ns, name string, version uint64) (Stamp, error)
	PauseSchedule(ctx context.Context, by task.Author, shard uint32, ns, name, reason string) (*ScheduleView, Stamp, error)
	ResumeSchedule(ctx context.Context, by task.Author, shard uint32, ns, name string) (*ScheduleView, Stamp, error)
	TriggerSchedule(ctx context.Context, by task.Author, shard uint32, ns, name string, request task.ID) (Triggered, Stamp, error)
	Schedule(ctx context.Context, shard uint32, ns, name string) (*ScheduleView, Stamp, error)
	Schedules(ctx context.Context, shard uint32, ns, behind string, limit int) (SchedulePage, Stamp, error)
	ScheduleHistory(ctx context.Context, shard uint32, ns, name string, below uint64, limit int) ([]*LedgerEntry, Stamp, error)
}

// Triggered is the answer to a trigger: a task, or the message that brings it to its shard.
type Triggered struct {
	Accepted
	Message *OutboxMessage
}

// PutSchedule makes a schedule what a caller says; its id is given here.
func (b *Broker) PutSchedule(ctx context.Context, by task.Author, shardID uint32, ns string, put SchedulePut) (SchedulePutDone, Stamp, error) {
	find := b.replicaWithRoom
	if put.DryRun {
		find = b.replica
	}
	r, err := find(shardID)
	if err != nil {
		return SchedulePutDone{}, Stamp{}, err
	}
	now, _ := r.shard.Now()
	put.ID = task.NewID(r.id, int64(now)/1000, rand.Uint64())
	return change(ctx, r, inScope(ctx, onSchedule(ns, put.Schedule.Name), func(round *engine.Round) (SchedulePutDone, error) {
		return schedule.Audited(round, by, task.SchedulePut, ns, put.Schedule.Name, func() (SchedulePutDone, error) {
			return schedule.Put(round, ns, put)
		})
	}))
}

// DeleteSchedule removes a schedule.
func (b *Broker) DeleteSchedule(ctx context.Context, by task.Author, shardID uint32, ns, name string, version uint64) (Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return Stamp{}, err
	}
	existed, at, err := change(ctx, r, inScope(ctx, onSchedule(ns, name), func(round *engine.Round) (bool, error) {
		return schedule.Audited(round, by, task.ScheduleDeleted, ns, name, func() (bool, error) {
			return schedule.Delete(round, ns, name, version)
		})
	}))
	if err == nil && !existed {
		err = task.NotFound("schedule", name)
	}
	return at, err
}

// PauseSchedule lets a schedule rest.
func (b *Broker) PauseSchedule(ctx context.Context, by task.Author, shardID uint32, ns, name, reason string) (*ScheduleView, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	return change(ctx, r, inScope(ctx, onSchedule(ns, name), func(round *engine.Round) (*ScheduleView, error) {
		return schedule.Audited(round, by, task.SchedulePaused, ns, name, func() (*ScheduleView, error) {
			return schedule.Pause(round, ns, name, reason, by.Name)
		})
	}))
}

// ResumeSchedule lets a schedule go on.
func (b *Broker) ResumeSchedule(ctx context.Context, by task.Author, shardID uint32, ns, name string) (*ScheduleView, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	return change(ctx, r, inScope(ctx, onSchedule(ns, name), func(round *engine.Round) (*ScheduleView, error) {
		return schedule.Audited(round, by, task.ScheduleResumed, ns, name, func() (*ScheduleView, error) {
			return schedule.Resume(round, ns, name)
		})
	}))
}

// TriggerSchedule makes a task of a schedule now.
func (b *Broker) TriggerSchedule(ctx context.Context, by task.Author, shardID uint32, ns, name string, request task.ID) (Triggered, Stamp, error) {
	r, err := b.replicaWithRoom(shardID)
	if err != nil {
		return Triggered{}, Stamp{}, err
	}
	tasks, _ := r.newTasks(ns, []task.Spec{{RequestID: request}})
	call := schedule.Trigger{Request: request, ID: tasks[0].ID, Fresh: tasks[0].Fresh}
	return change(ctx, r, inScope(ctx, onSchedule(ns, name), func(round *engine.Round) (Triggered, error) {
		return schedule.Audited(round, by, task.ScheduleTriggered, ns, name, func() (out Triggered, err error) {
			out.Accepted, out.Message, err = schedule.Fire(round, ns, name, call)
			return out, err
		})
	}))
}

// Schedule reads a schedule.
func (b *Broker) Schedule(ctx context.Context, shardID uint32, ns, name string) (*ScheduleView, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) (*ScheduleView, error) { return scheduleSeen(ctx, from, ns, name) })
}

// Schedules reads up to limit schedules behind a name, in the order of their names.
func (b *Broker) Schedules(ctx context.Context, shardID uint32, ns, behind string, limit int) (SchedulePage, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return SchedulePage{}, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) (SchedulePage, error) {
		return schedule.List(from, ns, task.ScopeOf(ctx), behind, limit), nil
	})
}

// ScheduleHistory reads up to limit entries of a ledger below a number, newest first; 0: from the newest.
func (b *Broker) ScheduleHistory(ctx context.Context, shardID uint32, ns, name string, below uint64, limit int) ([]*LedgerEntry, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) ([]*LedgerEntry, error) {
		if _, err := scheduleSeen(ctx, from, ns, name); err != nil {
			return nil, err
		}
		return schedule.History(from, ns, name, below, limit)
	})
}

// scheduleSeen reads a schedule, if it is there for the call.
func scheduleSeen(ctx context.Context, from store.Reader, ns, name string) (*ScheduleView, error) {
	v, err := schedule.Show(from, ns, name)
	if err == nil && !task.ScopeOf(ctx).Sees(v.Task.Queue) {
		return nil, task.NotFound("schedule", name)
	}
	return v, err
}
