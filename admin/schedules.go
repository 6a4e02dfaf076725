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

// Missed says what happens to ticks that could not fire within a minute of their time.
type Missed string

// The choices for missed ticks.
const (
	MissedOnce Missed = "once" // one task for all of them (default)
	MissedSkip Missed = "skip" // none
	MissedAll  Missed = "all"  // one task each, for the newest 1,000 at most
)

// Overlap says what happens to a tick while the task of an earlier tick has not ended.
type Overlap string

// The choices for overlapping ticks.
const (
	OverlapAllow Overlap = "allow" // the default
	OverlapSkip  Overlap = "skip"
)

// Schedule is everything the broker knows about a schedule.
type Schedule struct {
	ID       string // changes if the schedule is deleted and created again
	Name     string
	Cron     string
	TimeZone string
	Every    time.Duration
	Jitter   time.Duration
	Missed   Missed
	Overlap  Overlap
	Owner    string
	Task     ScheduledTask

	CreatedAt time.Time
	UpdatedAt time.Time
	NextRunAt time.Time   // zero while it is paused
	PlannedAt time.Time   // NextRunAt without its jitter
	Coming    []time.Time // up to four ticks after PlannedAt; not in lists, nor while paused
	Pause     *Pause      // nil: not paused
	Last      *Tick       // the newest history entry; nil: none
	InWords   string      // when it fires, in English, in TimeZone: "At 09:30, Monday to Friday"
	ETag      string      // changes with whatever Put can change
}

// ScheduledTask is the task that every tick enqueues.
type ScheduledTask struct {
	Type        string
	Payload     []byte
	ContentType string
	Queue       string
	Priority    pawltype.Priority
	MaxAttempts int                   // 0: the queue's
	Retry       *pawltype.RetryPolicy // nil: the queue's
	Timeout     time.Duration         // of one run
	ExpiresIn   time.Duration         // discarded unless started within this time
	Retention   *time.Duration        // nil: the queue's
	Key         string
	Unique      *pawltype.UniqueOpts // nil: no unique key
	Cost        int
	Tags        []string
	Headers     map[string]string
	Then        []ScheduledTask // follow-up tasks

	// Set for follow-up tasks only.
	In             time.Duration
	At             time.Time
	IdempotencyKey string
	IdempotencyTTL time.Duration
}

// Pause says since when something is paused, and why.
type Pause struct {
	At     time.Time
	Reason string
	By     string // as they called themselves; "": not known
}

// Tick is an entry in a schedule's history: one tick, or several that were skipped for the same reason.
type Tick struct {
	Seq       int64
	PlannedAt time.Time // of several, the first; zero for a trigger
	Until     time.Time // of several, the last
	Count     int       // number of ticks; 100 means 100 or more
	DecidedAt time.Time
	Outcome   TickOutcome
	Reason    string        // why it was skipped: missed, paused, overlap, queue_full and others
	TaskID    string        // its task, or the task that it overlapped; "": on its way to another shard
	Late      time.Duration // from PlannedAt to DecidedAt
}

// TickOutcome is the outcome of a tick.
type TickOutcome string

// The outcomes of ticks.
const (
	TickFired     TickOutcome = "fired"
	TickCaughtUp  TickOutcome = "caught_up" // fired late, after it was missed
	TickTriggered TickOutcome = "triggered" // by Trigger
	TickSkipped   TickOutcome = "skipped"
)

// ScheduleChange is the result of Put, Create or Preview.
type ScheduleChange struct {
	Change   string // "created", "updated", "unchanged"
	Schedule *Schedule
	Before   *Schedule // nil: it did not exist
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
	if err != nil {
		return pawltype.Page[*Schedule]{}, fmt.Errorf("list schedules: %w", err)
	}
	return convert.Page(resp, scheduleOf), nil
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
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, s.Name, err)
	}
	out := &ScheduleChange{Change: resp.GetChange(), Schedule: scheduleOf(resp.GetSchedule())}
	if resp.GetBefore() != nil {
		out.Before = scheduleOf(resp.GetBefore())
	}
	return out, nil
}

// Delete removes a schedule and its history. Tasks that its ticks enqueued are kept.
func (a Schedules) Delete(ctx context.Context, name string) error {
	if _, err := operate(ctx, a.calls, false, pawlv1.NewScheduleServiceClient(a.rpc).DeleteSchedule, &pawlv1.DeleteScheduleRequest{
		Name: name}); err != nil {
		return fmt.Errorf("delete schedule %q: %w", name, err)
	}
	return nil
}

// Pause lets ticks pass without enqueueing tasks. They are recorded in the history when the schedule is resumed.
func (a Schedules) Pause(ctx context.Context, name, reason string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).PauseSchedule, &pawlv1.PauseScheduleRequest{
		Name: name, Reason: reason})
	return scheduleAnswer("pause schedule", name, resp.GetSchedule(), err)
}

