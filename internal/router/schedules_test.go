package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// scheduleScript is what a system shard and data shards know of a schedule, and answer.
type scheduleScript struct {
	scriptedSystem
	home    uint32           // the shard in which the system shard has it; 0: none
	homeErr error            // instead
	in      map[uint32]error // by shard: the error when asked there; without an entry: not found
	nameErr error
	raced   int   // this many calls lose the race
	done    error // the error of other calls
	forgets error
	version uint64
}

func (s *scheduleScript) ScheduleHome(ctx context.Context, _, name string) (schedules.Home, error) {
	if !task.ScopeOf(ctx).All() {
		s.note("limited")
	}
	if s.home == 0 && s.homeErr == nil {
		return schedules.Home{}, task.NotFound("schedule", name)
	}
	return schedules.Home{Shard: s.home}, s.homeErr
}

func (s *scheduleScript) NameSchedule(_ context.Context, _, _ string, wanted uint32) (schedules.Home, error) {
	s.version++
	return schedules.Home{Shard: wanted, Version: s.version}, s.nameErr
}

func (s *scheduleScript) ForgetSchedule(_ context.Context, _, _ string, version uint64) error {
	s.note("forget %d", version)
	return s.forgets
}

// came records a call with the version of the name, and returns its error.
func (s *scheduleScript) came(verb string, shard uint32, version uint64) error {
	s.note("%s %d in %d", verb, version, shard)
	if s.raced > 0 {
		s.raced--
		return broker.ErrScheduleRaced
	}
	return s.done
}

// onSchedules runs a test on a schedule that a script knows.
func onSchedules(t *testing.T, script scheduleScript, test func(s *scheduleScript, m *member)) {
	inScript(t, func(base *scripted, m *member) {
		s := &script
		s.scriptedSystem = scriptedSystem{fakeControl{m: m}, base}
		m.cfg.Control = s
		verbtest.On(base.answers, broker.ShowSchedule, func(_ context.Context, q *broker.AtHome) (out broker.Shown[*broker.ScheduleView], err error) {
			err, known := s.in[q.Shard]
			if !known {
				err = task.NotFound("schedule", q.Name)
			}
			return out, err
		})
		verbtest.On(base.answers, broker.PutSchedule, func(_ context.Context, q *broker.SchedulePutCall) (out broker.ScheduleIsPut, err error) {
			out.At = at(q.Shard)
			return out, s.came("put", q.Shard, q.Put.Version)
		})
		verbtest.On(base.answers, broker.DeleteSchedule, func(_ context.Context, q *broker.ScheduleDeletion) (out broker.ScheduleDeleted, err error) {
			out.At = at(q.Shard)
			return out, s.came("delete", q.Shard, q.Version)
		})
		test(s, m)
	})
}

// A schedule is where the system shard says. If that has lost the name, the shards are asked, and one that is silent may have it.
func TestSchedulesAreFound(t *testing.T) {
	notFound := task.NotFound("schedule", "s")
	for _, c := range []struct {
		script scheduleScript
		want   uint32
		err    error
	}{
		{scheduleScript{home: 2}, 2, nil},
		{scheduleScript{homeErr: errAway}, 0, errAway},
		{scheduleScript{in: map[uint32]error{3: nil}}, 3, nil},
		{scheduleScript{in: map[uint32]error{1: errAway, 3: nil}}, 3, nil},
		{scheduleScript{}, 0, notFound},
		{scheduleScript{in: map[uint32]error{1: errAway}}, 0, errAway},
	} {
		onSchedules(t, c.script, func(s *scheduleScript, m *member) {
			ctx := task.WithScope(context.Background(), task.Scope{Queues: []string{"others"}})
			home, err := m.shardByName(ctx, &broker.AtHome{OnSchedule: onSchedule(0, ns, "s")})
			if home != c.want || !errors.Is(err, c.err) || s.was() != "" {
				t.Errorf("home %d, in %v: found in %d, %v; want %d, %v", s.home, s.in, home, err, c.want, c.err)
			}
		})
	}
}

// A new schedule is put where its tasks go, a known one where it is, and of two concurrent calls the slower is retried.
func TestSchedulesArePut(t *testing.T) {
	put := func(queue string) broker.SchedulePut {
		return broker.SchedulePut{Schedule: task.Schedule{Name: "s", Task: task.Spec{Queue: queue}}}
	}
	dry := put("two")
	dry.DryRun = true
	raced := strings.TrimSuffix(strings.Repeat("put %d in 2, ", maxChanges), ", ")
	var versions []any
	for i := range maxChanges {
		versions = append(versions, i+1)
	}
	for _, c := range []struct {
		name   string
		script scheduleScript
		put    broker.SchedulePut
		want   string
		err    error
	}{
		{"a new one", scheduleScript{}, put("two"), "put 1 in 2", nil},
		{"a new one of a new queue", scheduleScript{}, put("new"), "place new, put 1 in 3", nil},
		{"its queue can't be placed", scheduleScript{}, put("none"), "place none", errAway},
		{"one that is there", scheduleScript{home: 1}, put("two"), "put 1 in 1", nil},
		{"nobody knows where", scheduleScript{homeErr: errAway}, put("two"), "", errAway},
		{"nobody can name it", scheduleScript{nameErr: errAway}, put("two"), "", errAway},
		{"refused", scheduleScript{done: errAway}, put("two"), "put 1 in 2", errAway},
		{"outrun", scheduleScript{raced: 2}, put("two"), "put 1 in 2, put 2 in 2, put 3 in 2", nil},
		{"outrun for ever", scheduleScript{raced: 1000}, put("two"), fmt.Sprintf(raced, versions...), task.ErrUnavailable},
		{"what would be", scheduleScript{home: 3}, dry, "put 0 in 3", nil},
		{"what would be of a new one", scheduleScript{}, dry, "put 0 in 1", nil},
	} {
		onSchedules(t, c.script, func(s *scheduleScript, m *member) {
			_, stamp, err := m.PutSchedule(context.Background(), task.Author{}, ns, c.put)
			if got := s.was(); got != c.want || !errors.Is(err, c.err) || errors.Is(err, broker.ErrScheduleRaced) || err == nil && stamp.Index == 0 {
				t.Errorf("%s: %s, at %+v, %v; want %s, %v", c.name, got, stamp, err, c.want, c.err)
			}
		})
	}
	onSchedules(t, scheduleScript{}, func(s *scheduleScript, m *member) {
		clear(m.f.shards)
		if _, _, err := m.PutSchedule(context.Background(), task.Author{}, ns, dry); !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(), "no data shard yet") {
			t.Errorf("without a data shard: %v", err)
		}
	})
}

