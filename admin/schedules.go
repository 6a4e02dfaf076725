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

// ScheduleSpec says when a task is enqueued again and again: docs/schedules.md has the rules.
type ScheduleSpec struct {
	Name string // letters, digits and . _ - :

	// Cron is an expression of five fields, or six with seconds first, or @daily and its like, on the clock of TimeZone, an IANA
	// name, "" for UTC. Or Every is an interval of whole seconds.
	Cron     string
	TimeZone string
	Every    time.Duration

	Jitter  time.Duration // each tick is late by a part of it, up to 24 h
	Missed  Missed
	Overlap Overlap
	Owner   string // what the schedule comes from, such as a file in a repository

	// Task is what each tick enqueues, with Options, but without a time of its own, an idempotency key or a request id.
	Task    pawl.Args
	Options []pawl.Option
}

// Missed says what becomes of ticks that came while nobody could fire them, by over a minute.
type Missed string

// What can become of missed ticks.
const (
	MissedOnce Missed = "once" // one task for all of them; the default
	MissedSkip Missed = "skip" // none
	MissedAll  Missed = "all"  // one each, at most the newest 1,000
)

// Overlap says what becomes of a tick while the task of an earlier one has not ended.
type Overlap string

// What can become of a tick that overlaps.
const (
	OverlapAllow Overlap = "allow" // the default
	OverlapSkip  Overlap = "skip"
)

// Schedule is everything the broker knows of a schedule.
type Schedule struct {
	ID       string // of this schedule: another of the same name has another
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
	Coming    []time.Time // up to four ticks behind PlannedAt; not in lists, nor while it is paused
	Pause     *Pause      // nil: it is not paused
	Last      *Tick       // the newest entry of its history; nil: it has none
	InWords   string      // when it is due, in English, by the clock of TimeZone: "At 09:30, Monday to Friday"
	ETag      string      // of what Put changes: another one if that is different
}

// ScheduledTask is the task that each tick enqueues.
type ScheduledTask struct {
	Type        string
	Payload     []byte
	ContentType string
	Queue       string
	Priority    pawltype.Priority
	MaxAttempts int                   // 0: the queue's
	Retry       *pawltype.RetryPolicy // nil: the queue's
	Timeout     time.Duration         // of one run
	ExpiresIn   time.Duration         // discarded unless started by then
	Retention   *time.Duration        // nil: the queue's
	Key         string
	Unique      *pawltype.UniqueOpts // nil: it has no unique key
	Cost        int
	Tags        []string
	Headers     map[string]string
	Then        []ScheduledTask // what follows it

	// Of a task that follows another.
	In             time.Duration
	At             time.Time
	IdempotencyKey string
	IdempotencyTTL time.Duration
}

// Pause is since when something rests, and why.
type Pause struct {
	At     time.Time
	Reason string
	By     string // as they called themselves; "": not known
}

// Tick is an entry of a schedule's history: one tick, or several that were skipped for the same reason.
type Tick struct {
	Seq       int64
	PlannedAt time.Time // of several the first; zero for a trigger
	Until     time.Time // of several the last
	Count     int       // how many; 100: or more
	DecidedAt time.Time
	Outcome   TickOutcome
	Reason    string        // why it was skipped: missed, paused, overlap, queue_full and others
	TaskID    string        // its task, or the one that it overlaps; "": it is on its way to another shard
	Late      time.Duration // from planned to decided
}

// TickOutcome says what became of a tick.
type TickOutcome string

// What can become of a tick.
const (
	TickFired     TickOutcome = "fired"
	TickCaughtUp  TickOutcome = "caught_up" // fired after it was missed
	TickTriggered TickOutcome = "triggered" // by Trigger
	TickSkipped   TickOutcome = "skipped"
)

// ScheduleChange is what putting a schedule does.
type ScheduleChange struct {
	Change   string // "created", "updated", "unchanged"
	Schedule *Schedule
	Before   *Schedule // nil: there was none
}

// List goes over all schedules by name.
func (a Schedules) List(ctx context.Context) iter.Seq2[*Schedule, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Schedule], error) {
		return a.ListPage(ctx, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of the schedules.
func (a Schedules) ListPage(ctx context.Context, page pawltype.PageRequest) (pawltype.Page[*Schedule], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).ListSchedules, &pawlv1.ListSchedulesRequest{Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Schedule]{}, fmt.Errorf("list schedules: %w", err)
	}
	return convert.Page(resp, scheduleOf), nil
}

// Get gives one schedule, or ErrNotFound.
func (a Schedules) Get(ctx context.Context, name string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).GetSchedule, &pawlv1.GetScheduleRequest{Name: name})
	return scheduleAnswer("schedule", name, resp.GetSchedule(), err)
}

// Put makes a schedule what s says, creating it if need be. The same again changes nothing, and a schedule that keeps its
// times keeps its next tick.
func (a Schedules) Put(ctx context.Context, s ScheduleSpec) (*ScheduleChange, error) {
	return a.put(ctx, "put schedule", s, &pawlv1.PutScheduleRequest{})
}

// PutIfMatch is Put if the schedule is there and has this ETag still: otherwise somebody else has changed it since it was
// read, and that is ErrConflict, unless it is as asked already.
func (a Schedules) PutIfMatch(ctx context.Context, etag string, s ScheduleSpec) (*ScheduleChange, error) {
	return a.put(ctx, "put schedule", s, &pawlv1.PutScheduleRequest{IfEtag: etag})
}