// Resume ends the pause of a schedule. It is not an error if the schedule is not paused.
func (a Schedules) Resume(ctx context.Context, name string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).ResumeSchedule, &pawlv1.ResumeScheduleRequest{Name: name})
	return scheduleAnswer("resume schedule", name, resp.GetSchedule(), err)
}

// Trigger enqueues the schedule's task now, in addition to its ticks. It also works while the schedule is paused.
func (a Schedules) Trigger(ctx context.Context, name string) (*pawl.Ref, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("request id: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).TriggerSchedule, &pawlv1.TriggerScheduleRequest{Name: name,
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
	if err != nil {
		return pawltype.Page[*Tick]{}, fmt.Errorf("history of schedule %q: %w", name, err)
	}
	return convert.Page(resp, tickOf), nil
}

func scheduleAnswer(what, name string, p *pawlv1.Schedule, err error) (*Schedule, error) {
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, name, err)
	}
	return scheduleOf(p), nil
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
	return &pawlv1.ScheduleSpec{Name: s.Name, Cron: convert.Text(s.Cron), TimeZone: convert.Text(s.TimeZone), Every: convert.Duration(s.Every),
		Jitter: convert.Duration(s.Jitter), Missed: missed, Overlap: overlap, Owner: convert.Text(s.Owner), Task: spec}, nil
}

var (
	missedWords      = convert.Words[Missed](pawlv1.Missed_name, "MISSED_")
	overlapWords     = convert.Words[Overlap](pawlv1.Overlap_name, "OVERLAP_")
	tickOutcomeWords = convert.Words[TickOutcome](pawlv1.TickOutcome_name, "TICK_OUTCOME_")
)

func scheduleOf(p *pawlv1.Schedule) *Schedule {
	s := p.GetSpec()
	out := &Schedule{ID: p.GetScheduleId(), Name: s.GetName(), Cron: s.GetCron(), TimeZone: s.GetTimeZone(), Every: s.GetEvery().AsDuration(),
		Jitter: s.GetJitter().AsDuration(), Missed: missedWords[int32(s.GetMissed())], Overlap: overlapWords[int32(s.GetOverlap())],
		Owner: s.GetOwner(), Task: scheduledTaskOf(s.GetTask()), ETag: p.GetEtag(), InWords: p.GetInWords(),
		CreatedAt: convert.Time(p.GetCreatedAt()), UpdatedAt: convert.Time(p.GetUpdatedAt()), NextRunAt: convert.Time(p.GetNextRunAt()),
		PlannedAt: convert.Time(p.GetNextPlannedAt())}
	for _, at := range p.GetComing() {
		out.Coming = append(out.Coming, convert.Time(at))
	}
	if p.GetPaused() {
		out.Pause = &Pause{At: convert.Time(p.GetPausedAt()), Reason: p.GetPausedReason(), By: p.GetPausedBy()}
	}
	if p.GetLast() != nil {
		out.Last = tickOf(p.GetLast())
	}
	return out
}

func scheduledTaskOf(s *pawlv1.TaskSpec) ScheduledTask {
	t := ScheduledTask{Type: s.GetType(), Payload: s.GetPayload(), ContentType: s.GetContentType(), Queue: s.GetQueue(),
		Priority: convert.Priority(s.GetPriority()), MaxAttempts: int(s.GetMaxAttempts()), Timeout: s.GetTimeout().AsDuration(),
		ExpiresIn: s.GetExpiresIn().AsDuration(), Key: s.GetKey(), Unique: convert.Unique(s.GetUnique()), Cost: int(s.GetCost()),
		Tags: s.GetTags(), Headers: s.GetHeaders()}
	if s.GetRetry() != nil {
		retry := convert.RetryPolicy(s.GetRetry())
		t.Retry = &retry
	}
	if s.GetRetention() != nil {
		retention := s.GetRetention().AsDuration()
		t.Retention = &retention
	}
	t.In, t.At, t.IdempotencyKey, t.IdempotencyTTL = s.GetDelay().AsDuration(), convert.Time(s.GetRunAt()), s.GetIdempotencyKey(),
		s.GetIdempotencyTtl().AsDuration()
	for _, f := range s.GetThen() {
		t.Then = append(t.Then, scheduledTaskOf(f))
	}
	return t
}

func tickOf(p *pawlv1.Tick) *Tick {
	return &Tick{Seq: p.GetSeq(), PlannedAt: convert.Time(p.GetPlannedAt()), Until: convert.Time(p.GetUntil()), Count: int(p.GetCount()),
		DecidedAt: convert.Time(p.GetDecidedAt()), Outcome: tickOutcomeWords[int32(p.GetOutcome())], Reason: p.GetReason(), TaskID: p.GetTaskId(),
		Late: p.GetLate().AsDuration()}
}
