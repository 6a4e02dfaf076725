package router

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/task"
)

// A schedule is in one shard. The system shard knows which one, by the schedule's name.

// Schedules creates, removes and triggers schedules, wherever their shards are led.
type Schedules struct {
	forward *forward.Forwarder
	queues  *enqueue.Directory
	tasks   *enqueue.Enqueuer
	log     *slog.Logger
}

// OnSchedule is a request about a schedule in a shard; 0: in its home.
func OnSchedule(shard uint32, ns, name string) broker.OnSchedule {
	return broker.OnSchedule{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Name: name}
}

// PutSchedule creates or replaces a schedule, or returns what that would do. The schedule must have its defaults filled in and be checked.
func (s *Schedules) PutSchedule(ctx context.Context, by task.Author, ns string, put broker.SchedulePut) (broker.SchedulePutDone,
	broker.Stamp, error) {
	name := put.Schedule.Name
	home, err := s.forward.ShardByName(ctx, &broker.AtHome{OnSchedule: OnSchedule(0, ns, name)})
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return broker.SchedulePutDone{}, broker.Stamp{}, err
	}
	if put.DryRun {
		return s.dryRunPut(ctx, ns, home, put)
	}
	if home == 0 { // where its tasks will be
		q, err := s.queues.Place(ctx, ns, put.Schedule.Task.Queue)
		if err != nil {
			return broker.SchedulePutDone{}, broker.Stamp{}, err
		}
		spec := put.Schedule.TickSpec()
		home = q.Home(&spec)
	}
	out, err := withScheduleVersion(ctx, s, ns, name, home, func(h schedules.Home) (broker.ScheduleIsPut, error) {
		put.Version = h.Version
		return broker.PutSchedule.Call(ctx, s.forward, broker.SchedulePutCall{OnShard: broker.OnShard{Shard: h.Shard, Namespace: ns},
			Authored: broker.Authored{By: by}, Put: put})
	})
	return out.Done, out.At, err
}

func (s *Schedules) dryRunPut(ctx context.Context, ns string, home uint32, put broker.SchedulePut) (broker.SchedulePutDone,
	broker.Stamp, error) {
	if home == 0 {
		shards := s.forward.Shards()
		if len(shards) == 0 {
			return broker.SchedulePutDone{}, broker.Stamp{}, task.Unavailable(time.Second, "schedule %q: there is no data shard yet",
				put.Schedule.Name)
		}
		home = shards[0]
	}
	out, err := broker.PutSchedule.Call(ctx, s.forward, broker.SchedulePutCall{OnShard: broker.OnShard{Shard: home, Namespace: ns},
		Put: put})
	return out.Done, out.At, err
}

// MaxChanges is how often a change is retried because another was faster.
const MaxChanges = 10

// withScheduleVersion registers a schedule's name and makes a call with the new version, again if another call was faster.
func withScheduleVersion[T any](ctx context.Context, s *Schedules, ns, name string, wanted uint32, run func(schedules.Home) (T,
	error)) (out T, err error) {
	for range MaxChanges {
		home, err := schedules.Register.Call(ctx, s.forward, schedules.Naming{Place: schedules.Place{Namespace: ns, Name: name},
			Shard: wanted})
		if err != nil {
			return out, err
		}
		out, err = run(home)
		if !errors.Is(err, broker.ErrScheduleRaced) {
			return out, err
		}
	}
	return out, task.Unavailable(time.Second, "schedule %q: too many concurrent changes", name)
}

// DeleteSchedule removes a schedule.
func (s *Schedules) DeleteSchedule(ctx context.Context, by task.Author, ns, name string) (broker.Stamp, error) {
	wanted, err := s.forward.ShardByName(ctx, &broker.AtHome{OnSchedule: OnSchedule(0, ns, name)})
	if err != nil {
		return broker.Stamp{}, err
	}
	var home schedules.Home
	out, err := withScheduleVersion(ctx, s, ns, name, wanted, func(h schedules.Home) (broker.ScheduleDeleted, error) {
		home = h
		return broker.DeleteSchedule.Call(ctx, s.forward, broker.ScheduleDeletion{OnSchedule: OnSchedule(h.Shard, ns, name),
			Authored: broker.Authored{By: by}, Version: h.Version})
	})
	if err == nil || errors.Is(err, task.ErrNotFound) && task.ScopeOf(ctx).All() { // otherwise it may exist for others
		if _, bad := schedules.Drop.Call(ctx, s.forward, schedules.Naming{Place: schedules.Place{Namespace: ns, Name: name},
			Version: home.Version}); bad != nil {
			s.log.Info("a deleted schedule's name stays registered until it is used again", "schedule", name, "error", bad)
		}
	}
	return out.At, err
}

// TriggerSchedule creates a task of a schedule now, and returns when it is created, whichever shard has its queue.
func (s *Schedules) TriggerSchedule(ctx context.Context, by task.Author, ns, name string, request task.ID) (broker.Accepted,
	broker.Stamp, error) {
	out, err := broker.TriggerSchedule.Call(ctx, s.forward,
		broker.ScheduleTrigger{AtHome: broker.AtHome{OnSchedule: OnSchedule(0, ns, name)},
			Authored: broker.Authored{By: by}, Request: request})
	if err != nil || out.Made.Message == nil {
		return out.Made.Accepted, out.At, err
	}
	got := s.tasks.Deliver(ctx, ns, []task.Spec{out.Made.Message.Spec}) // the sender delivers it too; it is the same request
	if got[0].Err == nil && got[0].KeyTaken {
		return broker.Accepted{}, out.At, broker.Overlaps(name, got[0].ID)
	}
	return got[0].Accepted, out.At, got[0].Err
}