// Create is Put unless another schedule of this name exists: that is ErrConflict.
func (a Schedules) Create(ctx context.Context, s ScheduleSpec) (*ScheduleChange, error) {
	return a.put(ctx, "create schedule", s, &pawlv1.PutScheduleRequest{CreateOnly: true})
}

// Preview tells what Put would do, and changes nothing.
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

// Delete removes a schedule with its history. The tasks of its ticks stay.
func (a Schedules) Delete(ctx context.Context, name string) error {
	if _, err := operate(ctx, a.calls, false, pawlv1.NewScheduleServiceClient(a.rpc).DeleteSchedule, &pawlv1.DeleteScheduleRequest{Name: name}); err != nil {
		return fmt.Errorf("delete schedule %q: %w", name, err)
	}
	return nil
}

// Pause lets ticks pass without a task. When the schedule is resumed, its history notes them.
func (a Schedules) Pause(ctx context.Context, name, reason string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).PauseSchedule, &pawlv1.PauseScheduleRequest{Name: name, Reason: reason})
	return scheduleAnswer("pause schedule", name, resp.GetSchedule(), err)
}

// Resume ends the pause of a schedule. If there is none, that is no error.
func (a Schedules) Resume(ctx context.Context, name string) (*Schedule, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).ResumeSchedule, &pawlv1.ResumeScheduleRequest{Name: name})
	return scheduleAnswer("resume schedule", name, resp.GetSchedule(), err)
}

// Trigger makes a task of the schedule now, beside its ticks, also while it is paused.
func (a Schedules) Trigger(ctx context.Context, name string) (*pawl.Ref, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("request id: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewScheduleServiceClient(a.rpc).TriggerSchedule, &pawlv1.TriggerScheduleRequest{Name: name, RequestId: request.String()})
	if err != nil {
		return nil, fmt.Errorf("trigger schedule %q: %w", name, err)
	}
	ref := a.client.Ref(resp.GetTaskId())
	ref.State = convert.State(resp.GetState())
	return ref, nil
}

// History goes over what became of the ticks of a schedule, newest first: its last 1,000 entries.
func (a Schedules) History(ctx context.Context, name string) iter.Seq2[*Tick, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Tick], error) {
		return a.HistoryPage(ctx, name, pawltype.PageRequest{Cursor: cursor})
	})
}

// HistoryPage gives one page of the history of a schedule.
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

// proto is what is sent.
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
	spec, err := spec.Of(s.Task, s.Options) // each tick is a request of its own
	if err != nil {
		return nil, convert.FieldIn("task", err) // as the broker names what is wrong with the task
	}
	return &pawlv1.ScheduleSpec{Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Every: convert.Duration(s.Every), Jitter: convert.Duration(s.Jitter),
		Missed: missed, Overlap: overlap, Owner: s.Owner, Task: spec}, nil
}

var (
	missedWords      = convert.Words[Missed](pawlv1.Missed_name, "MISSED_")
	overlapWords     = convert.Words[Overlap](pawlv1.Overlap_name, "OVERLAP_")
	tickOutcomeWords = convert.Words[TickOutcome](pawlv1.TickOutcome_name, "TICK_OUTCOME_")
)

func scheduleOf(p *pawlv1.Schedule) *Schedule {
	s := p.GetSpec()
	out := &Schedule{ID: p.GetScheduleId(), Name: s.GetName(), Cron: s.GetCron(), TimeZone: s.GetTimeZone(), Every: s.GetEvery().AsDuration(),
		Jitter: s.GetJitter().AsDuration(), Missed: missedWords[int32(s.GetMissed())], Overlap: overlapWords[int32(s.GetOverlap())], Owner: s.GetOwner(),
		Task: scheduledTaskOf(s.GetTask()), ETag: p.GetEtag(), InWords: p.GetInWords(),
		CreatedAt: convert.Time(p.GetCreatedAt()), UpdatedAt: convert.Time(p.GetUpdatedAt()), NextRunAt: convert.Time(p.GetNextRunAt()), PlannedAt: convert.Time(p.GetNextPlannedAt())}
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
	t := ScheduledTask{Type: s.GetType(), Payload: s.GetPayload(), ContentType: s.GetContentType(), Queue: s.GetQueue(), Priority: convert.Priority(s.GetPriority()),
		MaxAttempts: int(s.GetMaxAttempts()), Timeout: s.GetTimeout().AsDuration(), ExpiresIn: s.GetExpiresIn().AsDuration(),
		Key: s.GetKey(), Unique: convert.Unique(s.GetUnique()), Cost: int(s.GetCost()), Tags: s.GetTags(), Headers: s.GetHeaders()}
	if s.GetRetry() != nil {
		retry := convert.RetryPolicy(s.GetRetry())
		t.Retry = &retry
	}
	if s.GetRetention() != nil {
		retention := s.GetRetention().AsDuration()
		t.Retention = &retention
	}
	t.In, t.At, t.IdempotencyKey, t.IdempotencyTTL = s.GetDelay().AsDuration(), convert.Time(s.GetRunAt()), s.GetIdempotencyKey(), s.GetIdempotencyTtl().AsDuration()
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
