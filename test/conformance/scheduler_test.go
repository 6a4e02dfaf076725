package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/pawlq/pawl/admin"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// scheduler is what an API can do with schedules.
type scheduler interface {
	PutSchedule(ctx context.Context, s schedule) (putAnswer, error)
	// CreateSchedule refuses to change an existing schedule.
	CreateSchedule(ctx context.Context, s schedule) (scheduleInfo, error)
	// TrySchedule returns what a put would do.
	TrySchedule(ctx context.Context, s schedule) (putAnswer, error)
	Schedule(ctx context.Context, name string) (scheduleInfo, error)
	Schedules(ctx context.Context, p part) (list []scheduleInfo, next string, err error)
	DeleteSchedule(ctx context.Context, name string) error
	PauseSchedule(ctx context.Context, name, reason string) (scheduleInfo, error)
	ResumeSchedule(ctx context.Context, name string) (scheduleInfo, error)
	Trigger(ctx context.Context, name string) (taskID, state string, err error)
	// History lists the history, newest first.
	History(ctx context.Context, name string, p part) (ticks []tick, next string, err error)
}

// schedule is a schedule to put. Zero fields are omitted.
type schedule struct {
	Name     string `json:"name"`
	Cron     string `json:"cron,omitempty"`
	Every    span   `json:"every,omitempty"`
	TimeZone string `json:"time_zone,omitempty"`
	Jitter   span   `json:"jitter,omitempty"`
	Missed   string `json:"missed,omitempty"`
	Overlap  string `json:"overlap,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Task     spec   `json:"-"`
	IfETag   string `json:"if_etag,omitempty"` // of a put
}

// filled returns a schedule as it is shown.
func (s schedule) filled() schedule {
	for to, word := range map[*string]string{&s.Missed: "once", &s.Overlap: "allow", &s.Task.Queue: "default", &s.Task.Priority: "normal"} {
		if *to == "" {
			*to = word
		}
	}
	return s
}

// scheduleInfo is everything that the API shows of a schedule.
type scheduleInfo struct {
	schedule
	ID           string      `json:"schedule_id"`
	Paused       bool        `json:"paused"`
	PausedReason string      `json:"paused_reason"`
	PausedBy     string      `json:"paused_by"`
	PausedAt     time.Time   `json:"paused_at"`
	CreatedAt    time.Time   `json:"created_at"`
	UpdatedAt    time.Time   `json:"updated_at"`
	NextRunAt    time.Time   `json:"next_run_at"`
	PlannedAt    time.Time   `json:"next_planned_at"`
	Coming       []time.Time `json:"coming"`
	Last         *tick       `json:"last"`
	ETag         string      `json:"etag"`
	InWords      string      `json:"in_words"`
}

// putAnswer is the answer to a put of a schedule.
type putAnswer struct {
	Change string
	After  scheduleInfo
	Before *scheduleInfo
}

// tick is an entry of a history.
type tick struct {
	Seq       int64     `json:"seq"`
	PlannedAt time.Time `json:"planned_at"`
	Until     time.Time `json:"until"`
	Count     int       `json:"count"`
	DecidedAt time.Time `json:"decided_at"`
	Outcome   string    `json:"outcome"`
	Reason    string    `json:"reason"`
	TaskID    string    `json:"task_id"`
	Late      span      `json:"late"`
}

// REST

// scheduleBody is a schedule with its task as JSON.
type scheduleBody struct {
	schedule
	Task   specBody `json:"task"`
	DryRun bool     `json:"dry_run,omitempty"`
}

func (s schedule) body() scheduleBody { return scheduleBody{schedule: s, Task: s.Task.body()} }

// shownSchedule is a schedule in an answer.
type shownSchedule struct {
	scheduleInfo
	Task specBody `json:"task"`
}

func (b *shownSchedule) read() (scheduleInfo, error) {
	s, err := b.scheduleInfo, error(nil)
	s.Task = b.Task.spec
	s.Task.Payload, err = jsonData(b.Task.Payload, s.Task.ContentType)
	return s, err
}

func schedulePath(name, verb string) string { return "/schedules/" + url.PathEscape(name) + verb }

// onSchedule makes a call that answers with a schedule.
func (d *rest) onSchedule(call func(answer any) error) (scheduleInfo, error) {
	var b shownSchedule
	if err := call(&b); err != nil {
		return scheduleInfo{}, err
	}
	return b.read()
}

func (d *rest) put(ctx context.Context, s schedule, dryRun bool) (out putAnswer, err error) {
	body := s.body()
	body.DryRun = dryRun
	var a struct {
		Change   string         `json:"change"`
		Schedule shownSchedule  `json:"schedule"`
		Before   *shownSchedule `json:"before"`
	}
	if err := d.call(ctx, "PUT", schedulePath(s.Name, ""), body, &a); err != nil {
		return out, err
	}
	out.Change = a.Change
	if out.After, err = a.Schedule.read(); err == nil && a.Before != nil {
		out.Before = new(scheduleInfo)
		*out.Before, err = a.Before.read()
	}
	return out, err
}

func (d *rest) PutSchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.put(ctx, s, false)
}

func (d *rest) TrySchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.put(ctx, s, true)
}

func (d *rest) CreateSchedule(ctx context.Context, s schedule) (scheduleInfo, error) {
	return d.onSchedule(func(a any) error { return d.call(ctx, "POST", "/schedules", s.body(), a) })
}

func (d *rest) Schedule(ctx context.Context, name string) (scheduleInfo, error) {
	return d.onSchedule(func(a any) error { return d.query(ctx, "GET", schedulePath(name, ""), nil, a) })
}

func (d *rest) Schedules(ctx context.Context, p part) (list []scheduleInfo, next string, err error) {
	var a struct {
		Items []shownSchedule `json:"items"`
		Next  string          `json:"next_cursor"`
	}
	err = d.query(ctx, "GET", "/schedules", filter{}.query(p), &a)
	for _, b := range a.Items {
		s, bad := b.read()
		list, err = append(list, s), errors.Join(err, bad)
	}
	return list, a.Next, err
}

func (d *rest) DeleteSchedule(ctx context.Context, name string) error {
	return d.query(ctx, "DELETE", schedulePath(name, ""), nil, &struct{}{})
}

func (d *rest) PauseSchedule(ctx context.Context, name, reason string) (scheduleInfo, error) {
	body := fields{}.with(reason != "", "reason", reason)
	return d.onSchedule(func(a any) error { return d.call(ctx, "POST", schedulePath(name, "/pause"), body, a) })
}

func (d *rest) ResumeSchedule(ctx context.Context, name string) (scheduleInfo, error) {
	return d.onSchedule(func(a any) error { return d.query(ctx, "POST", schedulePath(name, "/resume"), nil, a) })
}

func (d *rest) Trigger(ctx context.Context, name string) (taskID, state string, err error) {
	return d.trigger(ctx, name, "")
}

func (d *rest) trigger(ctx context.Context, name, request string) (taskID, state string, err error) {
	var a struct {
		ID     string `json:"task_id"`
		Status string `json:"status"`
		State  string `json:"state"`
	}
	err = d.call(ctx, "POST", schedulePath(name, "/trigger"), fields{}.with(request != "", "request_id", request), &a)
	if err == nil {
		err = sameStatus(a.Status, a.State)
	}
	return a.ID, a.State, err
}

func (d *rest) History(ctx context.Context, name string, p part) (ticks []tick, next string, err error) {
	var a struct {
		Items []tick `json:"items"`
		Next  string `json:"next_cursor"`
	}
	err = d.query(ctx, "GET", schedulePath(name, "/history"), filter{}.query(p), &a)
	return a.Items, a.Next, err
}

// gRPC

func (s schedule) proto() *pawlv1.ScheduleSpec {
	return &pawlv1.ScheduleSpec{Name: s.Name, Cron: text(s.Cron), Every: spanProto(s.Every), TimeZone: text(s.TimeZone),
		Jitter: spanProto(s.Jitter), Missed: number[pawlv1.Missed](pawlv1.Missed_value, "MISSED_", s.Missed),
		Overlap: number[pawlv1.Overlap](pawlv1.Overlap_value, "OVERLAP_", s.Overlap), Owner: text(s.Owner), Task: s.Task.proto()}
}

func specOfProto(p *pawlv1.TaskSpec) spec {
	s := spec{Type: p.GetType(), Payload: string(p.GetPayload()), ContentType: p.GetContentType(), Queue: p.GetQueue(),
		Priority: word(p.GetPriority(), "PRIORITY_"), MaxAttempts: int(p.GetMaxAttempts()), Timeout: span(p.GetTimeout().AsDuration()),
		ExpiresIn: span(p.GetExpiresIn().AsDuration()), Key: p.GetKey(), Cost: int(p.GetCost()), Tags: p.GetTags(), Headers: p.GetHeaders()}
	if p.GetRetry() != nil {
		s.Retry = retryProto(p.GetRetry())
	}
	if p.GetRetention() != nil {
		s.Retention = new(span(p.GetRetention().AsDuration()))
	}
	return s
}

func scheduleOfProto(p *pawlv1.Schedule) scheduleInfo {
	s := p.GetSpec()
	out := scheduleInfo{schedule: schedule{Name: s.GetName(), Cron: s.GetCron(), Every: span(s.GetEvery().AsDuration()),
		TimeZone: s.GetTimeZone(), Jitter: span(s.GetJitter().AsDuration()), Missed: word(s.GetMissed(), "MISSED_"),
		Overlap: word(s.GetOverlap(),
			"OVERLAP_"), Owner: s.GetOwner(),
		Task: specOfProto(s.GetTask())}, ID: p.GetScheduleId(), Paused: p.GetPaused(), PausedReason: p.GetPausedReason(),
		PausedBy: p.GetPausedBy(), PausedAt: timeOf(p.GetPausedAt()), CreatedAt: timeOf(p.GetCreatedAt()),
		UpdatedAt: timeOf(p.GetUpdatedAt()), NextRunAt: timeOf(p.GetNextRunAt()), PlannedAt: timeOf(p.GetNextPlannedAt()),
		ETag: p.GetEtag(), InWords: p.GetInWords()}
	for _, at := range p.GetComing() {
		out.Coming = append(out.Coming, timeOf(at))
	}
	if p.GetLast() != nil {
		out.Last = new(tickOfProto(p.GetLast()))
	}
	return out
}

func tickOfProto(p *pawlv1.Tick) tick {
	return tick{Seq: p.GetSeq(), PlannedAt: timeOf(p.GetPlannedAt()), Until: timeOf(p.GetUntil()), Count: int(p.GetCount()),
		DecidedAt: timeOf(p.GetDecidedAt()), Outcome: word(p.GetOutcome(), "TICK_OUTCOME_"), Reason: p.GetReason(), TaskID: p.GetTaskId(),
		Late: span(p.GetLate().AsDuration())}
}

func (d *rpc) put(ctx context.Context, r *pawlv1.PutScheduleRequest) (putAnswer, error) {
	a, err := ask(ctx, d.schedule.PutSchedule, r)
	if err != nil {
		return putAnswer{}, err
	}
	out := putAnswer{Change: a.GetChange(), After: scheduleOfProto(a.GetSchedule())}
	if a.GetBefore() != nil {
		out.Before = new(scheduleOfProto(a.GetBefore()))
	}
	return out, nil
}

func (d *rpc) PutSchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.put(ctx, &pawlv1.PutScheduleRequest{Spec: s.proto(), IfEtag: text(s.IfETag)})
}

func (d *rpc) TrySchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.put(ctx, &pawlv1.PutScheduleRequest{Spec: s.proto(), DryRun: true})
}

func (d *rpc) CreateSchedule(ctx context.Context, s schedule) (scheduleInfo, error) {
	a, err := d.put(ctx, &pawlv1.PutScheduleRequest{Spec: s.proto(), CreateOnly: true})
	return a.After, err
}

func (d *rpc) Schedule(ctx context.Context, name string) (scheduleInfo, error) {
	a, err := ask(ctx, d.schedule.GetSchedule, &pawlv1.GetScheduleRequest{Name: name})
	return scheduleOfProto(a.GetSchedule()), err
}

func (d *rpc) Schedules(ctx context.Context, p part) (list []scheduleInfo, next string, err error) {
	a, err := ask(ctx, d.schedule.ListSchedules, &pawlv1.ListSchedulesRequest{Limit: int32(p.Limit), Cursor: p.Cursor})
	for _, item := range a.GetItems() {
		list = append(list, scheduleOfProto(item))
	}
	return list, a.GetNextCursor(), err
}

func (d *rpc) DeleteSchedule(ctx context.Context, name string) error {
	_, err := ask(ctx, d.schedule.DeleteSchedule, &pawlv1.DeleteScheduleRequest{Name: name})
	return err
}

func (d *rpc) PauseSchedule(ctx context.Context, name, reason string) (scheduleInfo, error) {
	a, err := ask(ctx, d.schedule.PauseSchedule, &pawlv1.PauseScheduleRequest{Name: name, Reason: reason})
	return scheduleOfProto(a.GetSchedule()), err
}

func (d *rpc) ResumeSchedule(ctx context.Context, name string) (scheduleInfo, error) {
	a, err := ask(ctx, d.schedule.ResumeSchedule, &pawlv1.ResumeScheduleRequest{Name: name})
	return scheduleOfProto(a.GetSchedule()), err
}

func (d *rpc) Trigger(ctx context.Context, name string) (taskID, state string, err error) {
	return d.trigger(ctx, name, "")
}

func (d *rpc) trigger(ctx context.Context, name, request string) (taskID, state string, err error) {
	a, err := ask(ctx, d.schedule.TriggerSchedule, &pawlv1.TriggerScheduleRequest{Name: name, RequestId: text(request)})
	if err == nil {
		err = sameStatus(word(a.GetStatus(), "STATUS_"), word(a.GetState(), "STATE_"))
	}
	return a.GetTaskId(), word(a.GetState(), "STATE_"), err
}

func (d *rpc) History(ctx context.Context, name string, p part) (ticks []tick, next string, err error) {
	a, err := ask(ctx, d.schedule.ListScheduleHistory, &pawlv1.ListScheduleHistoryRequest{Name: name, Limit: int32(p.Limit),
		Cursor: p.Cursor})
	for _, item := range a.GetItems() {
		ticks = append(ticks, tickOfProto(item))
	}
	return ticks, a.GetNextCursor(), err
}

// SDK

func (s schedule) sdk() admin.ScheduleSpec {
	item := s.Task.item()
	return admin.ScheduleSpec{Name: s.Name, Cron: s.Cron, Every: s.Every.std(), TimeZone: s.TimeZone, Jitter: s.Jitter.std(),
		Missed: admin.Missed(s.Missed), Overlap: admin.Overlap(s.Overlap), Owner: s.Owner, Task: item.Args, Options: item.Options}
}

func scheduleOfSDK(s *admin.Schedule) scheduleInfo {
	t := s.Task
	out := scheduleInfo{schedule: schedule{Name: s.Name, Cron: s.Cron, Every: span(s.Every), TimeZone: s.TimeZone, Jitter: span(s.Jitter),
		Missed: string(s.Missed), Overlap: string(s.Overlap), Owner: s.Owner, Task: spec{Type: t.Type, Payload: string(t.Payload),
			ContentType: t.ContentType, Queue: t.Queue, Priority: string(t.Priority), MaxAttempts: t.MaxAttempts, Timeout: span(t.Timeout),
			ExpiresIn: span(t.ExpiresIn), Retention: (*span)(t.Retention), Key: t.Key, Cost: t.Cost, Tags: t.Tags, Headers: t.Headers}},
		ID: s.ID, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, NextRunAt: s.NextRunAt, PlannedAt: s.PlannedAt,
		Coming: s.Coming, ETag: s.ETag, InWords: s.InWords}
	if t.Retry != nil {
		out.Task.Retry = retryPolicy(*t.Retry)
	}
	if s.Pause != nil {
		out.Paused, out.PausedReason, out.PausedBy, out.PausedAt = true, s.Pause.Reason, s.Pause.By, s.Pause.At
	}
	if s.Last != nil {
		out.Last = new(tickOfSDK(s.Last))
	}
	return out
}

func tickOfSDK(t *admin.Tick) tick {
	return tick{Seq: t.Seq, PlannedAt: t.PlannedAt, Until: t.Until, Count: t.Count, DecidedAt: t.DecidedAt, Outcome: string(t.Outcome),
		Reason: t.Reason, TaskID: t.TaskID, Late: span(t.Late)}
}

func scheduleBySDK(s *admin.Schedule, err error) (scheduleInfo, error) {
	if err != nil {
		return scheduleInfo{}, refusedBySDK(err)
	}
	return scheduleOfSDK(s), nil
}

func putBySDK(c *admin.ScheduleChange, err error) (putAnswer, error) {
	if err != nil {
		return putAnswer{}, refusedBySDK(err)
	}
	out := putAnswer{Change: c.Change, After: scheduleOfSDK(c.Schedule)}
	if c.Before != nil {
		out.Before = new(scheduleOfSDK(c.Before))
	}
	return out, nil
}

func (d *sdk) PutSchedule(ctx context.Context, s schedule) (putAnswer, error) {
	if s.IfETag != "" {
		return putBySDK(d.admin().Schedules().PutIfMatch(ctx, s.IfETag, s.sdk()))
	}
	return putBySDK(d.admin().Schedules().Put(ctx, s.sdk()))
}

func (d *sdk) TrySchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return putBySDK(d.admin().Schedules().Preview(ctx, s.sdk()))
}

func (d *sdk) CreateSchedule(ctx context.Context, s schedule) (scheduleInfo, error) {
	a, err := putBySDK(d.admin().Schedules().Create(ctx, s.sdk()))
	return a.After, err
}

func (d *sdk) Schedule(ctx context.Context, name string) (scheduleInfo, error) {
	return scheduleBySDK(d.admin().Schedules().Get(ctx, name))
}

func (d *sdk) Schedules(ctx context.Context, p part) (list []scheduleInfo, next string, err error) {
	got, err := d.admin().Schedules().ListPage(ctx, p.sdk())
	for _, s := range got.Items {
		list = append(list, scheduleOfSDK(s))
	}
	return list, got.NextCursor, refusedBySDK(err)
}

func (d *sdk) DeleteSchedule(ctx context.Context, name string) error {
	return refusedBySDK(d.admin().Schedules().Delete(ctx, name))
}

func (d *sdk) PauseSchedule(ctx context.Context, name, reason string) (scheduleInfo, error) {
	return scheduleBySDK(d.admin().WithReason(reason).Schedules().Pause(ctx, name))
}

func (d *sdk) ResumeSchedule(ctx context.Context, name string) (scheduleInfo, error) {
	return scheduleBySDK(d.admin().Schedules().Resume(ctx, name))
}

func (d *sdk) Trigger(ctx context.Context, name string) (taskID, state string, err error) {
	ref, err := d.admin().Schedules().Trigger(ctx, name)
	if err != nil {
		return "", "", refusedBySDK(err)
	}
	return ref.ID, string(ref.State), nil
}

func (d *sdk) History(ctx context.Context, name string, p part) (ticks []tick, next string, err error) {
	got, err := d.admin().Schedules().HistoryPage(ctx, name, p.sdk())
	for _, t := range got.Items {
		ticks = append(ticks, tickOfSDK(t))
	}
	return ticks, got.NextCursor, refusedBySDK(err)
}

// Direct

// task returns the schedule, filled in and checked, as the router expects it.
func (s schedule) task() (task.Schedule, error) {
	out := task.Schedule{Name: s.Name, Cron: s.Cron, Every: s.Every.std(), TimeZone: s.TimeZone, Jitter: s.Jitter.std(),
		Missed: task.Missed(s.Missed), Overlap: task.Overlap(s.Overlap), Owner: s.Owner}
	t, err := s.Task.task()
	if e, refused := task.AsError(err); refused && e.Field == "request_id" { // an invalid id never gets this far
		return out, task.Invalid("task.request_id", "%s", e.Message)
	}
	out.Task = t
	out.Fill()
	return out, broker.CheckSchedule(&out, task.DefaultLimits())
}

func scheduleOf(v *broker.ScheduleView) scheduleInfo {
	s, t := &v.Schedule, &v.Task
	out := scheduleInfo{schedule: schedule{Name: s.Name, Cron: s.Cron, Every: span(s.Every), TimeZone: s.TimeZone, Jitter: span(s.Jitter),
		Missed: string(s.Missed), Overlap: string(s.Overlap), Owner: s.Owner, Task: spec{Type: t.Type, Payload: string(t.Payload),
			ContentType: t.ContentType, Queue: t.Queue, Priority: t.Priority.String(), MaxAttempts: t.MaxAttempts, Timeout: span(t.Timeout),
			ExpiresIn: span(t.ExpiresIn), Retention: (*span)(t.Retention), Key: t.Key, Cost: t.Cost, Tags: t.Tags, Headers: t.Headers}},
		ID: v.ID.String(), Paused: v.PausedAt != 0, PausedReason: v.Reason, PausedBy: v.PausedBy, PausedAt: when(v.PausedAt),
		CreatedAt: when(v.CreatedAt), UpdatedAt: when(v.UpdatedAt), NextRunAt: when(v.Next), PlannedAt: when(v.Planned), ETag: v.ETag(),
		InWords: broker.ScheduleWords(&v.Schedule)}
	for _, at := range v.Coming {
		out.Coming = append(out.Coming, when(at))
	}
	if t.Retry != nil {
		out.Task.Retry = retryOf(*t.Retry)
	}
	if v.Last != nil {
		out.Last = new(tickOf(v.Last))
	}
	return out
}

func tickOf(e *broker.Tick) tick {
	t := tick{Seq: int64(e.Seq), PlannedAt: when(e.Planned), Until: when(e.Until), Count: e.Count, DecidedAt: when(e.At),
		Outcome: e.Outcome.String(), Reason: e.Reason}
	if e.Task != (task.ID{}) {
		t.TaskID = e.Task.String()
	}
	if late := e.Late(); late > 0 && e.Outcome != broker.TickSkipped {
		t.Late = span(late)
	}
	return t
}

func (d *direct) put(ctx context.Context, s schedule, call broker.SchedulePut) (out putAnswer, err error) {
	if call.Schedule, err = s.task(); err != nil {
		return out, refused(err)
	}
	done, _, err := d.broker.Schedules.PutSchedule(ctx, directly, namespace, call)
	if err != nil {
		return out, refused(err)
	}
	out = putAnswer{Change: string(done.Change), After: scheduleOf(done.After)}
	if done.Before != nil {
		out.Before = new(scheduleOf(done.Before))
	}
	return out, nil
}

func (d *direct) PutSchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.put(ctx, s, broker.SchedulePut{IfETag: s.IfETag})
}

func (d *direct) TrySchedule(ctx context.Context, s schedule) (putAnswer, error) {
	return d.put(ctx, s, broker.SchedulePut{DryRun: true})
}

func (d *direct) CreateSchedule(ctx context.Context, s schedule) (scheduleInfo, error) {
	a, err := d.put(ctx, s, broker.SchedulePut{Create: true})
	return a.After, err
}

// onSchedule converts the answer of a call that answers with a schedule.
func onSchedule(out broker.Shown[*broker.ScheduleView], err error) (scheduleInfo, error) {
	if err != nil {
		return scheduleInfo{}, refused(err)
	}
	return scheduleOf(out.View), nil
}

// atHome addresses a schedule.
func atHome(name string) broker.AtHome {
	return broker.AtHome{OnSchedule: broker.OnSchedule{OnShard: onShard(), Name: name}}
}

func (d *direct) Schedule(ctx context.Context, name string) (scheduleInfo, error) {
	return onSchedule(broker.ShowSchedule.Call(ctx, d.broker, atHome(name)))
}

func (d *direct) Schedules(ctx context.Context, p part) (list []scheduleInfo, next string, err error) {
	out, err := broker.ListSchedules.Call(ctx, d.broker, broker.ScheduleList{OnShard: onShard(), After: p.Cursor, Limit: limitOf(p)})
	got := out.Page
	for _, v := range got.Schedules {
		list = append(list, scheduleOf(v))
	}
	if got.More {
		next = list[len(list)-1].Name
	}
	return list, next, refused(err)
}

func (d *direct) DeleteSchedule(ctx context.Context, name string) error {
	_, err := d.broker.Schedules.DeleteSchedule(ctx, directly, namespace, name)
	return refused(err)
}

func (d *direct) PauseSchedule(ctx context.Context, name, reason string) (scheduleInfo, error) {
	return onSchedule(broker.PauseSchedule.Call(ctx, d.broker, broker.ScheduleCommand{AtHome: atHome(name), Authored: broker.Authored{
		By: directly}, Reason: reason}))
}

func (d *direct) ResumeSchedule(ctx context.Context, name string) (scheduleInfo, error) {
	return onSchedule(broker.ResumeSchedule.Call(ctx, d.broker, broker.ScheduleCommand{AtHome: atHome(name),
		Authored: broker.Authored{By: directly}}))
}

func (d *direct) Trigger(ctx context.Context, name string) (taskID, state string, err error) {
	a, _, err := d.broker.Schedules.TriggerSchedule(ctx, directly, namespace, name, newRequest())
	if err != nil {
		return "", "", refused(err)
	}
	return a.ID.String(), a.State.String(), nil
}

func (d *direct) History(ctx context.Context, name string, p part) (ticks []tick, next string, err error) {
	below := uint64(0)
	if p.Cursor != "" {
		if err := json.Unmarshal([]byte(p.Cursor), &below); err != nil {
			return nil, "", err
		}
	}
	out, err := broker.ScheduleHistory.Call(ctx, d.broker, broker.ScheduleHistoryList{AtHome: atHome(name), Below: below,
		Limit: limitOf(p) + 1})
	got := out.Entries
	if len(got) > limitOf(p) {
		got = slices.Delete(got, limitOf(p), len(got))
		next = fmt.Sprint(got[len(got)-1].Seq)
	}
	for _, e := range got {
		ticks = append(ticks, tickOf(e))
	}
	return ticks, next, refused(err)
}
