package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// ScheduleSpec describes a task that is enqueued repeatedly, and when. See docs/schedules.md.
type ScheduleSpec struct {
	Name string // letters, digits and . _ - :

	// Either Cron or Every is set. Cron is an expression of five fields, or six with seconds first, or a shorthand such as @daily. It is
	// evaluated in TimeZone, an IANA name ("": UTC). Every is an interval in whole seconds.
	Cron     string
	TimeZone string
	Every    time.Duration

	Jitter  time.Duration // each tick is delayed by a random part of it; up to 24 h
	Missed  Missed
	Overlap Overlap
	Owner   string // where the schedule comes from, such as a file in a repository

	// Task is what each tick enqueues, with Options. These can't set a run time, an idempotency key or a request id.
	Task    pawl.Args
	Options []pawl.Option
}

// Pause says since when something is paused, and why.
type Pause struct {
	At     time.Time
	Reason string
	By     string // as they called themselves; "": not known
}

// List iterates over all schedules, by name.
func (a Schedules) List(ctx context.Context) iter.Seq2[*Schedule, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Schedule], error) {
		return a.ListPage(ctx, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of schedules.
func (a Schedules) ListPage(ctx context.Context, page pawltype.PageRequest) (pawltype.Page[*Schedule], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).ListSchedules, &pawlv1.ListSchedulesRequest{
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	return pageOf(scheduleOf, resp, err, "list schedules")
}

// Get returns a schedule, or ErrNotFound if there is none.
func (a Schedules) Get(ctx context.Context, name string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).GetSchedule, &pawlv1.GetScheduleRequest{Name: name})
	return scheduleAnswer("schedule", name, resp.GetSchedule(), err)
}

// Put creates a schedule, or updates it to match s. If nothing differs, nothing changes. A schedule whose times don't change keeps its next
// tick.
func (a Schedules) Put(ctx context.Context, s ScheduleSpec) (*ScheduleChange, error) {
	return a.put(ctx, "put schedule", s, &pawlv1.PutScheduleRequest{})
}

// PutIfMatch is Put if the schedule exists and still has this ETag. Otherwise the schedule was changed since it was read, and PutIfMatch
// returns ErrConflict unless it already matches s.
func (a Schedules) PutIfMatch(ctx context.Context, etag string, s ScheduleSpec) (*ScheduleChange, error) {
	return a.put(ctx, "put schedule", s, &pawlv1.PutScheduleRequest{IfEtag: convert.Text(etag)})
}

// Create is Put for a new schedule. If a different schedule of this name exists, Create returns ErrConflict.
func (a Schedules) Create(ctx context.Context, s ScheduleSpec) (*ScheduleChange, error) {
	return a.put(ctx, "create schedule", s, &pawlv1.PutScheduleRequest{CreateOnly: true})
}

// Preview returns what Put would do, without changing anything.
func (a Schedules) Preview(ctx context.Context, s ScheduleSpec) (*ScheduleChange, error) {
	return a.put(ctx, "try schedule", s, &pawlv1.PutScheduleRequest{DryRun: true})
}

func (a Schedules) put(ctx context.Context, what string, s ScheduleSpec, req *pawlv1.PutScheduleRequest) (*ScheduleChange, error) {
	spec, err := s.proto()
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, s.Name, err)
	}
	req.Spec = spec
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).PutSchedule, req)
	return answer(scheduleChangeOf, resp, err, "%s %q", what, s.Name)
}

// Delete removes a schedule and its history. Tasks that its ticks enqueued are kept.
func (a Schedules) Delete(ctx context.Context, name string) error {
	_, err := operate(ctx, a.calls, false, pawlv1.NewScheduleServiceClient(a.rpc).DeleteSchedule, &pawlv1.DeleteScheduleRequest{
		Name: name})
	return wrap(err, "delete schedule %q", name)
}

// Pause lets ticks pass without enqueueing tasks. They are recorded in the history when the schedule is resumed.
func (a Schedules) Pause(ctx context.Context, name string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).PauseSchedule, &pawlv1.PauseScheduleRequest{Name: name})
	return scheduleAnswer("pause schedule", name, resp.GetSchedule(), err)
}

// Resume ends the pause of a schedule. It is not an error if the schedule is not paused.
func (a Schedules) Resume(ctx context.Context, name string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).ResumeSchedule,
		&pawlv1.ResumeScheduleRequest{Name: name})
	return scheduleAnswer("resume schedule", name, resp.GetSchedule(), err)
}

// Trigger enqueues the schedule's task now, in addition to its ticks. It also works while the schedule is paused.
func (a Schedules) Trigger(ctx context.Context, name string) (*pawl.Ref, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("request id: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).TriggerSchedule,
		&pawlv1.TriggerScheduleRequest{Name: name,
			RequestId: new(request.String())})
	if err != nil {
		return nil, fmt.Errorf("trigger schedule %q: %w", name, err)
	}
	ref := a.client.Ref(resp.GetTaskId())
	ref.State = convert.State(resp.GetState())
	return ref, nil
}

// History iterates over the history of a schedule's ticks, newest first. The last 1,000 entries are kept.
func (a Schedules) History(ctx context.Context, name string) iter.Seq2[*Tick, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Tick], error) {
		return a.HistoryPage(ctx, name, pawltype.PageRequest{Cursor: cursor})
	})
}

// HistoryPage returns one page of a schedule's history.
func (a Schedules) HistoryPage(ctx context.Context, name string, page pawltype.PageRequest) (pawltype.Page[*Tick], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).ListScheduleHistory,
		&pawlv1.ListScheduleHistoryRequest{Name: name, Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	return pageOf(tickOf, resp, err, "history of schedule %q", name)
}

func scheduleAnswer(what, name string, p *pawlv1.Schedule, err error) (*Schedule, error) {
	return answer(scheduleOf, p, err, "%s %q", what, name)
}

// proto encodes the spec.
func (s ScheduleSpec) proto() (*pawlv1.ScheduleSpec, error) {
	missed, err := convert.Number[pawlv1.Missed]("missed", s.Missed, missedWords, "once, skip or all")
	if err != nil {
		return nil, err
	}
	overlap, err := convert.Number[pawlv1.Overlap]("overlap", s.Overlap, overlapWords, "allow or skip")
	if err != nil {
		return nil, err
	}
	if s.Task == nil {
		return nil, convert.Invalid("task", "is nil")
	}
	spec, err := spec.Of(s.Task, s.Options) // every tick makes its own request
	if err != nil {
		return nil, convert.FieldIn("task", err) // names the field as the broker does
	}
	return &pawlv1.ScheduleSpec{Name: s.Name, Cron: convert.Text(s.Cron), TimeZone: convert.Text(s.TimeZone),
		Every: convert.Duration(s.Every), Jitter: convert.Duration(s.Jitter), Missed: missed, Overlap: overlap,
		Owner: convert.Text(s.Owner), Task: spec}, nil
}

func pauseOf(p *pawlv1.Schedule) *Pause {
	if !p.GetPaused() {
		return nil
	}
	return &Pause{At: convert.Time(p.GetPausedAt()), Reason: p.GetPausedReason(), By: p.GetPausedBy()}
}
