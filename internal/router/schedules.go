package router

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A schedule is in one shard. The system shard knows which one, by the schedule's name.

type homeArgs struct {
	Namespace, Name string
	Shard           uint32 // wanted
	Version         uint64
}

var (
	nameSchedule = onSystem("name-schedule", true, func(ctx context.Context, c Control, a homeArgs) (schedules.Home, error) {
		return c.NameSchedule(ctx, a.Namespace, a.Name, a.Shard)
	})
	findSchedule = onSystem("find-schedule", true, func(ctx context.Context, c Control, a homeArgs) (schedules.Home, error) {
		return c.ScheduleHome(ctx, a.Namespace, a.Name)
	})
	forgetSchedule = onSystem("forget-schedule", true, func(ctx context.Context, c Control, a homeArgs) (nothing, error) {
		return nothing{}, c.ForgetSchedule(ctx, a.Namespace, a.Name, a.Version)
	})
)

// shardByName finds the shard of a schedule. A name that the system shard does not know may have been lost with it: then the shards themselves
// are asked.
func (r *Router) shardByName(ctx context.Context, of verb.ByName) (uint32, error) {
	ctx = task.WithoutScope(ctx) // whether the caller may see it or not, names are unique
	ns, name := of.ObjectName()
	home, err := call(ctx, r, findSchedule, systemShard, homeArgs{Namespace: ns, Name: name})
	if !errors.Is(err, task.ErrNotFound) {
		return home.Shard, err
	}
	shards := r.cfg.Map.Shards()
	errs := r.eachShard(shards, func(_ int, shard uint32) error {
		return r.atLeader(ctx, broker.ShowSchedule.Make(broker.AtHome{OnSchedule: onSchedule(shard, ns, name)}))
	})
	for i, bad := range errs {
		if bad == nil {
			return shards[i], nil
		}
		if !errors.Is(bad, task.ErrNotFound) {
			err = bad
		}
	}
	return 0, err
}

func onSchedule(shard uint32, ns, name string) broker.OnSchedule {
	return broker.OnSchedule{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Name: name}
}

// PutSchedule creates or replaces a schedule, or returns what that would do. The schedule must have its defaults filled in and be checked.
func (r *Router) PutSchedule(ctx context.Context, by task.Author, ns string, put broker.SchedulePut) (broker.SchedulePutDone, broker.Stamp, error) {
	if put.IfETag != "" {
		if err := r.requireLevel(task.FieldIfETag); err != nil {
			return broker.SchedulePutDone{}, broker.Stamp{}, err
		}
	}
	name := put.Schedule.Name
	home, err := r.shardByName(ctx, &broker.AtHome{OnSchedule: onSchedule(0, ns, name)})
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return broker.SchedulePutDone{}, broker.Stamp{}, err
	}
	if put.DryRun {
		return r.dryRunPut(ctx, ns, home, put)
	}
	if home == 0 { // where its tasks will be
		q, err := r.Directory().Place(ctx, ns, put.Schedule.Task.Queue)
		if err != nil {
			return broker.SchedulePutDone{}, broker.Stamp{}, err
		}
		spec := put.Schedule.TickSpec()
		home = q.Home(&spec)
	}
	out, err := withScheduleVersion(ctx, r, ns, name, home, func(h schedules.Home) (broker.ScheduleIsPut, error) {
		put.Version = h.Version
		return broker.PutSchedule.Call(ctx, r, broker.SchedulePutCall{OnShard: broker.OnShard{Shard: h.Shard, Namespace: ns}, Authored: broker.Authored{By: by}, Put: put})
	})
	return out.Done, out.At, err
}

