package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// hourly returns an hourly schedule for a queue.
func hourly(name, queue string) task.Schedule {
	s := task.Schedule{Name: name, Every: time.Hour, Task: task.Spec{Type: "job", Queue: queue}}
	s.Fill()
	return s
}

// put puts a schedule.
func put(w *engine.World, call schedule.PutCall) (schedule.PutDone, error) {
	w.Now = w.Now.Add(time.Second)
	call.ID = w.NewID()
	return engine.Run(w, func(r *engine.Round) (schedule.PutDone, error) { return schedule.Put(r, "default", call) })
}

// A put whose answer was lost is answered again as it was, also if the calls before it ran in the same round, at the same time.
func TestRepeatedPutsOfOneRound(t *testing.T) {
	w := engine.NewWorld(t)
	answers, err := engine.Run(w, func(r *engine.Round) (answers []schedule.Change, err error) {
		for _, version := range []uint64{1, 1, 2, 2} {
			s := hourly("s", fmt.Sprint("queue-", version))
			done, err := schedule.Put(r, "default", schedule.PutCall{Schedule: s, ID: task.NewID(1, 1, version), Version: version})
			if err != nil {
				return nil, err
			}
			answers = append(answers, done.Change)
		}
		return answers, nil
	})
	if want := []schedule.Change{schedule.Created, schedule.Created, schedule.Updated, schedule.Updated}; err != nil ||
		!slices.Equal(answers, want) {
		t.Errorf("two puts, each repeated, are answered with %v, %v, want %v", answers, err, want)
	}
}

