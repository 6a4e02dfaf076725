package rest

import (
	"net/http"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var scheduleRoutes = []Route{
	{"GET", "/api/v1/schedules", "ScheduleService/ListSchedules", listSchedules},
	{"POST", "/api/v1/schedules", "ScheduleService/PutSchedule", createSchedule},
	{"GET", "/api/v1/schedules/{name}", "ScheduleService/GetSchedule", getSchedule},
	{"PUT", "/api/v1/schedules/{name}", "ScheduleService/PutSchedule", putSchedule},
	{"DELETE", "/api/v1/schedules/{name}", "ScheduleService/DeleteSchedule", deleteSchedule},
	{"POST", "/api/v1/schedules/{name}/pause", "ScheduleService/PauseSchedule", pauseSchedule},
	{"POST", "/api/v1/schedules/{name}/resume", "ScheduleService/ResumeSchedule", resumeSchedule},
	{"POST", "/api/v1/schedules/{name}/trigger", "ScheduleService/TriggerSchedule", triggerSchedule},
	{"GET", "/api/v1/schedules/{name}/history", "ScheduleService/ListScheduleHistory", scheduleHistory},
}

func listSchedules(x *exchange) error {
	limit, cursor, err := x.page()
	if err != nil {
		return err
	}
	got, err := x.API.Schedule.ListSchedules(x.ctx, &pawlv1.ListSchedulesRequest{Limit: limit, Cursor: cursor})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.schedule)
	return nil
}

func getSchedule(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Schedule.GetSchedule(x.ctx, &pawlv1.GetScheduleRequest{Name: x.r.PathValue("name")})
	return x.scheduleAnswer(got.GetSchedule(), err)
}

func (x *exchange) scheduleAnswer(s *pawlv1.Schedule, err error) error {
	if err != nil {
		return err
	}
	x.open('{')
	x.schedule(s)
	x.close('}')
	return nil
}

func createSchedule(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	spec := &pawlv1.ScheduleSpec{}
	if err := x.scheduleSpec(spec, nil); err != nil {
		return err
	}
	got, err := x.API.Schedule.PutSchedule(x.ctx, &pawlv1.PutScheduleRequest{Spec: spec, CreateOnly: true})
	if err == nil {
		x.status = http.StatusCreated
	}
	return x.scheduleAnswer(got.GetSchedule(), err)
}

func putSchedule(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	req := &pawlv1.PutScheduleRequest{Spec: &pawlv1.ScheduleSpec{Name: x.r.PathValue("name")}}
	if err := x.scheduleSpec(req.GetSpec(), req); err != nil {
		return err
	}
	if in := x.r.PathValue("name"); req.GetSpec().GetName() != in {
		return task.Invalid("name", "%q differs from %q in the path", task.Cut(req.GetSpec().GetName(), 64), task.Cut(in, 64))
	}
	got, err := x.API.Schedule.PutSchedule(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.str("change", got.GetChange())
	x.within("schedule", '{')
	x.schedule(got.GetSchedule())
	x.close('}')
	if got.GetBefore() != nil {
		x.within("before", '{')
		x.schedule(got.GetBefore())
		x.close('}')
	}
	x.close('}')
	return nil
}

// scheduleSpec reads what an operator says of a schedule, and how it is to be put, if that can be said.
func (x *exchange) scheduleSpec(to *pawlv1.ScheduleSpec, how *pawlv1.PutScheduleRequest) error {
	var template *specReader
	err := x.fields(func(r *jsonReader, name string) (err error) {
		switch name {
		case "name":
			to.Name, err = r.str(name)
		case "cron":
			to.Cron, err = r.str(name)
		case "every":
			to.Every, err = r.span(name)
		case "time_zone":
			to.TimeZone, err = r.str(name)
		case "jitter":
			to.Jitter, err = r.span(name)
		case "missed":
			to.Missed, err = word[pawlv1.Missed](r, name, contract.Missed)
		case "overlap":
			to.Overlap, err = word[pawlv1.Overlap](r, name, contract.Overlaps)
		case "owner":
			to.Owner, err = r.str(name)
		case "task":
			template = &specReader{spec: &pawlv1.TaskSpec{}}
			err = r.fields(name, func(field string) error { return contract.FieldOf(name, template.field(r, field)) })
		default:
			switch {
			case name == "dry_run" && how != nil:
				err = r.boolean(&how.DryRun, name)
			case name == task.FieldIfETag && how != nil:
				how.IfEtag, err = r.str(name)
			default:
				err = unknown("", name)
			}
		}
		return err
	})
	if err != nil || template == nil {
		return err
	}
	to.Task, err = template.done()
	return contract.FieldOf("task", err)
}

// word reads one of a few words.
func word[N ~int32, W ~string](r *jsonReader, field string, words []W) (N, error) {
	s, err := r.str(field)
	if err != nil {
		return 0, err
	}
	if n := contract.NumberOf[N](words, W(s)); n != 0 {
		return n, nil
	}
	return 0, task.NoneOf(field, s, words[1:])
}

func deleteSchedule(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	if _, err := x.API.Schedule.DeleteSchedule(x.ctx, &pawlv1.DeleteScheduleRequest{Name: x.r.PathValue("name")}); err != nil {
		return err
	}
	x.open('{')
	x.close('}')
	return nil
}

func pauseSchedule(x *exchange) error {
	req := &pawlv1.PauseScheduleRequest{Name: x.r.PathValue("name")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name != "reason" {
			return unknown("", name)
		}
		req.Reason, err = r.str(name)
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Schedule.PauseSchedule(x.ctx, req)
	return x.scheduleAnswer(got.GetSchedule(), err)
}

func resumeSchedule(x *exchange) error {
	if err := x.alone(func(_ *jsonReader, name string) error { return unknown("", name) }); err != nil {
		return err
	}
	got, err := x.API.Schedule.ResumeSchedule(x.ctx, &pawlv1.ResumeScheduleRequest{Name: x.r.PathValue("name")})
	return x.scheduleAnswer(got.GetSchedule(), err)
}

func triggerSchedule(x *exchange) error {
	req := &pawlv1.TriggerScheduleRequest{Name: x.r.PathValue("name")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		if name != "request_id" {
			return unknown("", name)
		}
		req.RequestId, err = r.str(name)
		return err
	})
	if err == nil {
		err = x.fromHeader(&req.RequestId, headerRequestID, "request_id")
	}
	if err != nil {
		return err
	}
	got, err := x.API.Schedule.TriggerSchedule(x.ctx, req)
	if err != nil {
		return err
	}
	x.status = http.StatusAccepted
	x.open('{')
	x.str("task_id", got.GetTaskId())
	x.place(got.GetStatus(), got.GetState())
	x.close('}')
	return nil
}

func scheduleHistory(x *exchange) error {
	limit, cursor, err := x.page()
	if err != nil {
		return err
	}
	got, err := x.API.Schedule.ListScheduleHistory(x.ctx,
		&pawlv1.ListScheduleHistoryRequest{Name: x.r.PathValue("name"), Limit: limit, Cursor: cursor})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.tick)
	return nil
}