func (r *Router) dryRunPut(ctx context.Context, ns string, home uint32, put broker.SchedulePut) (broker.SchedulePutDone, broker.Stamp, error) {
	if home == 0 {
		shards := r.cfg.Map.Shards()
		if len(shards) == 0 {
			return broker.SchedulePutDone{}, broker.Stamp{}, task.Unavailable(time.Second, "schedule %q: there is no data shard yet", put.Schedule.Name)
		}
		home = shards[0]
	}
	out, err := broker.PutSchedule.Call(ctx, r, broker.SchedulePutCall{OnShard: broker.OnShard{Shard: home, Namespace: ns}, Put: put})
	return out.Done, out.At, err
}

// withScheduleVersion registers a schedule's name and makes a call with the new version, again if another call was faster.
func withScheduleVersion[T any](ctx context.Context, r *Router, ns, name string, wanted uint32, run func(schedules.Home) (T, error)) (out T, err error) {
	for range maxChanges {
		home, err := call(ctx, r, nameSchedule, systemShard, homeArgs{Namespace: ns, Name: name, Shard: wanted})
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
func (r *Router) DeleteSchedule(ctx context.Context, by task.Author, ns, name string) (broker.Stamp, error) {
	wanted, err := r.shardByName(ctx, &broker.AtHome{OnSchedule: onSchedule(0, ns, name)})
	if err != nil {
		return broker.Stamp{}, err
	}
	var home schedules.Home
	out, err := withScheduleVersion(ctx, r, ns, name, wanted, func(h schedules.Home) (broker.ScheduleDeleted, error) {
		home = h
		return broker.DeleteSchedule.Call(ctx, r, broker.ScheduleDeletion{OnSchedule: onSchedule(h.Shard, ns, name), Authored: broker.Authored{By: by}, Version: h.Version})
	})
	if err == nil || errors.Is(err, task.ErrNotFound) && task.ScopeOf(ctx).All() { // otherwise it may exist for others
		if _, bad := call(ctx, r, forgetSchedule, systemShard, homeArgs{Namespace: ns, Name: name, Version: home.Version}); bad != nil {
			r.log.Info("a deleted schedule's name stays registered until it is used again", "schedule", name, "error", bad)
		}
	}
	return out.At, err
}

// TriggerSchedule creates a task of a schedule now, and returns when it is created, whichever shard has its queue.
func (r *Router) TriggerSchedule(ctx context.Context, by task.Author, ns, name string, request task.ID) (broker.Accepted, broker.Stamp, error) {
	out, err := broker.TriggerSchedule.Call(ctx, r, broker.ScheduleTrigger{AtHome: broker.AtHome{OnSchedule: onSchedule(0, ns, name)}, Authored: broker.Authored{By: by}, Request: request})
	if err != nil || out.Made.Message == nil {
		return out.Made.Accepted, out.At, err
	}
	got := r.Deliver(ctx, ns, []task.Spec{out.Made.Message.Spec}) // the sender delivers it too; it is the same request
	if got[0].Err == nil && got[0].KeyTaken {
		return broker.Accepted{}, out.At, broker.Overlaps(name, got[0].ID)
	}
	return got[0].Accepted, out.At, got[0].Err
}

// Deliver enqueues tasks wherever their queues are, each with its own result.
func (r *Router) Deliver(ctx context.Context, ns string, specs []task.Spec) []broker.Enqueued {
	out := make([]broker.Enqueued, len(specs))
	parts := map[uint32][]int{}
	for i := range specs {
		q, err := r.Directory().Place(ctx, ns, specs[i].Queue)
		if err != nil {
			out[i].Err = err
			continue
		}
		home := q.Home(&specs[i])
		parts[home] = append(parts[home], i)
	}
	var calls sync.WaitGroup
	for shard, index := range parts {
		calls.Go(func() {
			some := make([]task.Spec, len(index))
			for n, i := range index {
				some[n] = specs[i]
			}
			got, _, err := r.Enqueue(ctx, shard, ns, some)
			for n, i := range index {
				if err != nil {
					out[i].Err = err
				} else {
					out[i] = got[n]
				}
			}
		})
	}
	calls.Wait()
	return out
}