// Schedules are listed in pages, to callers who may see the queues of their tasks.
func TestListOfSchedules(t *testing.T) {
	w := engine.NewWorld(t)
	for i, queue := range []string{"mail", "shop", "mail", "shop"} {
		if _, err := put(w, schedule.PutCall{Schedule: hourly(fmt.Sprint("s", i), queue), Version: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	all, shop := task.Scope{}, task.Scope{Queues: []string{"sh*"}}
	for _, c := range []struct {
		scope  task.Scope
		behind string
		limit  int
		want   string
	}{
		{all, "", 9, "s0 s1 s2 s3 false"}, {all, "", 4, "s0 s1 s2 s3 false"}, {all, "", 3, "s0 s1 s2 true"}, {all, "s1", 9, "s2 s3 false"},
		{all, "s", 1, "s0 true"}, {shop, "", 9, "s1 s3 false"}, {shop, "", 1, "s1 true"}, {shop, "s1", 1, "s3 false"},
		{shop, "s3", 9, "false"},
	} {
		page, got := schedule.List(w.Store, "default", c.scope, c.behind, c.limit), ""
		for _, v := range page.Schedules {
			got += v.Name + " "
			if len(v.Coming) > 0 {
				t.Errorf("a list includes coming ticks: %v", v.Coming)
			}
		}
		if got += fmt.Sprint(page.More); got != c.want {
			t.Errorf("List with %+v = %s", c, got)
		}
	}
	w.Round(func(r *engine.Round) {
		for name, want := range map[string]bool{"s0": false, "s1": true, "none": true} {
			if err := schedule.Within(r, shop, "default", name); (err == nil) != want || err != nil && !errors.Is(err, task.ErrNotFound) {
				t.Errorf("schedule %s for a caller that may see shops: %v", name, err)
			}
			if err := schedule.Within(r, all, "default", name); err != nil {
				t.Errorf("schedule %s for a caller that may see everything: %v", name, err)
			}
		}
	})
	v, err := schedule.Show(w.Store, "default", "s0")
	if err != nil || len(v.Coming) != 4 || v.Coming[0] != v.Planned.Add(time.Hour) || v.Coming[3] != v.Planned.Add(4*time.Hour) {
		t.Errorf("the ticks after %d are %v, %v", v.Planned, v.Coming, err)
	}
	paused, err := engine.Run(w, func(r *engine.Round) (*schedule.View, error) {
		return schedule.Pause(r, "default", "s0", "lunch", "ada")
	})
	if err != nil || paused.Planned != 0 || len(paused.Coming) != 0 {
		t.Errorf("a paused schedule has the next tick %d and then %v, %v", paused.Planned, paused.Coming, err)
	}
	if _, err := schedule.Show(w.Store, "default", "none"); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("Show of an unknown schedule: %v, want ErrNotFound", err)
	}
}

// A page of large schedules is bounded by the bytes read.
func TestPagesOfLargeSchedules(t *testing.T) {
	w := engine.NewWorld(t)
	for i := range 8 {
		s := hourly(fmt.Sprint("s", i), "mail")
		s.Task.Payload = make([]byte, 900<<10)
		if _, err := put(w, schedule.PutCall{Schedule: s, Version: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	pages, behind := []int{}, ""
	for more := true; more; {
		page := schedule.List(w.Store, "default", task.Scope{}, behind, 100)
		pages, more = append(pages, len(page.Schedules)), page.More
		behind = page.Schedules[len(page.Schedules)-1].Name
	}
	if fmt.Sprint(pages) != "[6 2]" { // each is 1.2 MiB as JSON
		t.Errorf("eight schedules were listed in pages of %v, want 6 and 2", pages)
	}
}

// A put based on an outdated version changes nothing.
func TestPutOfASeenSchedule(t *testing.T) {
	w := engine.NewWorld(t)
	s := hourly("s", "mail")
	if _, err := put(w, schedule.PutCall{Schedule: s, Version: 1, IfETag: "x"}); !errors.Is(err, task.ErrConflict) {
		t.Errorf("a put with the etag of a schedule that does not exist: %v, want a conflict", err)
	}
	done, err := put(w, schedule.PutCall{Schedule: s, Version: 2})
	if err != nil || done.Change != schedule.Created || done.Before != nil {
		t.Fatalf("the first put: %+v, %v, want created", done, err)
	}
	seen := done.After.ETag()
	if done, err = put(w, schedule.PutCall{Schedule: s, Version: 3, IfETag: "x"}); err != nil || done.Change != schedule.Unchanged {
		t.Errorf("a put without changes: %+v, %v, want unchanged", done, err)
	}
	s.Every = 2 * time.Hour
	if _, err = put(w, schedule.PutCall{Schedule: s, Version: 4, IfETag: "x"}); err == nil {
		t.Error("a put with an outdated etag was accepted")
	}
	if done, err = put(w, schedule.PutCall{Schedule: s, Version: 5, IfETag: seen}); err != nil || done.Change != schedule.Updated ||
		done.Before.Every != time.Hour {
		t.Errorf("a put with the current etag: %+v, %v, want updated", done, err)
	}
	if again, err := put(w, schedule.PutCall{Schedule: s, Version: 5, IfETag: seen}); err != nil || again.Change != schedule.Updated {
		t.Errorf("a repeated put: %+v, %v, want updated", again, err)
	}
	if _, err = put(w, schedule.PutCall{Schedule: s, Version: 4}); !errors.Is(err, schedule.ErrRaced) {
		t.Errorf("a put of an older version: %v, want ErrRaced", err)
	}
	s.Every = 3 * time.Hour
	if _, err = put(w, schedule.PutCall{Schedule: s, Version: 6, Create: true}); !errors.Is(err, task.ErrConflict) {
		t.Errorf("a put that must create an existing schedule: %v, want a conflict", err)
	}
	if done, err = put(w, schedule.PutCall{Schedule: s, Version: 1, DryRun: true}); err != nil || done.Change != schedule.Updated {
		t.Errorf("a dry run: %+v, %v, want updated", done, err)
	}
	if v, err := schedule.Show(w.Store, "default", "s"); err != nil || v.Every != 2*time.Hour {
		t.Errorf("Show = %+v, %v, want every 2h", v, err)
	}
}

// A schedule is validated, and described in words.
func TestSchedulesAreChecked(t *testing.T) {
	for _, c := range []struct {
		change func(s *task.Schedule)
		field  string // that is refused
		words  string
	}{
		{func(*task.Schedule) {}, "", "every hour"},
		{func(s *task.Schedule) { s.Every, s.Cron = 0, "@daily" }, "", "at 00:00"},
		{func(s *task.Schedule) { s.Every = time.Millisecond }, "every", ""},
		{func(s *task.Schedule) { s.Every, s.Cron = 0, "x" }, "cron", ""},
		{func(s *task.Schedule) { s.Every, s.Cron = 0, "0 0 30 2 *" }, "cron", ""},
		{func(s *task.Schedule) { s.Every, s.Cron, s.TimeZone = 0, "@daily", "Nowhere/Town" }, "time_zone", ""},
		{func(s *task.Schedule) { s.Name = "" }, "name", ""},
	} {
		s := hourly("s", "mail")
		c.change(&s)
		s.Fill()
		err := schedule.CheckSpec(&s, task.DefaultLimits())
		var refused *task.Error
		if errors.As(err, &refused) != (c.field != "") || refused != nil && refused.Field != c.field {
			t.Errorf("CheckSpec(%+v) = %v, want field %q", s, err, c.field)
		}
		if got := schedule.Words(&s); c.words != "" && !strings.Contains(strings.ToLower(got), c.words) {
			t.Errorf("Words(%+v) = %q, want %q", s, got, c.words)
		}
	}
}

// Each change of a schedule is in the audit log, without the contents of its task.
func TestAuditOfSchedules(t *testing.T) {
	w := engine.NewWorld(t)
	entries := 0
	for i, change := range []func(s *task.Schedule){
		func(*task.Schedule) {},
		func(s *task.Schedule) { s.Task.Headers = map[string]string{"a": "1", "b": "2"} },
		func(s *task.Schedule) { s.Task.Headers = map[string]string{"a": "1", "b": "3"} },
		func(s *task.Schedule) { s.Task.Headers = map[string]string{"a": "1", "c": "2"} },
		func(s *task.Schedule) { s.Task.Unique = &task.Unique{Key: "secret"} },
		func(s *task.Schedule) { s.Task.Unique = &task.Unique{Key: "other"} },
		func(s *task.Schedule) { s.Task.Tags = []string{"x", "yz"} },
		func(s *task.Schedule) { s.Task.Tags = []string{"xy", "z"} },
		func(s *task.Schedule) { s.Task.Payload = []byte("secret") },
		func(s *task.Schedule) { s.Task.Queue = "shop" },
	} {
		s := hourly("s", "mail")
		change(&s)
		s.Fill()
		call := schedule.PutCall{Schedule: s, ID: w.NewID()}
		for again := range uint64(2) { // the second changes nothing
			call.Version = uint64(2*i+1) + again
			if _, err := engine.Run(w, func(r *engine.Round) (schedule.PutDone, error) {
				return schedule.Audited(r, task.Author{Name: "ada"}, task.SchedulePut, "default", "s", func() (schedule.PutDone, error) {
					return schedule.Put(r, "default", call)
				})
			}); err != nil {
				t.Fatal(err)
			}
		}
		entries++
		page, err := audit.Read(w.Store, 1, audit.Query{Namespace: "default"}, nil, 100)
		if err != nil || len(page.Entries) != entries {
			t.Fatalf("after change %d there are %d audit entries, want %d: %v", i, len(page.Entries), entries, err)
		}
		if newest := page.Entries[0]; newest.Queue != s.Task.Queue || strings.Contains(string(newest.Before)+string(newest.After),
			"secret") {
			t.Errorf("change %d is recorded as %s to %s in queue %q", i, newest.Before, newest.After, newest.Queue)
		}
	}
	if _, err := engine.Run(w, func(r *engine.Round) (bool, error) {
		return schedule.Audited(r, task.Author{Name: "ada"}, task.ScheduleDeleted, "default", "s", func() (bool, error) {
			return schedule.Delete(r, "default", "s", 100)
		})
	}); err != nil {
		t.Fatal(err)
	}
	if page, err := audit.Read(w.Store, 1, audit.Query{Namespace: "default"}, nil, 1); err != nil || page.Entries[0].Queue != "shop" ||
		page.Entries[0].After != nil {
		t.Errorf("the deletion is recorded as %+v, %v", page.Entries[0], err)
	}
}

// A trigger repeated within an hour finds its task, even behind other entries of the history.
func TestRepeatedTrigger(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("mail", task.DefaultSettings(), false)
	if _, err := put(w, schedule.PutCall{Schedule: hourly("s", "mail"), Version: 1}); err != nil {
		t.Fatal(err)
	}
	fire := func(request byte) engine.Accepted {
		a, err := engine.Run(w, func(r *engine.Round) (engine.Accepted, error) {
			a, _, err := schedule.Fire(r, "default", "s", schedule.Trigger{Request: task.ID{request}, ID: w.NewID()})
			return a, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := fire(1)
	if first.Duplicate {
		t.Error("the first trigger was reported as a duplicate")
	}
	for _, c := range []struct {
		pass time.Duration
		same bool
	}{{0, true}, {time.Minute, true}, {59 * time.Minute, true}, {time.Microsecond, false}} {
		w.Pass(c.pass)
		fire(2)
		if again := fire(1); again.Duplicate != c.same || (again.ID == first.ID) != c.same {
			t.Errorf("after another %v the trigger returned task %s, duplicate: %t, but the first was %s", c.pass, again.ID,
				again.Duplicate, first.ID)
		}
	}
	v, err := schedule.Show(w.Store, "default", "s")
	if err != nil {
		t.Fatal(err)
	}
	newest := v.Last.Seq
	for below, want := range map[uint64]uint64{0: newest, 1: 0, 2: 1, newest: newest - 1, newest + 1: newest, newest + 9: newest} {
		ticks, err := schedule.History(w.Store, "default", "s", below, 2)
		if err != nil || len(ticks) != int(min(want, 2)) || want > 0 && ticks[0].Seq != want {
			t.Errorf("History below %d = %+v, %v, want %d first", below, ticks, err, want)
		}
	}
}

// A deleted schedule is remembered for an hour: earlier calls change nothing.
func TestDeletedSchedule(t *testing.T) {
	w := engine.NewWorld(t)
	s := hourly("s", "far")
	drop := func(version uint64, want bool, refused error) {
		t.Helper()
		existed, err := engine.Run(w, func(r *engine.Round) (bool, error) { return schedule.Delete(r, "default", "s", version) })
		if existed != want || !errors.Is(err, refused) {
			t.Errorf("Delete with version %d: existed %t, %v", version, existed, err)
		}
	}
	fire := func() *schema.Message {
		on, err := engine.Run(w, func(r *engine.Round) (*schema.Message, error) {
			_, on, err := schedule.Fire(r, "default", "s", schedule.Trigger{Request: w.NewID(), ID: w.NewID()})
			return on, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	arrive := func(on *schema.Message, id task.ID) {
		w.Round(func(r *engine.Round) { engine.Delivered(r, "default", on.Request, engine.Accepted{ID: id}, nil) })
	}
	if _, err := put(w, schedule.PutCall{Schedule: s, Version: 3}); err != nil {
		t.Fatal(err)
	}
	old, older := fire(), fire()
	drop(2, false, schedule.ErrRaced)
	drop(3, false, schedule.ErrRaced)
	drop(4, true, nil)
	drop(4, true, nil)
	drop(5, false, nil)
	drop(4, false, nil)
	arrive(old, task.ID{1})
	for version, want := range []error{nil, nil, nil, nil, schedule.ErrRaced, schedule.ErrRaced, nil} {
		if version < 4 {
			continue
		}
		if _, err := put(w, schedule.PutCall{Schedule: s, Version: uint64(version)}); !errors.Is(err, want) {
			t.Errorf("Put with version %d: %v", version, err)
		}
	}
	newer := fire()
	fire()
	arrive(older, task.ID{2}) // the second is of a deleted schedule
	arrive(newer, task.ID{3})
	ticks, err := schedule.History(w.Store, "default", "s", 0, 9)
	if err != nil || len(ticks) != 2 || ticks[0].Task != (task.ID{}) || ticks[1].Task != (task.ID{3}) {
		t.Errorf("History = %+v, %v, want only the ticks after the deletion", ticks, err)
	}
	w.Pass(time.Hour - time.Minute)
	if n := rowsIn(w, schema.TableDeletion); n != 1 {
		t.Errorf("%d deleted schedules are remembered, want one", n)
	}
	w.Pass(2 * time.Minute)
	if n := rowsIn(w, schema.TableDeletion); n != 0 {
		t.Errorf("%d deleted schedules are remembered after an hour, want none", n)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}
