package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// schedule puts a schedule.
func (w *world) schedule(s schedule) putAnswer {
	w.Helper()
	if s.Task.Type == "" {
		s.Task.Type = "job"
	}
	return ok[putAnswer](w)(w.api.PutSchedule(w.ctx(), s))
}

func (w *world) shown(name string) scheduleInfo {
	w.Helper()
	return ok[scheduleInfo](w)(w.api.Schedule(w.ctx(), name))
}

// history returns the whole history of a schedule, oldest first.
func (w *world) history(name string) []tick {
	w.Helper()
	return w.historyBy(name, 0)
}

// historyBy reads it in pages.
func (w *world) historyBy(name string, limit int) (all []tick) {
	w.Helper()
	for p := (part{Limit: limit}); ; {
		ticks, next, err := w.api.History(w.ctx(), name, p)
		must(w.T, err)
		if all = append(all, ticks...); next == "" {
			slices.Reverse(all)
			return all
		}
		if p.Cursor = next; limit > 0 && len(ticks) != limit {
			w.Fatalf("a page has %d entries, want %d", len(ticks), limit)
		}
	}
}

// historyText describes a history: "fired", "skipped: paused ×3".
func historyText(ticks []tick) (out []string) {
	for _, t := range ticks {
		words := t.Outcome
		if t.Reason != "" {
			words += ": " + t.Reason
		}
		if t.Count != 1 {
			words += fmt.Sprintf(" ×%d", t.Count)
		}
		out = append(out, words)
	}
	return out
}

func (w *world) scheduleNames(p part) (names []string, next string) {
	w.Helper()
	list, next, err := w.api.Schedules(w.ctx(), p)
	must(w.T, err)
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names, next
}

// until lets time pass until t.
func (w *world) until(t time.Time) {
	if d := t.Sub(w.now()); d > 0 {
		w.pass(span(d))
	}
}

