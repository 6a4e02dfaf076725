package stats

import (
	"maps"
	"slices"
	"time"
)

// Tick is the outcome of a schedule's tick, or of several that were skipped.
type Tick struct {
	Namespace, Schedule string
	Late                time.Duration // compared with the plan
	Skipped             int           // 0: it fired
	Reason              string        // why they were skipped
}

// ticks holds the figures of a namespace's schedules.
type ticks struct {
	named
	delay   Histogram         // since the process began
	skipped map[string]uint64 // by reason
	late    map[string]LateTick
}

// LateTick is a tick that was late or was skipped.
type LateTick struct {
	Schedule string
	At       time.Time
	Late     time.Duration
	Skipped  int // 0: it fired
}

const (
	// lateTick is from when on a tick counts as late, lateFor how long it is listed.
	lateTick = time.Minute
	lateFor  = time.Hour
	// maxLate bounds the schedules listed as late, maxReasons the reasons for skipping ticks.
	maxLate    = 100
	maxReasons = 50
)

// Tick counts the outcome of a tick.
func (r *Recorder) Tick(now time.Time, t Tick) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.schedules[t.Namespace]
	if s == nil || !r.current(&s.named) {
		s = &ticks{named: named{Queue: Queue{Namespace: t.Namespace}}, skipped: map[string]uint64{}, late: map[string]LateTick{}}
		r.schedules[t.Namespace] = s
	}
	s.last = now.Unix()
	r.current(&s.named)
	if t.Skipped == 0 {
		late := max(t.Late, 0)
		s.delay.observe(bucketOf(late), late)
	} else {
		reason := t.Reason
		if _, known := s.skipped[reason]; !known && len(s.skipped) >= maxReasons {
			reason = Other
		}
		s.skipped[reason] += uint64(t.Skipped) // #nosec G115 -- above 0
	}
	if t.Late < lateTick || t.Skipped > 0 && t.Reason != missedReason {
		return
	}
	s.forget(now)
	if _, known := s.late[t.Schedule]; known || len(s.late) < maxLate {
		s.late[t.Schedule] = LateTick{Schedule: t.Schedule, At: now, Late: t.Late, Skipped: t.Skipped}
	}
}

// missedReason is the reason of ticks that passed while no node could fire them. For other reasons ticks are skipped on purpose.
const missedReason = "missed"

func (s *ticks) forget(now time.Time) {
	maps.DeleteFunc(s.late, func(_ string, t LateTick) bool { return now.Sub(t.At) > lateFor })
}

// Late lists the schedules of a namespace whose last late tick is less than an hour ago, by name.
func (r *Recorder) Late(now time.Time, namespace string) (list []LateTick) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.schedules[namespace]
	if s == nil || !r.current(&s.named) {
		return nil
	}
	s.forget(now)
	for _, name := range slices.Sorted(maps.Keys(s.late)) {
		list = append(list, s.late[name])
	}
	return list
}
