package router

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// A schedule lives in one shard. Which one, the system shard knows by its name.

type homeArgs struct {
	Namespace, Name string
	Shard           uint32 // wanted
	Version         uint64
}

var (
	nameSchedule = onSystem("name-schedule", true, func(ctx context.Context, c Control, a homeArgs) (cluster.ScheduleHome, error) {
		return c.NameSchedule(ctx, a.Namespace, a.Name, a.Shard)
	})
	findSchedule = onSystem("find-schedule", true, func(ctx context.Context, c Control, a homeArgs) (cluster.ScheduleHome, error) {
		return c.ScheduleHome(ctx, a.Namespace, a.Name)
	})
	forgetSchedule = onSystem("forget-schedule", true, func(ctx context.Context, c Control, a homeArgs) (nothing, error) {
		return nothing{}, c.ForgetSchedule(ctx, a.Namespace, a.Name, a.Version)
	})
)

// scheduleArgs are what the calls on a shard's schedules take.
type scheduleArgs struct {
	By              task.Author
	Shard           uint32
	Namespace, Name string
	Put             broker.SchedulePut
	Version         uint64
	Reason          string
	Request         task.ID
	Behind          string
	Below           uint64
	Limit           int
}

type scheduleAnswer struct {
	Done    broker.SchedulePutDone
	View    *broker.ScheduleView
	Page    broker.SchedulePage
	Made    broker.Triggered
	Entries []*broker.LedgerEntry
	At      broker.Stamp
}

// All may be repeated: what was put, deleted, paused or triggered by a call is known by its version or its request.
var (
	putSchedule = onBroker("put-schedule", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.Done, out.At, err = b.PutSchedule(ctx, a.By, a.Shard, a.Namespace, a.Put)
		return err
	})
	deleteSchedule = onBroker("delete-schedule", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.At, err = b.DeleteSchedule(ctx, a.By, a.Shard, a.Namespace, a.Name, a.Version)
		return err
	})
	pauseSchedule = onBroker("pause-schedule", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.View, out.At, err = b.PauseSchedule(ctx, a.By, a.Shard, a.Namespace, a.Name, a.Reason)
		return err
	})
	resumeSchedule = onBroker("resume-schedule", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.View, out.At, err = b.ResumeSchedule(ctx, a.By, a.Shard, a.Namespace, a.Name)
		return err
	})
	triggerSchedule = onBroker("trigger-schedule", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.Made, out.At, err = b.TriggerSchedule(ctx, a.By, a.Shard, a.Namespace, a.Name, a.Request)
		return err
	})
	showSchedule = onBroker("schedule", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.View, out.At, err = b.Schedule(ctx, a.Shard, a.Namespace, a.Name)
		return err
	})
	listSchedules = onBroker("schedules", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.Page, out.At, err = b.Schedules(ctx, a.Shard, a.Namespace, a.Behind, a.Limit)
		return err
	})
	scheduleHistory = onBroker("schedule-history", true, func(ctx context.Context, b Broker, a *scheduleArgs, out *scheduleAnswer) (err error) {
		out.Entries, out.At, err = b.ScheduleHistory(ctx, a.Shard, a.Namespace, a.Name, a.Below, a.Limit)
		return err
	})
)

