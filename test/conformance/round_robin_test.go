package conformance

import (
	"context"
	"sync/atomic"
	"time"
)

// roundRobin is an API that is a different one for each call: ids, tokens, cursors and lists are passed between APIs.
type roundRobin struct {
	apis  []api
	calls atomic.Int64
}

func (d *roundRobin) next() api { return d.apis[int(d.calls.Add(1))%len(d.apis)] }

func (d *roundRobin) Enqueue(ctx context.Context, s spec) (accepted, error) {
	return d.next().Enqueue(ctx, s)
}
func (d *roundRobin) EnqueueMany(ctx context.Context, s []spec) ([]accepted, error) {
	return d.next().EnqueueMany(ctx, s)
}
func (d *roundRobin) Get(ctx context.Context, id string) (view, error) { return d.next().Get(ctx, id) }
func (d *roundRobin) WaitResult(ctx context.Context, id string, wait span) (view, error) {
	return d.next().WaitResult(ctx, id, wait)
}
func (d *roundRobin) Cancel(ctx context.Context, id string) (view, error) {
	return d.next().Cancel(ctx, id)
}
func (d *roundRobin) Update(ctx context.Context, id string, e edit) (view, error) {
	return d.next().Update(ctx, id, e)
}
func (d *roundRobin) Claim(ctx context.Context, c claimCall) ([]claim, error) {
	return d.next().Claim(ctx, c)
}
func (d *roundRobin) Ack(ctx context.Context, h hold, r result) error { return d.next().Ack(ctx, h, r) }
func (d *roundRobin) Fail(ctx context.Context, h hold, f failing) (settled, error) {
	return d.next().Fail(ctx, h, f)
}
func (d *roundRobin) Extend(ctx context.Context, h hold, e extension) (time.Time, error) {
	return d.next().Extend(ctx, h, e)
}
func (d *roundRobin) Release(ctx context.Context, h hold, delay span) (settled, error) {
	return d.next().Release(ctx, h, delay)
}
func (d *roundRobin) Settle(ctx context.Context, items []settlement) ([]settled, error) {
	return d.next().Settle(ctx, items)
}
func (d *roundRobin) Queue(ctx context.Context, name string) (queueInfo, error) {
	return d.next().Queue(ctx, name)
}
func (d *roundRobin) PutQueue(ctx context.Context, name string, s settings) (queueInfo, error) {
	return d.next().PutQueue(ctx, name, s)
}
func (d *roundRobin) DeleteQueue(ctx context.Context, name string) error {
	return d.next().DeleteQueue(ctx, name)
}
func (d *roundRobin) Pause(ctx context.Context, name string, of pause) (queueInfo, error) {
	return d.next().Pause(ctx, name, of)
}
func (d *roundRobin) Resume(ctx context.Context, name string, of pause) (queueInfo, error) {
	return d.next().Resume(ctx, name, of)
}
func (d *roundRobin) Purge(ctx context.Context, name string) (int64, error) {
	return d.next().Purge(ctx, name)
}
func (d *roundRobin) DeadGroups(ctx context.Context, queue string) ([]group, error) {
	return d.next().DeadGroups(ctx, queue)
}
func (d *roundRobin) Retry(ctx context.Context, id string) (view, error) {
	return d.next().Retry(ctx, id)
}
func (d *roundRobin) RunNow(ctx context.Context, id string) (view, error) {
	return d.next().RunNow(ctx, id)
}
func (d *roundRobin) Discard(ctx context.Context, id string) (view, error) {
	return d.next().Discard(ctx, id)
}

// Lists stay with the first API: the broker's cursor is not the gateway's.

func (d *roundRobin) first() api { return d.apis[0] }

func (d *roundRobin) List(ctx context.Context, f filter, p part) (page, error) {
	return d.first().List(ctx, f, p)
}
func (d *roundRobin) Dead(ctx context.Context, f filter, p part) (page, error) {
	return d.first().Dead(ctx, f, p)
}
func (d *roundRobin) Poisoned(ctx context.Context, f filter, p part) (page, error) {
	return d.first().Poisoned(ctx, f, p)
}
func (d *roundRobin) Queues(ctx context.Context, p part) ([]string, string, error) {
	return d.first().Queues(ctx, p)
}
func (d *roundRobin) PutSchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.next().PutSchedule(ctx, s)
}
func (d *roundRobin) CreateSchedule(ctx context.Context, s schedule) (scheduleInfo, error) {
	return d.next().CreateSchedule(ctx, s)
}
func (d *roundRobin) TrySchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.next().TrySchedule(ctx, s)
}
func (d *roundRobin) Schedule(ctx context.Context, name string) (scheduleInfo, error) {
	return d.next().Schedule(ctx, name)
}
func (d *roundRobin) Schedules(ctx context.Context, p part) ([]scheduleInfo, string, error) {
	return d.next().Schedules(ctx, p)
}
func (d *roundRobin) DeleteSchedule(ctx context.Context, name string) error {
	return d.next().DeleteSchedule(ctx, name)
}
func (d *roundRobin) PauseSchedule(ctx context.Context, name, reason string) (scheduleInfo, error) {
	return d.next().PauseSchedule(ctx, name, reason)
}
func (d *roundRobin) ResumeSchedule(ctx context.Context, name string) (scheduleInfo, error) {
	return d.next().ResumeSchedule(ctx, name)
}
func (d *roundRobin) Trigger(ctx context.Context, name string) (taskID, state string, err error) {
	return d.next().Trigger(ctx, name)
}
func (d *roundRobin) History(ctx context.Context, name string, p part) ([]tick, string, error) {
	return d.next().History(ctx, name, p)
}
func (d *roundRobin) MakeGroup(ctx context.Context, g groupSpec) (groupInfo, []accepted, error) {
	return d.next().MakeGroup(ctx, g)
}
func (d *roundRobin) AddToGroup(ctx context.Context, id string, tasks []spec) ([]accepted, error) {
	return d.next().AddToGroup(ctx, id, tasks)
}
func (d *roundRobin) Group(ctx context.Context, id string) (groupInfo, error) {
	return d.next().Group(ctx, id)
}
func (d *roundRobin) Groups(ctx context.Context, p part) ([]groupInfo, string, error) {
	return d.next().Groups(ctx, p)
}
func (d *roundRobin) Members(ctx context.Context, id string, p part) ([]groupMember, string, error) {
	return d.next().Members(ctx, id, p)
}
func (d *roundRobin) CloseGroup(ctx context.Context, id string) (groupInfo, error) {
	return d.next().CloseGroup(ctx, id)
}
func (d *roundRobin) CancelGroup(ctx context.Context, id string) (groupInfo, error) {
	return d.next().CancelGroup(ctx, id)
}