// tickTime formats the planned time of a tick as tasks get it.
func tickTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func TestSchedulesPersist(t *testing.T) {
	tellAll(t, []story{
		{name: "a schedule is returned as it was put", tell: func(w *world) {
			all := schedule{Name: "nightly", Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Jitter: 5 * minute, Missed: "all",
				Overlap: "skip", Owner: "billing", Task: spec{Type: "report", Payload: `{"kind":"day"}`, ContentType: "application/json",
					Queue: "reports", Priority: "high", MaxAttempts: 3, Retry: retry{Initial: second, Factor: 2, Max: minute, Jitter: 0.5},
					Timeout: hour, ExpiresIn: 2 * hour, Retention: new(3 * hour), Key: "k", Cost: 2, Tags: []string{"night"},
					Headers: map[string]string{"a": "b"}}}
			a := w.schedule(all)
			is(w, "the change", a.Change, "created")
			is(w, "what was there", a.Before, nil)
			is(w, "the answer", a.After, scheduleInfo{schedule: all, ID: a.After.ID, ETag: a.After.ETag, CreatedAt: a.After.CreatedAt,
				// winter in Berlin
				UpdatedAt: a.After.CreatedAt, InWords: "At 02:30 every day", NextRunAt: a.After.NextRunAt,
				PlannedAt: time.Date(2000, 1, 1, 1,
					30, 0, 0, time.UTC),
				Coming: []time.Time{time.Date(2000, 1, 2, 1, 30, 0, 0, time.UTC), time.Date(2000, 1, 3, 1, 30, 0, 0, time.UTC),
					time.Date(2000, 1, 4, 1,
						30, 0, 0, time.UTC), time.Date(2000, 1, 5, 1, 30, 0, 0, time.UTC)}})
			jitter := a.After.NextRunAt.Sub(a.After.PlannedAt)
			is(w, "the jitter", jitter >= 0 && jitter <= 5*time.Minute, true)
			is(w, "as it is read", w.shown("nightly"), a.After)
			least := w.schedule(schedule{Name: "least", Every: minute})
			is(w, "what was not said", least.After.schedule, schedule{Name: "least", Every: minute, Task: spec{Type: "job"}}.filled())
		}},
		{name: "an identical put changes nothing, and a put with the same times keeps the next tick", tell: func(w *world) {
			s := schedule{Name: "s", Every: minute, Task: spec{Type: "job", Payload: "1"}}
			made := w.schedule(s).After
			w.pass(10 * second)
			is(w, "the same", w.schedule(s), putAnswer{"unchanged", made, &made})
			s.Task.Payload = "2"
			a := w.schedule(s)
			is(w, "another payload", a, putAnswer{"updated", w.shown("s"), &made})
			is(w, "its next tick", a.After.NextRunAt, made.NextRunAt)
			is(w, "when it was changed", a.After.UpdatedAt.After(made.UpdatedAt), true)
			s.Every = hour
			b := w.schedule(s)
			is(w, "another interval", b, putAnswer{"updated", w.shown("s"), &a.After})
			is(w, "it counts from now", b.After.NextRunAt.Sub(w.now()).Round(time.Second), time.Hour)
			is(w, "the id", b.After.ID, made.ID)
			is(w, "when it was made", b.After.CreatedAt, made.CreatedAt)
		}},
		{name: "a create does not change an existing schedule", tell: func(w *world) {
			s := schedule{Name: "s", Every: minute, Task: spec{Type: "job"}}
			made := ok[scheduleInfo](w)(w.api.CreateSchedule(w.ctx(), s))
			is(w, "the same again", ok[scheduleInfo](w)(w.api.CreateSchedule(w.ctx(), s)), made)
			s.Every = hour
			_, err := w.api.CreateSchedule(w.ctx(), s)
			w.refused("another", err, refusal{Code: "conflict", Field: "name"})
			is(w, "what is there", w.shown("s"), made)
		}},
		{name: "a dry run reports what would change, and changes nothing", tell: func(w *world) {
			s := schedule{Name: "s", Every: minute, Task: spec{Type: "job"}}
			a := ok[putAnswer](w)(w.api.TrySchedule(w.ctx(), s))
			is(w, "a new one", []any{a.Change, a.After.schedule, a.Before}, []any{"created", s.filled(), (*scheduleInfo)(nil)})
			_, err := w.api.Schedule(w.ctx(), "s")
			w.refused("it", err, refusal{Code: "not_found"})
			made := w.schedule(s).After
			is(w, "the same", ok[putAnswer](w)(w.api.TrySchedule(w.ctx(), s)), putAnswer{"unchanged", made, &made})
			s.Every = hour
			b := ok[putAnswer](w)(w.api.TrySchedule(w.ctx(), s))
			is(w, "another", []any{b.Change, b.After.Every, b.Before}, []any{"updated", hour, &made})
			is(w, "what is there", w.shown("s"), made)
		}},
		{name: "schedules of all shards are listed by name, in pages", gateway: true, shards: 3, tell: func(w *world) {
			var want []string
			homes := map[uint32]bool{}
			for _, name := range []string{"c", "a", "f", "b", "g", "e", "d"} {
				made := w.schedule(schedule{Name: name, Every: hour, Task: spec{Queue: "of-" + name}}).After
				id, err := task.ParseID(made.ID)
				must(w.T, err)
				homes[id.Shard()] = true
				want = append(want, name)
			}
			is(w, "the shards that they live in", len(homes), 3)
			slices.Sort(want)
			for limit := 1; limit <= 8; limit++ {
				var all []string
				p := part{Limit: limit}
				for pages := 1; ; pages++ {
					names, next := w.scheduleNames(p)
					if all, p.Cursor = append(all, names...), next; next == "" {
						break
					}
					is(w, "the length of a page", len(names), limit)
				}
				is(w, fmt.Sprintf("the list by %d", limit), all, want)
			}
		}},
		{name: "a deleted schedule is gone with its history, and can be created again", tell: func(w *world) {
			s := schedule{Name: "s", Every: 10 * second}
			old := w.schedule(s).After
			w.until(old.NextRunAt)
			is(w, "its history", historyText(w.history("s")), []string{"fired"})
			must(w.T, w.api.DeleteSchedule(w.ctx(), "s"))
			w.refused("again", w.api.DeleteSchedule(w.ctx(), "s"), refusal{Code: "not_found"})
			w.pass(minute)
			is(w, "the task of its tick stays, and none comes", len(w.list(filter{})), 1)
			made := w.schedule(s)
			is(w, "the change", made.Change, "created")
			is(w, "another id", made.After.ID != old.ID, true)
			is(w, "no history", len(w.history("s")), 0)
			w.until(made.After.NextRunAt)
			is(w, "its own", historyText(w.history("s")), []string{"fired"})
			is(w, "the tasks", len(w.list(filter{})), 2)
		}},
	})
}

