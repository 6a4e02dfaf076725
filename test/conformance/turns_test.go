package conformance

import (
	"context"
	"sync/atomic"
	"time"
)

// turns is a door that is a different one for each call: ids, tokens, cursors and lists are passed between doors.
type turns struct {
	doors []door
	calls atomic.Int64
}

func (d *turns) next() door { return d.doors[int(d.calls.Add(1))%len(d.doors)] }

func (d *turns) Enqueue(ctx context.Context, s spec) (accepted, error) {
	return d.next().Enqueue(ctx, s)
}
func (d *turns) EnqueueMany(ctx context.Context, s []spec) ([]accepted, error) {
	return d.next().EnqueueMany(ctx, s)
}
func (d *turns) Get(ctx context.Context, id string) (view, error) { return d.next().Get(ctx, id) }
func (d *turns) WaitResult(ctx context.Context, id string, wait span) (view, error) {
	return d.next().WaitResult(ctx, id, wait)
}
func (d *turns) Cancel(ctx context.Context, id string) (view, error) { return d.next().Cancel(ctx, id) }
func (d *turns) Update(ctx context.Context, id string, e edit) (view, error) {
	return d.next().Update(ctx, id, e)
}
func (d *turns) Claim(ctx context.Context, c claimCall) ([]claim, error) {
	return d.next().Claim(ctx, c)
}
func (d *turns) Ack(ctx context.Context, h hold, r result) error { return d.next().Ack(ctx, h, r) }
func (d *turns) Fail(ctx context.Context, h hold, f failing) (settled, error) {
	return d.next().Fail(ctx, h, f)
}
func (d *turns) Extend(ctx context.Context, h hold, e extension) (time.Time, error) {
	return d.next().Extend(ctx, h, e)
}
func (d *turns) Release(ctx context.Context, h hold, delay span) (settled, error) {
	return d.next().Release(ctx, h, delay)
}
func (d *turns) Settle(ctx context.Context, items []settlement) ([]settled, error) {
	return d.next().Settle(ctx, items)
}
func (d *turns) Queue(ctx context.Context, name string) (queueInfo, error) {
	return d.next().Queue(ctx, name)
}
func (d *turns) PutQueue(ctx context.Context, name string, s settings) (queueInfo, error) {
	return d.next().PutQueue(ctx, name, s)
}
func (d *turns) DeleteQueue(ctx context.Context, name string) error {
	return d.next().DeleteQueue(ctx, name)
}
func (d *turns) Pause(ctx context.Context, name string, of pause) (queueInfo, error) {
	return d.next().Pause(ctx, name, of)
}
func (d *turns) Resume(ctx context.Context, name string, of pause) (queueInfo, error) {
	return d.next().Resume(ctx, name, of)
}
func (d *turns) Purge(ctx context.Context, name string) (int64, error) {
	return d.next().Purge(ctx, name)
}
func (d *turns) DeadGroups(ctx context.Context, queue string) ([]group, error) {
	return d.next().DeadGroups(ctx, queue)
}
func (d *turns) Replay(ctx context.Context, s selection) (counted, error) {
	return d.next().Replay(ctx, s)
}
func (d *turns) DiscardDead(ctx context.Context, s selection) (counted, error) {
	return d.next().DiscardDead(ctx, s)
}
func (d *turns) Retry(ctx context.Context, id string) (view, error)  { return d.next().Retry(ctx, id) }
func (d *turns) RunNow(ctx context.Context, id string) (view, error) { return d.next().RunNow(ctx, id) }
func (d *turns) Discard(ctx context.Context, id string) (view, error) {
	return d.next().Discard(ctx, id)
}

// Lists stay with the first door: the broker's cursor is not the gateway's.

func (d *turns) first() door { return d.doors[0] }

func (d *turns) List(ctx context.Context, f filter, p part) (page, error) {
	return d.first().List(ctx, f, p)
}
func (d *turns) Dead(ctx context.Context, f filter, p part) (page, error) {
	return d.first().Dead(ctx, f, p)
}
func (d *turns) Poisoned(ctx context.Context, f filter, p part) (page, error) {
	return d.first().Poisoned(ctx, f, p)
}
func (d *turns) Queues(ctx context.Context, p part) ([]string, string, error) {
	return d.first().Queues(ctx, p)
}
func (d *turns) PutSchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.next().PutSchedule(ctx, s)
}
func (d *turns) CreateSchedule(ctx context.Context, s schedule) (scheduleInfo, error) {
	return d.next().CreateSchedule(ctx, s)
}
func (d *turns) TrySchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.next().TrySchedule(ctx, s)
}
func (d *turns) Schedule(ctx context.Context, name string) (scheduleInfo, error) {
	return d.next().Schedule(ctx, name)
}
func (d *turns) Schedules(ctx context.Context, p part) ([]scheduleInfo, string, error) {
	return d.next().Schedules(ctx, p)
}
func (d *turns) DeleteSchedule(ctx context.Context, name string) error {
	return d.next().DeleteSchedule(ctx, name)
}
func (d *turns) PauseSchedule(ctx context.Context, name, reason string) (scheduleInfo, error) {
	return d.next().PauseSchedule(ctx, name, reason)
}
func (d *turns) ResumeSchedule(ctx context.Context, name string) (scheduleInfo, error) {
	return d.next().ResumeSchedule(ctx, name)
}
func (d *turns) Trigger(ctx context.Context, name string) (taskID, state string, err error) {
	return d.next().Trigger(ctx, name)
}
func (d *turns) History(ctx context.Context, name string, p part) ([]tick, string, error) {
	return d.next().History(ctx, name, p)
}
func (d *turns) MakeGroup(ctx context.Context, g groupSpec) (groupInfo, []accepted, error) {
	return d.next().MakeGroup(ctx, g)
}
func (d *turns) AddToGroup(ctx context.Context, id string, tasks []spec) ([]accepted, error) {
	return d.next().AddToGroup(ctx, id, tasks)
}
func (d *turns) Group(ctx context.Context, id string) (groupInfo, error) {
	return d.next().Group(ctx, id)
}
func (d *turns) Groups(ctx context.Context, p part) ([]groupInfo, string, error) {
	return d.next().Groups(ctx, p)
}
func (d *turns) Members(ctx context.Context, id string, p part) ([]groupMember, string, error) {
	return d.next().Members(ctx, id, p)
}
func (d *turns) CloseGroup(ctx context.Context, id string) (groupInfo, error) {
	return d.next().CloseGroup(ctx, id)
}
func (d *turns) CancelGroup(ctx context.Context, id string) (groupInfo, error) {
	return d.next().CancelGroup(ctx, id)
}
