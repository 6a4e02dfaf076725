package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// scheduleStep is a step of a story about schedules. The tasks of ticks are named t1, t2 … like others, in the order of the history.
func (s *story) scheduleStep(d *datadriven.TestData) string {
	name := d.CmdArgs[0].Key
	s.versions++
	switch d.Cmd {
	case "schedule":
		return s.putSchedule(d)
	case "unschedule":
		version := s.versions
		if d.HasArg("late") {
			version = 1
		}
		existed, err := onSchedule(s, task.ScheduleDeleted, name, func(r *engine.Round) (bool, error) {
			return schedule.Delete(r, "default", name, version)
		})
		return answer(err, "existed %t", existed)
	case "pause-schedule":
		v, err := onSchedule(s, task.SchedulePaused, name, func(r *engine.Round) (*schedule.View, error) {
			return schedule.Pause(r, "default", name, arg(d, "reason"), s.by.Name)
		})
		return answerView(s, v, err)
	case "resume-schedule":
		v, err := onSchedule(s, task.ScheduleResumed, name, func(r *engine.Round) (*schedule.View, error) {
			return schedule.Resume(r, "default", name)
		})
		return answerView(s, v, err)
	case "trigger":
		return s.trigger(d)
	case "history":
		return s.history(d)
	case "outbox":
		var lines []string
		for _, p := range s.Messages(100) {
			lines = append(lines, s.message(p))
		}
		slices.Sort(lines)
		if lines == nil {
			return "empty"
		}
		return strings.Join(lines, "\n")
	}
	return s.sendOutbox(d)
}

func (s *story) putSchedule(d *datadriven.TestData) string {
	put := schedule.PutCall{ID: s.NewID(), Version: s.versions, Create: d.HasArg("create"), DryRun: d.HasArg("dry-run"),
		Schedule: task.Schedule{Name: d.CmdArgs[0].Key, Cron: strings.ReplaceAll(arg(d, "cron"), "_", " "),
			Every: duration(arg(d, "every")), TimeZone: arg(d, "zone"), Jitter: duration(arg(d, "jitter")),
			Missed: task.Missed(arg(d, "missed")), Overlap: task.Overlap(arg(d, "overlap")), Task: task.Spec{Type: arg(d, "type"),
				Queue: arg(d, "queue"), Key: arg(d, "key"), Delay: duration(arg(d, "delay")), Headers: headersOf(arg(d, "headers"))}}}
	if v := arg(d, "unique"); v != "" {
		put.Schedule.Task.Unique = &task.Unique{Key: v}
	}
	if d.HasArg("late") {
		put.Version = 1
	}
	if put.Schedule.Task.Type == "" {
		put.Schedule.Task.Type = "job"
	}
	put.Schedule.Fill()
	done, err := onSchedule(s, task.SchedulePut, put.Schedule.Name, func(r *engine.Round) (schedule.PutDone, error) {
		return schedule.Put(r, "default", put)
	})
	if err != nil {
		return answer(err, "")
	}
	return string(done.Change) + ", " + answerView(s, done.After, nil)
}

func answerView(s *story, v *schedule.View, err error) string {
	switch {
	case err != nil:
		return answer(err, "")
	case v.PausedAt != 0:
		return fmt.Sprintf("paused since %s: %s", v.PausedAt.Time().Format(time.DateTime), v.Reason)
	case v.Next == 0:
		return "never due"
	}
	return "next at " + v.Next.Time().Format(time.DateTime)
}

func (s *story) trigger(d *datadriven.TestData) string {
	call := schedule.Trigger{Request: task.ID{15: byte(number(arg(d, "request")))}, ID: s.NewID()}
	type done struct {
		a  engine.Accepted
		on *schema.Message
	}
	out, err := onSchedule(s, task.ScheduleTriggered, d.CmdArgs[0].Key, func(r *engine.Round) (out done, err error) {
		out.a, out.on, err = schedule.Fire(r, "default", d.CmdArgs[0].Key, call)
		return out, err
	})
	if err != nil || out.on != nil {
		return answer(err, "on its way")
	}
	return s.know(out.a.ID) + " " + out.a.State.String()
}

// know gives a task its name if it has none.
func (s *story) know(id task.ID) string {
	if id != (task.ID{}) && !slices.Contains(s.tasks, id) {
		s.tasks = append(s.tasks, id)
	}
	return s.name(id)
}

