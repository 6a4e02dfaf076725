package gateway

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// fakeSchedules keeps schedules that nobody fires. Its ledger has what was triggered.
type fakeSchedules struct {
	*fake
	all    map[string]*broker.ScheduleView
	ledger map[string][]*broker.LedgerEntry
}

func newFakeSchedules(f *fake) *fakeSchedules {
	return &fakeSchedules{f, map[string]*broker.ScheduleView{}, map[string][]*broker.LedgerEntry{}}
}

func (f *fakeSchedules) find(name string) (*broker.ScheduleView, error) {
	if v := f.all[name]; v != nil {
		return v, nil
	}
	return nil, task.NotFound("schedule", name)
}

func (f *fakeSchedules) PutSchedule(_ context.Context, _ task.Author, _ string, put broker.SchedulePut) (done broker.SchedulePutDone, at broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, now := put.Schedule.Name, broker.TimeOf(time.Now())
	old := f.all[name]
	v := &broker.ScheduleView{Schedule: put.Schedule, ID: task.NewID(1, 7, 7), CreatedAt: now, UpdatedAt: now, Next: now.Add(time.Hour), Planned: now.Add(time.Minute)}
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
	return done, at, nil
}

func (f *fakeSchedules) DeleteSchedule(_ context.Context, _ task.Author, _, name string) (at broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.find(name)
	delete(f.all, name)
	return at, err
}

func (f *fakeSchedules) PauseSchedule(_ context.Context, _ task.Author, _, name, reason string) (*broker.ScheduleView, broker.Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(name)
	if err == nil {
		v.PausedAt, v.Reason, v.Next, v.Planned = broker.TimeOf(time.Now()), reason, 0, 0
	}
	return v, broker.Stamp{}, err
}

func (f *fakeSchedules) ResumeSchedule(_ context.Context, _ task.Author, _, name string) (*broker.ScheduleView, broker.Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(name)
	if err == nil {
		v.PausedAt, v.Reason = 0, ""
	}
	return v, broker.Stamp{}, err
}

func (f *fakeSchedules) TriggerSchedule(_ context.Context, _ task.Author, _, name string, request task.ID) (a broker.Accepted, at broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(name)
	if err != nil {
		return a, at, err
	}
	now := broker.TimeOf(time.Now())
	v.Last = &broker.LedgerEntry{Seq: uint64(len(f.ledger[name]) + 1), Planned: now.Add(-time.Second), Count: 1, At: now, Outcome: 3, Task: request}
	f.ledger[name] = append(f.ledger[name], v.Last)
	return broker.Accepted{ID: request, State: task.Ready}, at, nil
}

func (f *fakeSchedules) Schedule(_ context.Context, _, name string) (*broker.ScheduleView, broker.Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, err := f.find(name)
	return v, broker.Stamp{}, err
}

func (f *fakeSchedules) Schedules(_ context.Context, _, behind string, limit int) (page broker.SchedulePage, at []broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.all)) {
		if name <= behind {
			continue
		}
		if page.More = len(page.Schedules) == limit; page.More {
			break
		}
		page.Schedules = append(page.Schedules, f.all[name])
	}
	return page, nil, nil
}

func (f *fakeSchedules) ScheduleHistory(_ context.Context, _, name string, below uint64, limit int) (some []*broker.LedgerEntry, at broker.Stamp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.find(name)
	for _, e := range slices.Backward(f.ledger[name]) {
		if (below == 0 || e.Seq < below) && len(some) < limit {
			some = append(some, e)
		}
	}
	return some, at, err
}