// The name of a deleted schedule is forgotten, unless it may exist for others.
func TestSchedulesAreDeleted(t *testing.T) {
	notFound := task.NotFound("schedule", "s")
	for _, c := range []struct {
		name   string
		script scheduleScript
		scope  task.Scope
		want   string
		err    error
	}{
		{"it is there", scheduleScript{home: 2}, task.Scope{}, "delete 1 in 2, forget 1", nil},
		{"its name stays", scheduleScript{home: 2, forgets: errAway}, task.Scope{}, "delete 1 in 2, forget 1", nil},
		{"outrun", scheduleScript{home: 2, raced: 1}, task.Scope{}, "delete 1 in 2, delete 2 in 2, forget 2", nil},
		{"it is gone", scheduleScript{home: 2, done: notFound}, task.Scope{}, "delete 1 in 2, forget 1", notFound},
		{"it is gone for who sees some queues", scheduleScript{home: 2, done: notFound}, task.Scope{Queues: []string{"a"}}, "delete 1 in 2", notFound},
		{"refused", scheduleScript{home: 2, done: errAway}, task.Scope{}, "delete 1 in 2", errAway},
		{"nobody knows it", scheduleScript{}, task.Scope{}, "", notFound},
	} {
		onSchedules(t, c.script, func(s *scheduleScript, m *member) {
			_, err := m.DeleteSchedule(task.WithScope(context.Background(), c.scope), task.Author{}, ns, "s")
			if got := s.was(); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%s: %s, %v; want %s, %v", c.name, got, err, c.want, c.err)
			}
		})
	}
}

// A triggered task is answered when it has been created, wherever its queue is.
func TestSchedulesAreTriggered(t *testing.T) {
	overlaps := broker.Overlaps("s", task.ID{})
	carried := func(typ, queue string) *broker.OutboxMessage {
		return &broker.OutboxMessage{Spec: task.Spec{Type: typ, Queue: queue}}
	}
	for _, c := range []struct {
		name string
		made broker.Triggered
		err  error
		want string
		fail error
	}{
		{"here", broker.Triggered{Accepted: broker.Accepted{ID: asked}}, nil, "", nil},
		{"elsewhere", broker.Triggered{Message: carried("job", "one")}, nil, "enqueue [job] in 1", nil},
		{"elsewhere in vain", broker.Triggered{Message: carried("away", "one")}, nil, "enqueue [away] in 1", errAway},
		{"its queue can't be placed", broker.Triggered{Message: carried("job", "none")}, nil, "place none", errAway},
		{"another holds its key", broker.Triggered{Message: carried("met", "one")}, nil, "enqueue [met] in 1", overlaps},
		{"another holds its key, but the task was refused", broker.Triggered{Message: carried("metaway", "one")}, nil, "enqueue [metaway] in 1", errAway},
		{"refused", broker.Triggered{Message: carried("job", "one")}, errAway, "", errAway},
	} {
		onSchedules(t, scheduleScript{home: 2}, func(s *scheduleScript, m *member) {
			s.refused["away"], s.refused["metaway"] = errAway, errAway
			verbtest.On(s.answers, broker.TriggerSchedule, func(_ context.Context, q *broker.ScheduleTrigger) (out broker.ScheduleTriggered, err error) {
				out.Made, out.At = c.made, at(q.Shard)
				return out, c.err
			})
			got, stamp, err := m.TriggerSchedule(context.Background(), task.Author{}, ns, "s", asked)
			if was := s.was(); was != c.want || !errors.Is(err, c.fail) || stamp.Shard != 2 || (got.ID == task.ID{}) != (err != nil) {
				t.Errorf("%s: %s, %+v at %+v, %v; want %s, %v", c.name, was, got, stamp, err, c.want, c.fail)
			}
		})
	}
}

// Tasks are delivered wherever their queues are, each with its own result.
func TestTasksAreDelivered(t *testing.T) {
	inScript(t, func(s *scripted, m *member) {
		specs := []task.Spec{{Type: "a", Queue: "one"}, {Type: "b", Queue: "none"}, {Type: "c", Queue: "one"}, {Type: "bad", Queue: "one"}}
		s.refused["bad"] = errAway
		out := m.Deliver(context.Background(), ns, specs)
		if got := s.was(); got != "place none, enqueue [a c bad] in 1" || out[0].ID != task.NewID(1, 1, 1) || !errors.Is(out[1].Err, errAway) || out[2].ID != task.NewID(1, 1, 2) || !errors.Is(out[3].Err, errAway) {
			t.Errorf("%s: %+v", got, out)
		}
		s.gone = task.Unavailable(time.Second, "gone")
		for i, got := range m.Deliver(context.Background(), ns, specs[:1]) {
			if !errors.Is(got.Err, task.ErrUnavailable) {
				t.Errorf("task %d of a shard that is silent: %+v", i, got)
			}
		}
	})
}
