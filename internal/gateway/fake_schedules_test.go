package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fakeMoment is the stamp of responses that never change by themselves.
var fakeMoment = broker.Stamp{Shard: 1, Index: 1, Time: 1}

// fakeSchedules stores schedules that never fire. The history has what was triggered.
type fakeSchedules struct {
	*fake
	all     map[string]*broker.ScheduleView
	history map[string][]*broker.Tick
}

func newFakeSchedules(f *fake) *fakeSchedules {
	s := &fakeSchedules{f, map[string]*broker.ScheduleView{}, map[string][]*broker.Tick{}}
	s.answer(f.table())
	return s
}

func (f *fakeSchedules) find(name string) (*broker.ScheduleView, error) {
	if v := f.all[name]; v != nil {
		return v, nil
	}
	return nil, task.NotFound("schedule", name)
}

func (f *fakeSchedules) PutSchedule(_ context.Context, _ task.Author, _ string, put broker.SchedulePut) (done broker.SchedulePutDone,
	at broker.Stamp, err error) {
	if err := f.faults.ask(); err != nil {
		return done, at, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name, now := put.Schedule.Name, broker.TimeOf(time.Now())
	old := f.all[name]
	v := &broker.ScheduleView{Schedule: put.Schedule, ID: task.NewID(1, 7, 7), CreatedAt: now, UpdatedAt: now, Next: now.Add(time.Hour),
		Planned: now.Add(time.Minute)}
	done = broker.SchedulePutDone{Change: "created", Before: old, After: v}
	switch {
	case old != nil && put.Create:
		return broker.SchedulePutDone{}, at, &task.Error{Code: task.CodeConflict, Field: "name", Message: "name: another one exists"}
	case old != nil && old.Equal(&put.Schedule):
		done.Change, done.After = broker.ScheduleUnchanged, old
	case old != nil:
		done.Change = "updated"
	}
	if !put.DryRun {
		f.all[name] = done.After
	}
	return done, fakeMoment, nil
}

func (f *fakeSchedules) DeleteSchedule(_ context.Context, _ task.Author, _, name string) (at broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.find(name)
	delete(f.all, name)
	return fakeMoment, cmp.Or(err, f.faults.ask())
}

func (f *fakeSchedules) answer(to verbtest.Answers) {
	verbtest.On(to, broker.PauseSchedule, f.PauseSchedule)
	verbtest.On(to, broker.ResumeSchedule, f.ResumeSchedule)
	verbtest.On(to, broker.ShowSchedule, f.Schedule)
	verbtest.On(to, broker.ListSchedules, f.Schedules)
	verbtest.On(to, broker.ScheduleHistory, f.ScheduleHistory)
}

func (f *fakeSchedules) PauseSchedule(_ context.Context, q broker.ScheduleCommand) (broker.Shown[*broker.ScheduleView], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(q.Name)
	if err == nil {
		v.PausedAt, v.Reason, v.Next, v.Planned = broker.TimeOf(time.Now()), q.Reason, 0, 0
	}
	return broker.Shown[*broker.ScheduleView]{View: v, Stamped: broker.Stamped{At: fakeMoment}}, err
}

func (f *fakeSchedules) ResumeSchedule(_ context.Context, q broker.ScheduleCommand) (broker.Shown[*broker.ScheduleView], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(q.Name)
	if err == nil {
		v.PausedAt, v.Reason = 0, ""
	}
	return broker.Shown[*broker.ScheduleView]{View: v, Stamped: broker.Stamped{At: fakeMoment}}, err
}

func (f *fakeSchedules) TriggerSchedule(_ context.Context, _ task.Author, _, name string, request task.ID) (a broker.Accepted,
	at broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(name)
	if err != nil {
		return a, at, err
	}
	now := broker.TimeOf(time.Now())
	v.Last = &broker.Tick{Seq: uint64(len(f.history[name]) + 1), Planned: now.Add(-time.Second), Count: 1, At: now,
		Outcome: 3, Task: request}
	f.history[name] = append(f.history[name], v.Last)
	return broker.Accepted{ID: request, State: task.Ready}, fakeMoment, f.faults.ask()
}

func (f *fakeSchedules) Schedule(_ context.Context, q broker.AtHome) (broker.Shown[*broker.ScheduleView], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(q.Name)
	return broker.Shown[*broker.ScheduleView]{View: v, Stamped: broker.Stamped{At: fakeMoment}}, err
}

func (f *fakeSchedules) Schedules(_ context.Context, q broker.ScheduleList) (out broker.Paged[broker.SchedulePage], err error) {
	out.At = fakeMoment
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.all)) {
		if name <= q.After {
			continue
		}
		if out.Page.More = len(out.Page.Schedules) == q.Limit; out.Page.More {
			break
		}
		out.Page.Schedules = append(out.Page.Schedules, f.all[name])
	}
	return out, nil
}

func (f *fakeSchedules) ScheduleHistory(_ context.Context, q broker.ScheduleHistoryList) (out broker.ScheduleHistoryPage, err error) {
	out.At = fakeMoment
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.find(q.Name)
	for _, e := range slices.Backward(f.history[q.Name]) {
		if (q.Below == 0 || e.Seq < q.Below) && len(out.Entries) < q.Limit {
			out.Entries = append(out.Entries, e)
		}
	}
	return out, err
}