func TestTicks(t *testing.T) {
	tellAll(t, []story{
		{name: "each tick creates a task at its time", tell: func(w *world) {
			s := w.schedule(schedule{Name: "s", Every: 10 * second, Task: spec{Payload: `{"n":1}`, Priority: "high", Key: "k",
				Tags: []string{"x"}, Headers: map[string]string{"a": "b", "pawl-schedule": "not this"}}}).After
			for n := range 3 {
				planned := s.NextRunAt.Add(time.Duration(n) * 10 * time.Second)
				c := w.one(claimCall{Queues: []string{"default"}, Wait: 20 * second})
				late := w.now().Sub(planned)
				is(w, fmt.Sprintf("whether tick %d is on time, late by %v", n, late), late >= 0 && late < 10*time.Millisecond, true)
				is(w, "its task", []any{c.Type, c.Payload, c.Priority, c.Key, c.Tags}, []any{"job", `{"n":1}`, "high", "k", []string{"x"}})
				is(w, "its headers", c.Headers, map[string]string{"a": "b", "pawl-schedule": "s", "pawl-scheduled-at": tickTime(planned)})
				w.ack(c)
				last := w.shown("s").Last
				is(w, "the history", *last, tick{Seq: int64(n) + 1, PlannedAt: planned, Count: 1, DecidedAt: last.DecidedAt,
					Outcome: "fired", TaskID: c.ID, Late: last.Late})
				is(w, "the next", w.shown("s").NextRunAt, planned.Add(10*time.Second))
			}
		}},
		{name: "a cron expression applies in its time zone", tell: func(w *world) {
			s := w.schedule(schedule{Name: "s", Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}).After
			w.until(s.NextRunAt.Add(-time.Second))
			w.nothing()
			w.pass(2 * second)
			c := w.claim()
			is(w, "its headers", c.Headers, map[string]string{"pawl-schedule": "s", "pawl-scheduled-at": "2000-01-01T01:30:00Z"})
			is(w, "the next", w.shown("s").NextRunAt, time.Date(2000, 1, 2, 1, 30, 0, 0, time.UTC))
		}},
		{name: "missed ticks are caught up with once, skipped, or fired one by one", tell: func(w *world) {
			for _, missed := range []string{"once", "skip", "all"} {
				w.schedule(schedule{Name: missed, Every: 10 * minute, Missed: missed, Task: spec{Queue: missed}})
			}
			w.pass(35 * minute) // asleep for most of it
			is(w, "once", historyText(w.history("once")), []string{"skipped: missed ×2", "caught_up"})
			is(w, "skip", historyText(w.history("skip")), []string{"skipped: missed ×3"})
			is(w, "all", historyText(w.history("all")), []string{"caught_up", "caught_up", "caught_up"})
			for i, late := range w.history("all") {
				is(w, "how late", late.Late, span(late.DecidedAt.Sub(late.PlannedAt)))
				is(w, "its tick", late.PlannedAt, w.history("all")[0].PlannedAt.Add(time.Duration(i)*10*time.Minute))
			}
			for queue, tasks := range map[string]int{"once": 1, "skip": 0, "all": 3} {
				is(w, "tasks of "+queue, len(w.list(filter{Queue: queue})), tasks)
			}
			skipped := w.history("skip")[0]
			is(w, "from the first to the last", skipped.Until.Sub(skipped.PlannedAt), 20*time.Minute)
			w.pass(5 * minute)
			is(w, "and then on time", historyText(w.history("skip"))[1:], []string{"fired"})
		}},
		{name: "a paused schedule creates no tasks, and the history shows it", tell: func(w *world) {
			s := w.schedule(schedule{Name: "s", Every: 10 * second}).After
			w.until(s.NextRunAt)
			p := ok[scheduleInfo](w)(w.api.PauseSchedule(w.ctx(), "s", "holidays"))
			is(w, "the pause", []any{p.Paused, p.PausedReason, p.PausedBy, p.PausedAt.Sub(w.now()).Round(time.Millisecond),
				p.NextRunAt.IsZero(), p.PlannedAt.IsZero()},
				[]any{true, "holidays", actor, time.Duration(0), true, true})
			is(w, "as it is read", w.shown("s"), p)
			is(w, "again", ok[scheduleInfo](w)(w.api.PauseSchedule(w.ctx(), "s", "holidays")), p)
			w.pass(35 * second)
			is(w, "the tasks", len(w.list(filter{})), 1)
			s.Task.Payload = "2"
			is(w, "a change ends no pause", w.schedule(s.schedule).After.Paused, true)
			r := ok[scheduleInfo](w)(w.api.ResumeSchedule(w.ctx(), "s"))
			is(w, "the resume", []any{r.Paused, r.PausedReason, r.PausedAt.IsZero(), r.NextRunAt}, []any{false, "", true,
				s.NextRunAt.Add(40 * time.Second)})
			is(w, "again", ok[scheduleInfo](w)(w.api.ResumeSchedule(w.ctx(), "s")), r)
			w.until(r.NextRunAt)
			is(w, "the history", historyText(w.history("s")), []string{"fired", "skipped: paused ×3", "fired"})
			is(w, "the tasks", len(w.list(filter{})), 2)
		}},
		{name: "a trigger creates a task besides the ticks, also during a pause", tell: func(w *world) {
			s := w.schedule(schedule{Name: "s", Every: hour, Task: spec{Payload: "1"}}).After
			trigger := func() claim {
				id, state, err := w.api.Trigger(w.ctx(), "s")
				must(w.T, err)
				is(w, "the state", state, "ready")
				c := w.claim()
				is(w, "the task", []string{c.ID, c.Type, c.Payload, c.Headers["pawl-schedule"], c.Headers["pawl-scheduled-at"]},
					[]string{id, "job", "1", "s", tickTime(w.now())})
				return c
			}
			first := trigger()
			is(w, "the next tick", w.shown("s").NextRunAt, s.NextRunAt)
			ok[scheduleInfo](w)(w.api.PauseSchedule(w.ctx(), "s", ""))
			second := trigger()
			ticks := w.history("s")
			is(w, "the history", historyText(ticks), []string{"triggered", "triggered"})
			is(w, "its tasks", []string{ticks[0].TaskID, ticks[1].TaskID}, []string{first.ID, second.ID})
			is(w, "no time was planned", ticks[0].PlannedAt.IsZero() && ticks[0].Late == 0, true)
			is(w, "still paused", w.shown("s").Paused, true)
		}},
		{name: "a history is read in pages, and keeps the newest entries", tell: func(w *world) {
			w.schedule(schedule{Name: "s", Every: second})
			w.pass(minute)
			all := w.history("s")
			is(w, "entries", len(all) >= 59, true)
			for i, t := range all {
				is(w, "an entry's number", t.Seq, int64(i+1))
			}
			ok[scheduleInfo](w)(w.api.PauseSchedule(w.ctx(), "s", ""))
			all = w.history("s")
			ticks, next, err := w.api.History(w.ctx(), "s", part{Limit: 7})
			must(w.T, err)
			is(w, "the newest", ticks[0], all[len(all)-1])
			ticks, _, err = w.api.History(w.ctx(), "s", part{Limit: 7, Cursor: next})
			must(w.T, err)
			is(w, "the next page", ticks[0], all[len(all)-8])
			_, _, err = w.api.Trigger(w.ctx(), "s")
			must(w.T, err)
			after, _, err := w.api.History(w.ctx(), "s", part{Limit: 7, Cursor: next})
			must(w.T, err)
			is(w, "the same page when there is more", after, ticks)
		}},
		{name: "a tick's task is subject to the limits and the pause of its queue", tell: func(w *world) {
			s := w.schedule(schedule{Name: "s", Every: 10 * second}).After
			w.put("default", settings{MaxLength: 1})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{}))
			w.until(s.NextRunAt.Add(10 * time.Second))
			is(w, "the history", historyText(w.history("s")), []string{"fired", "skipped: queue_full"})
			w.nothing()
			_, _, err := w.api.Trigger(w.ctx(), "s")
			w.refused("trigger", err, refusal{Code: "queue_full", RetryAfter: second})
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "default", pause{}))
			w.claim()
			w.pass(10 * second)
			is(w, "with room again", historyText(w.history("s")), []string{"fired", "skipped: queue_full", "fired"})
		}},
	})
}

