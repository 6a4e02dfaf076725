package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// While there is a leader, every tick creates a task, however long the jitter.
func TestJitterLongerThanTheInterval(t *testing.T) {
	for _, c := range []struct {
		every, jitter time.Duration
		missed        task.Missed
	}{
		{10 * time.Minute, 15 * time.Minute, task.MissedSkip}, {10 * time.Minute, 15 * time.Minute, task.MissedOnce},
		{10 * time.Minute, time.Hour, task.MissedAll}, {time.Hour, 24 * time.Hour, task.MissedSkip},
		{time.Hour, 24 * time.Hour, task.MissedOnce},
	} {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		s := task.Schedule{Name: "s", Every: c.every, Jitter: c.jitter, Missed: c.missed, Task: task.Spec{Type: "tick"}}
		s.Fill()
		if _, err := put(w, schedule.PutCall{Schedule: s, Version: 1}); err != nil {
			t.Fatal(err)
		}
		for range 5 * 24 {
			w.Pass(time.Hour)
		}
		ticks, err := schedule.History(w.Store, "default", "s", 0, 1000)
		if err != nil || len(ticks) < 50 {
			t.Fatalf("every %s: %d ticks in 5 days (%v)", c.every, len(ticks), err)
		}
		for _, e := range ticks {
			if late := e.At.Sub(e.Planned); e.Outcome != schema.TickFired || late < 0 || late > c.jitter {
				t.Fatalf("every %s, jitter %s, missed %s: the tick of %s is %s, %s after it, want it fired", c.every, c.jitter, c.missed,
					e.Planned.Time(), e.Outcome, late)
			}
		}
	}
}

// A tick that was planned under another release of the time zone database counts, although the rule does not have it any more.
func TestTickOfAnotherTimeZoneDatabase(t *testing.T) {
	for _, c := range []struct {
		missed task.Missed
		late   time.Duration
		want   string
	}{
		{task.MissedAll, 10 * time.Second, "01:30 fired"},
		{task.MissedAll, 2 * time.Minute, "01:30 caught_up"},
		{task.MissedOnce, 2 * time.Minute, "01:30 caught_up"},
		{task.MissedSkip, 2 * time.Minute, "01:30 skipped"},
		{task.MissedAll, 26 * time.Hour, "01:30 skipped, 02:30 caught_up, 02:30 caught_up"},
		{task.MissedAll, 2 * time.Hour, "01:30 skipped, 02:30 caught_up"},
		{task.MissedOnce, 26 * time.Hour, "02:30 skipped, 02:30 caught_up"},
		{task.MissedSkip, 26 * time.Hour, "02:30 skipped"},
	} {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		s := task.Schedule{Name: "s", Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Missed: c.missed, Task: task.Spec{Type: "tick"}}
		s.Fill()
		done, err := put(w, schedule.PutCall{Schedule: s, Version: 1})
		if err != nil {
			t.Fatal(err)
		}
		w.Round(func(r *engine.Round) { // as if Berlin had been given London's time
			key := schema.NameKey("default", schema.TablePlan, "s")
			row, _ := r.Tx().Get(key)
			r.Tx().Set(key, bytes.Replace(row, []byte("Europe/Berlin"), []byte("Europe/London"), 1))
		})
		w.Now = done.After.Next.Add(c.late)
		w.BecomeLeader()
		w.Pass(time.Second)
		ticks, err := schedule.History(w.Store, "default", "s", 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range ticks {
			got = fmt.Sprintf("%s %s, ", e.Planned.Time().Format("15:04"), e.Outcome) + got
		}
		v, err := schedule.Show(w.Store, "default", "s")
		if err != nil || v.Next <= w.Now || v.Next.Sub(w.Now) > 24*time.Hour || v.Next.Time().Format("15:04") != "02:30" {
			t.Errorf("missed %s, %s late: the next tick is %s (%v)", c.missed, c.late, v.Next.Time(), err)
		}
		if got != c.want+", " {
			t.Errorf("missed %s, %s late: %s want %s", c.missed, c.late, got, c.want)
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	}
}