// schedule writes the fields of a schedule.
func (x *exchange) schedule(s *pawlv1.Schedule) {
	spec := s.GetSpec()
	x.str("name", spec.GetName())
	x.str("schedule_id", s.GetScheduleId())
	x.opt("cron", spec.GetCron())
	x.span("every", spec.GetEvery())
	x.opt("time_zone", spec.GetTimeZone())
	x.span("jitter", spec.GetJitter())
	x.str("missed", string(contract.Missed[spec.GetMissed()]))
	x.str("overlap", string(contract.Overlaps[spec.GetOverlap()]))
	x.opt("owner", spec.GetOwner())
	x.taskSpec("task", spec.GetTask())
	x.boolean("paused", s.GetPaused())
	x.opt("paused_reason", s.GetPausedReason())
	x.opt("paused_by", s.GetPausedBy())
	x.time("paused_at", s.GetPausedAt())
	x.time("created_at", s.GetCreatedAt())
	x.time("updated_at", s.GetUpdatedAt())
	x.time("next_run_at", s.GetNextRunAt())
	x.time("next_planned_at", s.GetNextPlannedAt())
	x.opt("etag", s.GetEtag())
	x.opt("in_words", s.GetInWords())
	if len(s.GetComing()) > 0 {
		x.within("coming", '[')
		for _, at := range s.GetComing() {
			x.comma()
			x.b = append(at.AsTime().AppendFormat(append(x.b, '"'), time.RFC3339Nano), '"')
		}
		x.close(']')
	}
	if t := s.GetLast(); t != nil {
		x.within("last", '{')
		x.tick(t)
		x.close('}')
	}
}

// taskSpec writes what is said of a task that is not there yet.
func (x *exchange) taskSpec(name string, t *pawlv1.TaskSpec) {
	x.within(name, '{')
	x.specFields(t)
	x.close('}')
}

func (x *exchange) specFields(t *pawlv1.TaskSpec) {
	x.str("type", t.GetType())
	x.data("payload", t.GetPayload(), t.GetContentType())
	x.opt("content_type", t.GetContentType())
	x.str("queue", t.GetQueue())
	x.str("priority", task.Priority(t.GetPriority()).String())
	if n := t.GetMaxAttempts(); n > 0 {
		x.num("max_attempts", int64(n))
	}
	if t.GetRetry() != nil {
		x.retry(t.GetRetry())
	}
	x.span("timeout", t.GetTimeout())
	x.span("expires_in", t.GetExpiresIn())
	x.span("retention", t.GetRetention())
	x.opt("key", t.GetKey())
	if n := t.GetCost(); n > 1 {
		x.num("cost", int64(n))
	}
	x.unique(t.GetUnique())
	x.strs("tags", t.GetTags())
	x.texts("headers", t.GetHeaders())
	x.span("delay", t.GetDelay())
	x.time("run_at", t.GetRunAt())
	x.opt("idempotency_key", t.GetIdempotencyKey())
	x.span("idempotency_ttl", t.GetIdempotencyTtl())
	if len(t.GetThen()) > 0 {
		objects(x, "then", t.GetThen(), x.specFields)
	}
}

// tick writes the fields of an entry of a ledger.
func (x *exchange) tick(t *pawlv1.Tick) {
	x.num("seq", t.GetSeq())
	x.time("planned_at", t.GetPlannedAt())
	x.time("until", t.GetUntil())
	x.num("count", int64(t.GetCount()))
	x.time("decided_at", t.GetDecidedAt())
	x.str("outcome", contract.TickOutcomes[t.GetOutcome()])
	x.opt("reason", t.GetReason())
	x.opt("task_id", t.GetTaskId())
	x.span("late", t.GetLate())
}