// Ticks whose tasks belong to another shard than their schedule.
func TestTicksInAnotherShard(t *testing.T) {
	// far puts the schedule s in one shard, with a queue in another. It returns before anything has fired.
	far := func(w *world) (s schedule, next time.Time) {
		s = schedule{Name: "s", Every: 10 * second, Task: spec{Queue: "a", Type: "job"}}
		at := w.schedule(s).After
		w.enqueue(spec{Queue: "b"}) // so that it has a shard
		w.ack(w.one(from("b")))
		a, _ := w.testNode.copy.Queue(namespace, "a")
		b, _ := w.testNode.copy.Queue(namespace, "b")
		is(w, "that the shards differ", a.Shard != b.Shard, true)
		s.Task.Queue = "b"
		is(w, "its next tick", w.schedule(s).After.NextRunAt, at.NextRunAt)
		return s, at.NextRunAt
	}
	tellAll(t, []story{
		{name: "a tick's task in another shard is created once, and its id is in the history", gateway: true, shards: 2,
			tell: func(w *world) {
				_, next := far(w)
				for n := range 3 {
					c := w.one(claimCall{Queues: []string{"b"}, Wait: 20 * second})
					planned := next.Add(time.Duration(n) * 10 * time.Second)
					is(w, "its headers", c.Headers, map[string]string{"pawl-schedule": "s", "pawl-scheduled-at": tickTime(planned)})
					w.ack(c)
					w.pass(second)
					is(w, "its entry", w.history("s")[n].TaskID, c.ID)
				}
				is(w, "the history", historyText(w.history("s")), []string{"fired", "fired", "fired"})
				is(w, "in the queue of before", len(w.list(filter{Queue: "a"})), 0)
				is(w, "in the queue", len(w.list(filter{Queue: "b"})), 4)
			}},
		{name: "a triggered task in another shard is created once, and its id is returned", gateway: true, shards: 2, tell: func(w *world) {
			far(w)
			id, state, err := w.api.Trigger(w.ctx(), "s")
			must(w.T, err)
			is(w, "the state", state, "ready")
			w.pass(second)
			is(w, "the claim", w.one(from("b")).ID, id)
			entry := only(w, "entries", w.history("s"))
			is(w, "the history", []any{entry.Outcome, entry.TaskID}, []any{"triggered", id})
		}},
		{name: "a full queue in another shard refuses the task, and the history shows it", gateway: true, shards: 2, tell: func(w *world) {
			_, next := far(w)
			w.put("b", settings{MaxLength: 1})
			w.enqueue(spec{Queue: "b"})
			_, _, err := w.api.Trigger(w.ctx(), "s")
			w.refused("trigger", err, refusal{Code: "queue_full", RetryAfter: second})
			w.until(next.Add(time.Second))
			is(w, "the history", historyText(w.history("s")), []string{"skipped: queue_full", "skipped: queue_full"})
		}},
		{name: "ticks follow a queue that moves", gateway: true, shards: 3, tell: func(w *world) {
			made := w.schedule(schedule{Name: "s", Every: 10 * second, Task: spec{Queue: "hot", Key: "k"}}).After
			home, _ := w.testNode.copy.Queue(namespace, "hot")
			seen := map[string]bool{}
			for n, shard := range []uint32{1 + home.Shard%3, 1 + (home.Shard+1)%3, home.Shard} {
				_, err := w.testNode.router.Queues.Spread(w.ctx(), task.Author{}, namespace, "hot",
					queues.SpreadTarget{Shards: []uint32{shard}})
				must(w.T, err)
				c := w.one(claimCall{Queues: []string{"hot"}, Wait: 20 * second})
				id, err := task.ParseID(c.ID)
				must(w.T, err)
				is(w, "the shard of its task", id.Shard(), shard)
				is(w, "its tick", c.Headers["pawl-scheduled-at"], tickTime(made.NextRunAt.Add(time.Duration(n)*10*time.Second)))
				w.ack(c)
				w.pass(second)
				is(w, "its entry", w.history("s")[n].TaskID, c.ID)
				seen[c.ID] = true
			}
			is(w, "the tasks", len(w.list(filter{Queue: "hot"})), len(seen))
		}},
		{name: "a tick recreates a deleted queue", gateway: true, shards: 2, tell: func(w *world) {
			far(w)
			must(w.T, w.api.DeleteQueue(w.ctx(), "b"))
			w.ack(w.one(claimCall{Queues: []string{"b"}, Wait: 20 * second}))
			w.pass(second)
			is(w, "the history", historyText(w.history("s")), []string{"fired"})
		}},
	})
}