// homeOf finds where a schedule lives. A name that the system shard does not know may have been lost with it: then the shards
// themselves are asked.
func (r *Router) homeOf(ctx context.Context, ns, name string) (uint32, error) {
	ctx = task.WithoutScope(ctx) // whoever sees it or not, there must be one of a name
	home, err := call(ctx, r, findSchedule, systemShard, homeArgs{Namespace: ns, Name: name})
	if !errors.Is(err, task.ErrNotFound) {
		return home.Shard, err
	}
	shards := r.cfg.Map.Shards()
	errs := r.eachShard(shards, func(_ int, shard uint32) error {
		_, err := call(ctx, r, showSchedule, shard, scheduleArgs{Shard: shard, Namespace: ns, Name: name})
		return err
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

// PutSchedule makes a schedule what a caller says, or tells what that would do. The schedule is filled and checked.
func (r *Router) PutSchedule(ctx context.Context, by task.Author, ns string, put broker.SchedulePut) (broker.SchedulePutDone, broker.Stamp, error) {
	if put.IfETag != "" {
		if err := r.knows(task.FieldIfETag); err != nil {
			return broker.SchedulePutDone{}, broker.Stamp{}, err
		}
	}
	name := put.Schedule.Name
	home, err := r.homeOf(ctx, ns, name)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return broker.SchedulePutDone{}, broker.Stamp{}, err
	}
	if put.DryRun {
		return r.dryPut(ctx, ns, home, put)
	}
	if home == 0 { // where its tasks will be
		q, err := r.Directory().Place(ctx, ns, put.Schedule.Task.Queue)
		if err != nil {
			return broker.SchedulePutDone{}, broker.Stamp{}, err
		}
		spec := put.Schedule.TickSpec()
		home = q.Home(&spec)
	}
	out, err := r.scheduleRace(ctx, ns, name, home, func(h cluster.ScheduleHome) (scheduleAnswer, error) {
		put.Version = h.Version
		return call(ctx, r, putSchedule, h.Shard, scheduleArgs{By: by, Shard: h.Shard, Namespace: ns, Put: put})
	})
	return out.Done, out.At, err
}

func (r *Router) dryPut(ctx context.Context, ns string, home uint32, put broker.SchedulePut) (broker.SchedulePutDone, broker.Stamp, error) {
	if home == 0 {
		shards := r.cfg.Map.Shards()
		if len(shards) == 0 {
			return broker.SchedulePutDone{}, broker.Stamp{}, task.Unavailable(time.Second, "schedule %q: there is no data shard yet", put.Schedule.Name)
		}
		home = shards[0]
	}
	out, err := call(ctx, r, putSchedule, home, scheduleArgs{Shard: home, Namespace: ns, Put: put})
	return out.Done, out.At, err
}

// scheduleRace registers a schedule's name and makes a call with the new version, again if another call was faster.
func (r *Router) scheduleRace(ctx context.Context, ns, name string, wanted uint32, run func(cluster.ScheduleHome) (scheduleAnswer, error)) (out scheduleAnswer, err error) {
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
	return out, task.Unavailable(time.Second, "schedule %q: others change it all the time", name)
}

// DeleteSchedule removes a schedule.
func (r *Router) DeleteSchedule(ctx context.Context, by task.Author, ns, name string) (broker.Stamp, error) {
	wanted, err := r.homeOf(ctx, ns, name)
	if err != nil {
		return broker.Stamp{}, err
	}
	var home cluster.ScheduleHome
	out, err := r.scheduleRace(ctx, ns, name, wanted, func(h cluster.ScheduleHome) (scheduleAnswer, error) {
		home = h
		return call(ctx, r, deleteSchedule, h.Shard, scheduleArgs{By: by, Shard: h.Shard, Namespace: ns, Name: name, Version: h.Version})
	})
	if err == nil || errors.Is(err, task.ErrNotFound) && task.ScopeOf(ctx).All() { // else it may be there for others
		if _, bad := call(ctx, r, forgetSchedule, systemShard, homeArgs{Namespace: ns, Name: name, Version: home.Version}); bad != nil {
			r.log.Info("a deleted schedule's name stays registered until it is used again", "schedule", name, "error", bad)
		}
	}
	return out.At, err
}

// atHome runs a call where a schedule lives.
func (r *Router) atHome(ctx context.Context, m *method[scheduleArgs, scheduleAnswer], a scheduleArgs) (out scheduleAnswer, err error) {
	if a.Shard, err = r.homeOf(ctx, a.Namespace, a.Name); err != nil {
		return out, err
	}
	return call(ctx, r, m, a.Shard, a)
}

// PauseSchedule lets a schedule rest.
func (r *Router) PauseSchedule(ctx context.Context, by task.Author, ns, name, reason string) (*broker.ScheduleView, broker.Stamp, error) {
	out, err := r.atHome(ctx, pauseSchedule, scheduleArgs{By: by, Namespace: ns, Name: name, Reason: reason})
	return out.View, out.At, err
}

// ResumeSchedule lets a schedule go on.
func (r *Router) ResumeSchedule(ctx context.Context, by task.Author, ns, name string) (*broker.ScheduleView, broker.Stamp, error) {
	out, err := r.atHome(ctx, resumeSchedule, scheduleArgs{By: by, Namespace: ns, Name: name})
	return out.View, out.At, err
}

// Schedule reads a schedule.
func (r *Router) Schedule(ctx context.Context, ns, name string) (*broker.ScheduleView, broker.Stamp, error) {
	out, err := r.atHome(ctx, showSchedule, scheduleArgs{Namespace: ns, Name: name})
	return out.View, out.At, err
}

// ScheduleHistory reads up to limit entries of a ledger below a number, newest first; 0: from the newest.
func (r *Router) ScheduleHistory(ctx context.Context, ns, name string, below uint64, limit int) ([]*broker.LedgerEntry, broker.Stamp, error) {
	out, err := r.atHome(ctx, scheduleHistory, scheduleArgs{Namespace: ns, Name: name, Below: below, Limit: limit})
	return out.Entries, out.At, err
}

// TriggerSchedule makes a task of a schedule now, and answers when it is made, wherever its queue lies.
func (r *Router) TriggerSchedule(ctx context.Context, by task.Author, ns, name string, request task.ID) (broker.Accepted, broker.Stamp, error) {
	out, err := r.atHome(ctx, triggerSchedule, scheduleArgs{By: by, Namespace: ns, Name: name, Request: request})
	if err != nil || out.Made.Message == nil {
		return out.Made.Accepted, out.At, err
	}
	got := r.Deliver(ctx, ns, []task.Spec{out.Made.Message.Spec}) // the sender comes with it too; it is the same request
	if got[0].Err == nil && got[0].Met {
		return broker.Accepted{}, out.At, broker.Overlaps(name, got[0].ID)
	}
	return got[0].Accepted, out.At, got[0].Err
}

// Schedules reads up to limit schedules behind a name, in the order of their names, from all shards, each with its stamp.
func (r *Router) Schedules(ctx context.Context, ns, behind string, limit int) (page broker.SchedulePage, at []broker.Stamp, err error) {
	shards := r.cfg.Map.Shards()
	pages := make([]broker.SchedulePage, len(shards))
	at = make([]broker.Stamp, len(shards))
	errs := r.eachShard(shards, func(i int, shard uint32) error {
		out, err := call(ctx, r, listSchedules, shard, scheduleArgs{Shard: shard, Namespace: ns, Behind: behind, Limit: limit})
		pages[i], at[i] = out.Page, out.At
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return page, at, firstRefusal(errs, err)
	}
	page.Schedules, page.More = merged(pages, limit, func(p broker.SchedulePage) ([]*broker.ScheduleView, bool) { return p.Schedules, p.More },
		func(a, b *broker.ScheduleView) int { return cmp.Compare(a.Name, b.Name) })
	return page, at, nil
}

// Deliver enqueues tasks wherever their queues lie, each answered by itself.
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