func (s *story) history(d *datadriven.TestData) string {
	ticks, err := schedule.History(s.Store, "default", d.CmdArgs[0].Key, 0, max(number(arg(d, "limit")), 1))
	if err != nil {
		return answer(err, "")
	}
	slices.Reverse(ticks)
	var b strings.Builder
	for _, t := range ticks {
		fmt.Fprintf(&b, "%d", t.Seq)
		if t.Planned != 0 {
			fmt.Fprintf(&b, " %s", t.Planned.Time().Format(time.DateTime))
		}
		if t.Until != 0 {
			fmt.Fprintf(&b, " … %s (%d)", t.Until.Time().Format(time.DateTime), t.Count)
		}
		fmt.Fprintf(&b, " %s", t.Outcome)
		if t.Reason != "" {
			fmt.Fprintf(&b, ": %s", t.Reason)
		}
		if t.Outcome != schema.TickSkipped && t.Late() > 0 {
			fmt.Fprintf(&b, ", late by %s", t.Late())
		}
		if t.Task != (task.ID{}) {
			fmt.Fprintf(&b, ", %s", s.know(t.Task))
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "empty"
	}
	return b.String()
}

// sendOutbox delivers messages to their shard, which is this one again after its queue has returned, or reports them as refused.
func (s *story) sendOutbox(d *datadriven.TestData) string {
	var lines []string
	for _, p := range s.Messages(100) {
		var a engine.Accepted
		var refused *task.Error
		for range max(number(arg(d, "times")), 1) {
			var err error
			a, err = s.deliver(p.Spec)
			errors.As(err, &refused)
		}
		stays := false
		s.Round(func(r *engine.Round) { stays = engine.Delivered(r, "default", p.Request, a, refused) })
		switch {
		case stays:
			lines = append(lines, "stays: "+string(refused.Code))
		case refused != nil:
			lines = append(lines, "refused: "+string(refused.Code))
		default:
			lines = append(lines, s.know(a.ID)+" "+a.State.String())
		}
	}
	return strings.Join(lines, "\n")
}

func (s *story) message(p *schema.Message) string {
	if p.From.Schedule != "" {
		return fmt.Sprintf("%s of %s/%s, tick %d", p.From.Schedule, p.Spec.Queue, p.Spec.Type, p.From.Tick)
	}
	switch {
	case p.Notice != nil:
		return fmt.Sprintf("notice of %s", s.name(p.Notice.ID))
	case p.Cancel != (task.ID{}):
		return fmt.Sprintf("cancel %s", s.name(p.Cancel))
	case p.From.Operation != (task.ID{}):
		return fmt.Sprintf("%s/%s, moved", p.Spec.Queue, p.Spec.Type)
	case p.Spec.Moved != nil:
		return fmt.Sprintf("%s/%s, back", p.Spec.Queue, p.Spec.Type)
	case p.From.Parent == (task.ID{}):
		return fmt.Sprintf("%s/%s of %s", p.Spec.Queue, p.Spec.Type, s.groupName(p.Spec.Member.Group))
	}
	return fmt.Sprintf("%s/%s behind %s", p.Spec.Queue, p.Spec.Type, s.name(p.From.Parent))
}

// byRouter is the version of a task that a router with the newest map sends, once it has asked the other shards.
const byRouter = 1000

// deliver enqueues a message from the leader's sender, as the shard of its queue does.
func (s *story) deliver(spec task.Spec) (engine.Accepted, error) {
	spec.Routed = byRouter
	n := &engine.NewTask{Spec: spec, Namespace: "default", ID: s.NewID()}
	if !hasQueue(s.World, spec.Queue) {
		s.PutQueue(spec.Queue, task.DefaultSettings(), false)
	}
	return engine.Run(s.World, func(r *engine.Round) (engine.Accepted, error) { return engine.Enqueue(r, n) })
}

// However leaders change, and however late they are, each tick up to now is in the history once, and each that fired has one task.
func TestTicksOnce(t *testing.T) {
	for seed := range uint64(40) {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		missed := []task.Missed{task.MissedAll, task.MissedOnce, task.MissedSkip}[seed%3]
		s := task.Schedule{Name: "s", Every: time.Duration(1+seed%5) * 7 * time.Second, Missed: missed,
			Jitter: time.Duration(seed%2) * 5 * time.Second, Task: task.Spec{Type: "job"}}
		s.Fill()
		if _, err := engine.Run(w, func(r *engine.Round) (schedule.PutDone, error) {
			return schedule.Put(r, "default", schedule.PutCall{Schedule: s, ID: w.NewID(), Version: 1})
		}); err != nil {
			t.Fatal(err)
		}
		began := w.Now
		for step := range uint64(60) {
			switch x := task.Mix(seed<<32 | step); {
			case x%4 == 0:
				w.BecomeLeader()
			case x%4 == 1:
				w.Now = w.Now.Add(time.Duration(x>>8%200) * time.Second) // no leader
				w.BecomeLeader()
			default:
				w.Pass(time.Duration(x>>8%100) * time.Second)
			}
		}
		w.Pass(10 * time.Second)
		if found := engine.CheckAll(w.Store, "default"); len(found) > 0 {
			t.Fatalf("seed %d: Check found %q", seed, found)
		}
		ticks, err := schedule.History(w.Store, "default", "s", 0, 2000)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(ticks)
		tasks := map[task.ID]bool{}
		next := began.Add(s.Every)
		for _, e := range ticks {
			if e.Planned != next {
				t.Fatalf("seed %d: entry %d is for %s, want %s", seed, e.Seq, e.Planned.Time(), next.Time())
			}
			if next = e.Planned.Add(s.Every); e.Until != 0 {
				next = e.Until.Add(s.Every)
			}
			if e.Outcome == schema.TickSkipped && missed == task.MissedAll {
				t.Errorf("seed %d: the tick of %s was skipped: %s", seed, e.Planned.Time(), e.Reason)
			}
			if e.Outcome == schema.TickSkipped {
				continue
			}
			if _, err := query.Show(w.Store, "default", e.Task); err != nil || tasks[e.Task] {
				t.Errorf("seed %d: the task of the tick of %s is missing or belongs to two ticks (%v)", seed, e.Planned.Time(), err)
			}
			if early := e.At < e.Planned; early || e.Outcome == schema.TickFired && e.Late() > schedule.TickGrace+s.Jitter {
				t.Errorf("seed %d: the tick of %s fired %s late", seed, e.Planned.Time(), e.Late())
			}
			tasks[e.Task] = true
		}
		if behind := w.Now.Sub(next); behind > s.Jitter {
			t.Errorf("seed %d: the tick of %s is overdue by %s", seed, next.Time(), behind)
		}
		all := 0
		for _, state := range []task.State{task.Ready} {
			p, err := query.List(w.Store, "default", query.Filter{States: []task.State{state}}, nil, 10_000)
			if err != nil {
				t.Fatal(err)
			}
			all += len(p.Tasks)
		}
		if all != len(tasks) {
			t.Errorf("seed %d: %d tasks exist for %d ticks that fired", seed, all, len(tasks))
		}
	}
}

// The history of a schedule that fires for long stays short.
func TestHistoryIsBounded(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	s := task.Schedule{Name: "s", Every: time.Second, Task: task.Spec{Type: "job"}}
	s.Fill()
	if _, err := engine.Run(w, func(r *engine.Round) (schedule.PutDone, error) {
		return schedule.Put(r, "default", schedule.PutCall{Schedule: s, ID: w.NewID(), Version: 1})
	}); err != nil {
		t.Fatal(err)
	}
	w.Pass((schedule.HistoryLength + 50) * time.Second)
	ticks, err := schedule.History(w.Store, "default", "s", 0, 5000)
	if err != nil || len(ticks) != schedule.HistoryLength || ticks[0].Seq != schedule.HistoryLength+50 {
		t.Errorf("History has %d entries (%v)", len(ticks), err)
	}
	if older, err := schedule.History(w.Store, "default", "s", ticks[9].Seq, 3); err != nil || len(older) != 3 ||
		older[0].Seq != ticks[10].Seq {
		t.Errorf("History after entry %d = %v, %v", ticks[9].Seq, older, err)
	}
	if found := engine.CheckAll(w.Store, "default"); len(found) > 0 {
		t.Errorf("Check found %q", found)
	}
}

// The outcome of a tick's task in another shard is added to the history, even if it was refused.
func TestHistoryCoversOtherShards(t *testing.T) {
	running := task.NewID(2, 1, 1)
	for name, c := range map[string]struct {
		answer  engine.Accepted
		refused *task.Error
		outcome schema.TickOutcome
		reason  string
	}{
		"made":     {engine.Accepted{ID: running}, nil, schema.TickFired, ""},
		"repeated": {engine.Accepted{ID: running, Duplicate: true}, nil, schema.TickFired, ""},
		"overlaps": {engine.Accepted{ID: running, Duplicate: true, KeyTaken: true}, nil, schema.TickSkipped, schedule.SkippedOverlap},
		"refused":  {engine.Accepted{}, &task.Error{Code: task.CodeQueueFull}, schema.TickSkipped, "queue_full"},
	} {
		t.Run(name, func(t *testing.T) {
			w := engine.NewWorld(t)
			s := task.Schedule{Name: "s", Every: time.Minute, Overlap: task.OverlapSkip, Task: task.Spec{Type: "job"}}
			s.Fill()
			w.Round(func(r *engine.Round) {
				if _, err := schedule.Put(r, "default", schedule.PutCall{Schedule: s, ID: w.NewID(), Version: 1}); err != nil {
					t.Fatal(err)
				}
			})
			w.Pass(time.Minute)
			messages := w.Messages(10)
			if len(messages) != 1 || messages[0].Spec.RequestID == (task.ID{}) || messages[0].Spec.RequestTTL != task.MessageWindow {
				t.Fatalf("the outbox has %+v", messages)
			}
			for range 2 { // the leader's sender may report it twice
				w.Round(func(r *engine.Round) { engine.Delivered(r, "default", messages[0].Request, c.answer, c.refused) })
			}
			ticks, err := schedule.History(w.Store, "default", "s", 0, 10)
			if err != nil || len(ticks) != 1 || ticks[0].Outcome != c.outcome || ticks[0].Reason != c.reason ||
				ticks[0].Task != c.answer.ID {
				t.Errorf("History has %+v, %v", ticks[0], err)
			}
			if left := w.Messages(10); len(left) > 0 {
				t.Errorf("the outbox still has %+v", left)
			}
		})
	}
}

// With more schedules than can fire in one round, whose names are prefixes of each other, none is skipped.
func TestAllAtOnce(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	const many = 12*engine.CreateLimit + 3
	for i := range many {
		s := task.Schedule{Name: fmt.Sprintf("s%d", i), Cron: "0 0 * * *", Task: task.Spec{Type: "job"}}
		s.Fill()
		w.Round(func(r *engine.Round) {
			if _, err := schedule.Put(r, "default", schedule.PutCall{Schedule: s, ID: w.NewID(), Version: 1}); err != nil {
				t.Fatal(err)
			}
		})
	}
	for day := range 3 {
		w.Pass(24 * time.Hour)
		if got := w.ReadyIn("default"); got != int64((day+1)*many) {
			t.Errorf("after day %d there are %d tasks, want %d", day+1, got, (day+1)*many)
		}
	}
}

// BenchmarkSchedules fires schedules that are all due at the same time: the figure is per tick.
func BenchmarkSchedules(b *testing.B) {
	w := engine.NewWorld(b)
	w.PutQueue("default", task.DefaultSettings(), false)
	put := func(name string) {
		s := task.Schedule{Name: name, Cron: "0 0 * * *", TimeZone: "Europe/Berlin", Task: task.Spec{Type: "job",
			Payload: []byte(`{"a":1}`)}}
		s.Fill()
		w.Round(func(r *engine.Round) {
			if _, err := schedule.Put(r, "default", schedule.PutCall{Schedule: s, ID: w.NewID(), Version: 1}); err != nil {
				b.Fatal(err)
			}
		})
	}
	many := engine.Size(10_000)
	for i := range many {
		put(fmt.Sprintf("s%d", i))
	}
	worst := time.Duration(0)
	b.ResetTimer()
	for int(w.ReadyIn("default")) < b.N {
		w.Now = max(w.Now, w.Leader.NextDeadline())
		began := time.Now()
		w.Round(engine.Tick)
		worst = max(worst, time.Since(began))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(w.ReadyIn("default")), "ns/tick")
	b.ReportMetric(float64(worst.Microseconds()), "us/longest-round")
}