func newRequest() task.ID {
	id, err := task.ParseID(uuid.Must(uuid.NewV7()).String())
	if err != nil {
		panic(err)
	}
	return id
}

// A trigger whose answer was lost and is repeated, by whatever API, stands for one task and one entry in the history.
func TestTriggerAgain(t *testing.T) {
	for _, where := range []string{"here", "elsewhere", "on the move"} {
		t.Run(where, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				h := build(t, 2, dir)
				over, by := newREST(t, h), newRPC(t, h)
				w := &world{T: t, testNode: h, api: by}
				s := schedule{Name: "s", Every: hour, Task: spec{Queue: "a", Key: "k"}}
				w.schedule(s)
				home, _ := h.copy.Queue(namespace, "a")
				move := func(to uint32) {
					if where == "on the move" {
						_, err := h.router.Queues.Spread(w.ctx(), task.Author{}, namespace, "a", queues.SpreadTarget{Shards: []uint32{to}})
						must(t, err)
					}
				}
				if where == "elsewhere" {
					s.Task.Queue = "b"
					w.schedule(s)
				}
				move(3 - home.Shard)
				request := newRequest()
				first, _, err := over.trigger(w.ctx(), "s", request.String())
				must(t, err)
				for n := range uint32(4) {
					move(1 + (home.Shard+n+1)%2)
					w.pass(5 * second)
					again, _, err := by.trigger(w.ctx(), "s", request.String())
					must(t, err)
					is(w, "the task", again, first)
				}
				other, _, err := over.trigger(w.ctx(), "s", newRequest().String())
				must(t, err)
				is(w, "another one", other != first, true)
				w.pass(5 * second)
				ticks := w.history("s")
				is(w, "the history", historyText(ticks), []string{"triggered", "triggered"})
				is(w, "its tasks", []string{ticks[0].TaskID, ticks[len(ticks)-1].TaskID}, []string{first, other})
				is(w, "what is there", len(w.list(filter{Queue: s.Task.Queue})), 2)
			})
		})
	}
}

