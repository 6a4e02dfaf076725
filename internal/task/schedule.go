package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Schedule describes when to enqueue a task repeatedly.
type Schedule struct {
	Name     string
	Cron     string        // an expression; or Every
	Every    time.Duration // an interval
	TimeZone string        // time zone for Cron: an IANA name; "": UTC
	Jitter   time.Duration // each tick is delayed by a part of it, which differs from tick to tick
	Missed   Missed
	Overlap  Overlap
	// Owner names the source of the schedule, such as a file in a repository: a tool that applies the source can find schedules that
	// are no longer in it.
	Owner string
	Task  Spec
}

// Missed is the handling of ticks that could not fire in time.
type Missed string

// Handling of missed ticks.
const (
	MissedOnce Missed = "once" // one task for all of them; the default
	MissedSkip Missed = "skip" // none
	MissedAll  Missed = "all"  // one each
)

// Overlap is the handling of a tick while the task of an earlier one has not ended.
type Overlap string

// Handling of overlapping ticks.
const (
	OverlapAllow Overlap = "allow" // the default
	OverlapSkip  Overlap = "skip"
)

// MaxJitter bounds the deliberate delay of a tick.
const MaxJitter = 24 * time.Hour

// Fill sets defaults for fields that were not set.
func (s *Schedule) Fill() {
	if s.Missed == "" {
		s.Missed = MissedOnce
	}
	if s.Overlap == "" {
		s.Overlap = OverlapAllow
	}
	s.Task.Fill()
}

// Check refuses a filled schedule that breaks a rule. The error names field, value and rule. It does not check that the times make
// sense and are within bounds: schedule.CheckSpec does.
func (s *Schedule) Check(l Limits) error {
	if err := CheckSchedule("name", s.Name, l); err != nil {
		return err
	}
	switch {
	case s.Cron == "" && s.Every == 0:
		return Invalid("cron", "is required, unless every is given")
	case s.Cron != "" && s.Every != 0:
		return Invalid("every", "%v is given together with cron: only one of them is allowed", s.Every)
	case s.Every != 0 && s.TimeZone != "":
		return Invalid("time_zone", "%q is given together with every, which has no time zone", clip(s.TimeZone))
	case s.Jitter < 0 || s.Jitter > MaxJitter:
		return Invalid("jitter", "%v is not between 0 and %v", s.Jitter, MaxJitter)
	case s.Missed != MissedOnce && s.Missed != MissedSkip && s.Missed != MissedAll:
		return Invalid("missed", "%q is not skip, once or all", clip(string(s.Missed)))
	case s.Overlap != OverlapAllow && s.Overlap != OverlapSkip:
		return Invalid("overlap", "%q is not allow or skip", clip(string(s.Overlap)))
	}
	if err := CheckName("owner", s.Owner, l); err != nil {
		return err
	}
	return s.checkTask(l)
}

// overlapKey is the prefix of the unique key of a schedule whose ticks must not overlap.
const overlapKey = "schedule:"

// IsOverlap reports whether a unique key is that of ticks which must not overlap.
func IsOverlap(u *Unique) bool { return u != nil && strings.HasPrefix(u.Key, overlapKey) }

// TickSpec returns the task of a tick. Ticks that must not overlap share a unique key, which is held until the task has ended.
func (s *Schedule) TickSpec() Spec {
	spec := s.Task
	if s.Overlap == OverlapSkip {
		spec.Unique = &Unique{Key: overlapKey + s.Name, States: Unfinished, OnConflict: Keep}
	}
	return spec
}

// checkTask refuses a template that can't become a task at every tick.
func (s *Schedule) checkTask(l Limits) error {
	t := &s.Task
	switch {
	case t.Delay != 0:
		return Invalid("task.delay", "%v is given, but the schedule determines when tasks run", t.Delay)
	case !t.RunAt.IsZero():
		return Invalid("task.run_at", "%s is given, but the schedule determines when tasks run", t.RunAt.Format(time.RFC3339))
	case t.IdempotencyKey != "":
		return Invalid("task.idempotency_key", "%q would let only the first tick create a task", clip(t.IdempotencyKey))
	case t.RequestID != (ID{}):
		return Invalid("task.request_id", "%s would let only the first tick create a task", t.RequestID)
	case t.Member != nil:
		return Invalid("task.group_id", "%s is given, but once the group is complete every tick would be refused", t.Member.Group)
	}
	if t.Unique != nil && s.Overlap == OverlapSkip {
		return Invalid("task.unique", "%q is given together with overlap skip, which uses its own unique key", clip(t.Unique.Key))
	}
	if s.Overlap == OverlapSkip && len(overlapKey)+len(s.Name) > l.Name {
		return Invalid("name", "%q has %d bytes: with overlap skip at most %d are allowed", clip(s.Name), len(s.Name),
			l.Name-len(overlapKey))
	}
	return prefixField("task", t.Check(l))
}

// CheckSchedule refuses a name that is unsuitable for a URL or a file.
func CheckSchedule(field, name string, l Limits) error { return CheckQueue(field, name, l) }

const scheduleVersion = 1

// Encode returns the stored form. Equal schedules have the same form, whether they state empty values or leave them out.
func (s *Schedule) Encode() []byte {
	c := *s
	c.Task = s.Task.normalized()
	b, err := json.Marshal(&c)
	if err != nil {
		panic(err) // only finite numbers and years below 10,000 pass Check
	}
	return append([]byte{scheduleVersion}, b...)
}

// normalized returns the spec without empty values and defaults.
func (s Spec) normalized() Spec {
	if len(s.Payload) == 0 {
		s.Payload = nil
	}
	if len(s.Tags) == 0 {
		s.Tags = nil
	}
	if len(s.Headers) == 0 {
		s.Headers = nil
	}
	if s.Cost == 1 {
		s.Cost = 0
	}
	s.Then = slices.Clone(s.Then)
	for i := range s.Then {
		s.Then[i] = s.Then[i].normalized()
	}
	return s
}

// DecodeSchedule is the inverse of Encode.
func DecodeSchedule(b []byte) (s Schedule, err error) {
	if len(b) == 0 || b[0] != scheduleVersion {
		return s, fmt.Errorf("schedule of %d bytes: unknown format", len(b))
	}
	if err := json.Unmarshal(b[1:], &s); err != nil {
		return s, fmt.Errorf("schedule: %w", err)
	}
	return s, nil
}

// Edited returns the editable fields.
func (s *Schedule) Edited() Edited {
	only := Schedule{Task: s.Task}
	return Edited{{"cron", s.Cron}, {"every", s.Every}, {"time_zone", s.TimeZone}, {"jitter", s.Jitter}, {"missed", s.Missed},
		{"overlap", s.Overlap}, {"owner", s.Owner}, {"task", only.Encode()}}
}

// Equal reports whether two schedules are the same.
func (s *Schedule) Equal(o *Schedule) bool { return bytes.Equal(s.Encode(), o.Encode()) }
