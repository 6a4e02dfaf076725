package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Schedule says when a task is to be enqueued again and again.
type Schedule struct {
	Name     string
	Cron     string        // an expression; or Every
	Every    time.Duration // an interval
	TimeZone string        // on whose clock Cron is read: an IANA name; "": UTC
	Jitter   time.Duration // each tick is late by a part of it, which differs from tick to tick
	Missed   Missed
	Overlap  Overlap
	// Owner names what the schedule comes from, such as a file in a repository: who applies that may find what is not in it any
	// more.
	Owner string
	Task  Spec
}

// Missed says what becomes of ticks that came while nobody could fire them.
type Missed string

// What can become of missed ticks.
const (
	MissedOnce Missed = "once" // one task for all of them; the default
	MissedSkip Missed = "skip" // none
	MissedAll  Missed = "all"  // one each
)

// Overlap says what becomes of a tick while the task of an earlier one has not ended.
type Overlap string

// What can become of a tick that overlaps.
const (
	OverlapAllow Overlap = "allow" // the default
	OverlapSkip  Overlap = "skip"
)

// MaxJitter is how late a tick may be on purpose.
const MaxJitter = 24 * time.Hour

// Fill puts defaults in place of what was not said.
func (s *Schedule) Fill() {
	if s.Missed == "" {
		s.Missed = MissedOnce
	}
	if s.Overlap == "" {
		s.Overlap = OverlapAllow
	}
	s.Task.Fill()
}

// Check refuses a filled schedule outside the rules, naming field, value and rule. Whether its times make sense, and are within
// their bounds, is said by whoever reads them: see engine.CheckSchedule.
func (s *Schedule) Check(l Limits) error {
	if err := CheckSchedule("name", s.Name, l); err != nil {
		return err
	}
	switch {
	case s.Cron == "" && s.Every == 0:
		return Invalid("cron", "is needed, or every")
	case s.Cron != "" && s.Every != 0:
		return Invalid("every", "%v is given beside cron: only one of them is allowed", s.Every)
	case s.Every != 0 && s.TimeZone != "":
		return Invalid("time_zone", "%q is given beside every, which looks at no clock on a wall", clip(s.TimeZone))
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

// overlapKey begins the unique key of the tasks of a schedule that must not overlap.
const overlapKey = "schedule:"

// IsOverlap says whether a unique key is that of ticks which must not overlap.
func IsOverlap(u *Unique) bool { return u != nil && strings.HasPrefix(u.Key, overlapKey) }

// TickSpec is the task of a tick. Where ticks must not overlap they share a unique key, which is held until the task has ended.
func (s *Schedule) TickSpec() Spec {
	spec := s.Task
	if s.Overlap == OverlapSkip {
		spec.Unique = &Unique{Key: overlapKey + s.Name, States: Unfinished, OnConflict: Keep}
	}
	return spec
}

// checkTask refuses a template that could not become a task at each tick.
func (s *Schedule) checkTask(l Limits) error {
	t := &s.Task
	switch {
	case t.Delay != 0:
		return Invalid("task.delay", "%v is given, but the schedule says when", t.Delay)
	case !t.RunAt.IsZero():
		return Invalid("task.run_at", "%s is given, but the schedule says when", t.RunAt.Format(time.RFC3339))
	case t.IdempotencyKey != "":
		return Invalid("task.idempotency_key", "%q would let only the first tick make a task", clip(t.IdempotencyKey))
	case t.RequestID != (ID{}):
		return Invalid("task.request_id", "%s would let only the first tick make a task", t.RequestID)
	case t.Member != nil:
		return Invalid("task.group_id", "%s would be complete at some tick", t.Member.Group)
	}
	if t.Unique != nil && s.Overlap == OverlapSkip {
		return Invalid("task.unique", "%q is given beside overlap skip, which uses a unique key of its own", clip(t.Unique.Key))
	}
	if s.Overlap == OverlapSkip && len(overlapKey)+len(s.Name) > l.Name {
		return Invalid("name", "%q has %d bytes: with overlap skip at most %d are allowed", clip(s.Name), len(s.Name), l.Name-len(overlapKey))
	}
	return within("task", t.Check(l))
}

// CheckSchedule refuses a name that would not be at home in a URL or a file.
func CheckSchedule(field, name string, l Limits) error { return CheckQueue(field, name, l) }

const scheduleVersion = 1

// Encode is the stored form. Two schedules that say the same have the same one, whether they say what is empty or leave it out.
func (s *Schedule) Encode() []byte {
	said := *s
	said.Task = s.Task.bare()
	b, err := json.Marshal(&said)
	if err != nil {
		panic(err) // only finite numbers and years below 10,000 get past Check
	}
	return append([]byte{scheduleVersion}, b...)
}

// bare is the spec without what is empty or says the default.
func (s Spec) bare() Spec {
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
		s.Then[i] = s.Then[i].bare()
	}
	return s
}

// DecodeSchedule is the inverse of Encode.
func DecodeSchedule(b []byte) (s Schedule, err error) {
	if len(b) == 0 || b[0] != scheduleVersion {
		return s, fmt.Errorf("schedule of %d bytes: unknown form", len(b))
	}
	if err := json.Unmarshal(b[1:], &s); err != nil {
		return s, fmt.Errorf("schedule: %w", err)
	}
	return s, nil
}

// Edited are the fields that are put.
func (s *Schedule) Edited() Edited {
	only := Schedule{Task: s.Task}
	return Edited{{"cron", s.Cron}, {"every", s.Every}, {"time_zone", s.TimeZone}, {"jitter", s.Jitter}, {"missed", s.Missed}, {"overlap", s.Overlap}, {"owner", s.Owner}, {"task", only.Encode()}}
}

// Equal says whether two schedules are the same.
func (s *Schedule) Equal(o *Schedule) bool { return bytes.Equal(s.Encode(), o.Encode()) }
