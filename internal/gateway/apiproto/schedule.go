package apiproto

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// ScheduleOf decodes and validates the spec of a schedule, and fills in defaults.
func ScheduleOf(p *pawlv1.ScheduleSpec, l task.Limits) (s task.Schedule, err error) {
	if p == nil {
		return s, task.Invalid("spec", "is required")
	}
	s = task.Schedule{Name: p.GetName(), Cron: p.GetCron(), TimeZone: p.GetTimeZone(), Owner: p.GetOwner()}
	if s.Every, err = SpanOf("every", p.GetEvery()); err != nil {
		return s, err
	}
	if p.GetEvery() != nil && s.Every == 0 { // 0 internally stands for "not set"
		return s, task.Invalid("every", "0s is not positive: leave it out if there is a cron expression")
	}
	if s.Jitter, err = SpanOf("jitter", p.GetJitter()); err != nil {
		return s, err
	}
	if s.Missed, err = contract.WordOf("missed", contract.Missed, p.GetMissed()); err != nil {
		return s, err
	}
	if s.Overlap, err = contract.WordOf("overlap", contract.Overlaps, p.GetOverlap()); err != nil {
		return s, err
	}
	if s.Task, err = SpecOf(p.GetTask(), l); err != nil {
		if p.GetTask() == nil {
			return s, err
		}
		return s, contract.FieldOf("task", err)
	}
	s.Fill()
	return s, broker.CheckSchedule(&s, l)
}

// ScheduleProto converts a schedule.
func ScheduleProto(v *broker.ScheduleView) *pawlv1.Schedule {
	p := &pawlv1.Schedule{Spec: scheduleSpecProto(&v.Schedule), ScheduleId: v.ID.String(), CreatedAt: TimeProto(v.CreatedAt),
		UpdatedAt: TimeProto(v.UpdatedAt), NextRunAt: TimeProto(v.Next), NextPlannedAt: TimeProto(v.Planned), Paused: v.PausedAt != 0,
		PausedReason: v.Reason, PausedBy: v.PausedBy, PausedAt: TimeProto(v.PausedAt), Etag: v.ETag(),
		InWords: broker.ScheduleWords(&v.Schedule)}
	for _, at := range v.Coming {
		p.Coming = append(p.Coming, TimeProto(at))
	}
	if v.Last != nil {
		p.Last = TickProto(v.Last)
	}
	return p
}

func scheduleSpecProto(s *task.Schedule) *pawlv1.ScheduleSpec {
	return &pawlv1.ScheduleSpec{Name: s.Name, Cron: textProto(s.Cron), Every: optDuration(s.Every), TimeZone: textProto(s.TimeZone),
		Jitter: optDuration(s.Jitter), Missed: contract.NumberOf[pawlv1.Missed](contract.Missed, s.Missed),
		Overlap: contract.NumberOf[pawlv1.Overlap](contract.Overlaps, s.Overlap), Owner: textProto(s.Owner), Task: specProto(&s.Task)}
}

// specProto is the inverse of SpecOf.
func specProto(s *task.Spec) *pawlv1.TaskSpec {
	p := &pawlv1.TaskSpec{Type: s.Type, Payload: s.Payload, ContentType: s.ContentType, Queue: textProto(s.Queue),
		Priority: priorityProto(s.Priority), IdempotencyKey: textProto(s.IdempotencyKey), MaxAttempts: int32(s.MaxAttempts),
		Timeout:   optDuration(s.Timeout), // #nosec G115 -- at most 1000
		ExpiresIn: optDuration(s.ExpiresIn), Key: textProto(s.Key), Tags: s.Tags, Headers: s.Headers, Unique: uniqueProto(s.Unique),
		Cost: int32(s.Cost)} // #nosec G115 -- at most MaxCost
	if s.Retry != nil {
		p.Retry = retryProto(*s.Retry)
	}
	if s.Retention != nil {
		p.Retention = durationProto(*s.Retention)
	}
	p.Delay, p.RunAt, p.IdempotencyTtl = optDuration(s.Delay), WallProto(s.RunAt), optDuration(s.IdempotencyTTL)
	for i := range s.Then {
		p.Then = append(p.Then, specProto(&s.Then[i]))
	}
	return p
}

// TickProto converts an entry of the history of a schedule.
func TickProto(e *broker.Tick) *pawlv1.Tick {
	p := &pawlv1.Tick{Seq: int64(e.Seq), PlannedAt: TimeProto(e.Planned), Until: TimeProto(e.Until),
		Count:     int32(e.Count), // #nosec G115 -- small
		DecidedAt: TimeProto(e.At), Outcome: contract.NumberOf[pawlv1.TickOutcome](contract.TickOutcomes, e.Outcome.String()),
		Reason: e.Reason}
	if e.Task != (task.ID{}) {
		p.TaskId = e.Task.String()
	}
	if late := e.Late(); late > 0 && e.Outcome != broker.TickSkipped {
		p.Late = durationProto(late)
	}
	return p
}

// optDuration omits a duration that is not set.
func optDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationProto(d)
}