// scheduling is an invalid schedule, which is refused whether it is put, created or tried.
func scheduling(field, says string, s schedule) badCall {
	if s.Name == "" && field != "name" {
		s.Name = "s"
	}
	if s.Cron == "" && s.Every == 0 && field != "cron" {
		s.Every = minute
	}
	if s.Task.Type == "" && field != "task.type" {
		s.Task.Type = "job"
	}
	return badCall{fmt.Sprintf("schedule with bad %s", field), func(w *world) error {
		_, created := w.api.CreateSchedule(w.ctx(), s)
		got, is := errors.AsType[*refusal](created)
		if is && s.Name != "" { // a path includes a name
			want := *got
			want.Text = ""
			_, err := w.api.PutSchedule(w.ctx(), s)
			w.refused(field+" when it is put", err, want)
			_, err = w.api.TrySchedule(w.ctx(), s)
			w.refused(field+" when it is tried", err, want)
		}
		return created
	}, refusal{Code: "invalid_argument", Field: field}, says}
}

func TestBadSchedules(t *testing.T) {
	long := strings.Repeat("x", 257)
	large := scheduling("task.payload", "1048577 bytes, at most 1048576",
		schedule{Task: spec{Payload: `"` + strings.Repeat("x", 1<<20-1) + `"`}})
	large.want.Code = "payload_too_large"
	none := func(w *world) {
		names, _ := w.scheduleNames(part{})
		is(w, "the schedules", len(names), 0)
	}
	bads := refusedCalls("an invalid schedule is refused with its field, value and rule", []badCall{
		large,
		scheduling("name", "name", schedule{}),
		scheduling("name", "257 bytes, at most 256", schedule{Name: long}),
		scheduling("name", `"a/b" has a character other than`, schedule{Name: "a/b"}),
		scheduling("cron", "is required, unless every is given", schedule{}),
		scheduling("cron", `"61 * * * *"`, schedule{Cron: "61 * * * *"}),
		scheduling("cron", `"* * *"`, schedule{Cron: "* * *"}),
		scheduling("cron", "never due", schedule{Cron: "0 0 30 2 *"}),
		scheduling("cron", "a time zone has a field of its own", schedule{Cron: "TZ=Europe/Berlin 0 0 * * *"}),
		scheduling("cron", "257 bytes, at most 256", schedule{Cron: long}),
		scheduling("every", "only one of them is allowed", schedule{Cron: "@daily", Every: minute}),
		scheduling("every", "1.5s is not whole seconds between 1s and 8784h0m0s", schedule{Every: 1500 * millisecond}),
		scheduling("every", "8785h0m0s is not whole seconds", schedule{Every: 8785 * hour}),
		scheduling("time_zone", `"Mars/Olympus" is not the name of an IANA time zone`, schedule{Cron: "@daily", TimeZone: "Mars/Olympus"}),
		scheduling("time_zone", "is given together with every", schedule{Every: minute, TimeZone: "Europe/Berlin"}),
		scheduling("jitter", "-1s is not between 0 and 24h", schedule{Jitter: -second}),
		scheduling("jitter", "25h0m0s is not between 0 and 24h", schedule{Jitter: 25 * hour}),
		scheduling("owner", "257 bytes, at most 256", schedule{Owner: long}),
		scheduling("task.type", "type", schedule{}),
		scheduling("task.queue", `"a/b" has a character other than`, schedule{Task: spec{Queue: "a/b"}}),
		scheduling("task.delay", "1s is given, but the schedule determines when tasks run", schedule{Task: spec{Delay: second}}),
		scheduling("task.run_at", "2000-01-01T00:00:00Z is given, but the schedule determines when tasks run",
			schedule{Task: spec{RunAt: started}}),
		scheduling("task.idempotency_key", `"k" would let only the first tick create a task`, schedule{Task: spec{IdempotencyKey: "k"}}),
		scheduling("task.request_id", requestV7+" would let only the first tick create a task", schedule{Task: spec{RequestID: requestV7}}),
		scheduling("task.max_attempts", "1001 is not between 1 and 1000", schedule{Task: spec{MaxAttempts: 1001}}),
		scheduling("task.timeout", "25h0m0s is not between 0 and 24h", schedule{Task: spec{Timeout: 25 * hour}}),
		scheduling("task.headers", "bytes, at most 16384",
			schedule{Task: spec{Headers: map[string]string{"a": strings.Repeat("x", 16<<10)}}}),
	})
	tell := bads.tell
	bads.tell = func(w *world) { tell(w); none(w) }
	tellAll(t, []story{
		bads,
		ofTheGateway(refusedCalls("invalid schedule calls are refused", []badCall{
			scheduling("missed", "", schedule{Missed: "later"}),
			scheduling("overlap", "", schedule{Overlap: "queue"}),
			scheduling("task.priority", "", schedule{Task: spec{Priority: "urgent"}}),
			scheduling("task.request_id", "42", schedule{Task: spec{RequestID: "42"}}),
			bad("limit", "is not between 1 and 1000", func(w *world) (string, error) {
				_, next, err := w.api.Schedules(w.ctx(), part{Limit: -1})
				return next, err
			}),
			bad("cursor", `"x"`, func(w *world) (string, error) {
				_, next, err := w.api.Schedules(w.ctx(), part{Cursor: "x"})
				return next, err
			}),
			bad("limit", "is not between 1 and 1000", func(w *world) (string, error) {
				_, next, err := w.api.History(w.ctx(), "s", part{Limit: 1001})
				return next, err
			}),
			bad("cursor", `"x"`, func(w *world) (string, error) {
				_, next, err := w.api.History(w.ctx(), "s", part{Cursor: "x"})
				return next, err
			}),
			bad("reason", "at most", func(w *world) (scheduleInfo, error) {
				return w.api.PauseSchedule(w.ctx(), "s", strings.Repeat("x", 5000))
			}),
			bad("name", `"a/b" has a character other than`, func(w *world) (scheduleInfo, error) { return w.api.Schedule(w.ctx(), "a/b") }),
			bad("name", `"a/b" has a character other than`, func(w *world) (scheduleInfo, error) {
				return w.api.ResumeSchedule(w.ctx(), "a/b")
			}),
			bad("name", `"a/b" has a character other than`, func(w *world) (any, error) {
				return nil, w.api.DeleteSchedule(w.ctx(), "a/b")
			}),
		})),
		{name: "an unknown schedule is not found, and not created", shards: 2, gateway: true, tell: func(w *world) {
			for name, call := range map[string]func(ctx context.Context) error{
				"get":    func(ctx context.Context) error { _, err := w.api.Schedule(ctx, "s"); return err },
				"delete": func(ctx context.Context) error { return w.api.DeleteSchedule(ctx, "s") },
				"pause":  func(ctx context.Context) error { _, err := w.api.PauseSchedule(ctx, "s", ""); return err },
				"resume": func(ctx context.Context) error { _, err := w.api.ResumeSchedule(ctx, "s"); return err },
				"trigger": func(ctx context.Context) error {
					_, _, err := w.api.Trigger(ctx, "s")
					return err
				},
				"history": func(ctx context.Context) error {
					_, _, err := w.api.History(ctx, "s", part{})
					return err
				},
			} {
				w.refused(name, call(w.ctx()), refusal{Code: "not_found"})
			}
			none(w)
		}},
	})
}
