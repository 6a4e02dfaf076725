package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/routertest"
	names "github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// scheduleScript holds what a system shard and data shards know of a schedule, and their responses.
type scheduleScript struct {
	*routertest.Script
	home    uint32           // the shard that the system shard has on record; 0: none
	homeErr error            // returned instead of home
	in      map[uint32]error // by shard: the error when asked there; a shard without an entry responds with not found
	nameErr error
	raced   int   // this many calls lose the race
	done    error // the error of other calls
	forgets error
	version uint64
}

func (s *scheduleScript) find(ctx context.Context, q names.Place) (names.Home, error) {
	if !task.ScopeOf(ctx).All() {
		s.Note("limited")
	}
	if s.home == 0 && s.homeErr == nil {
		return names.Home{}, task.NotFound("schedule", q.Name)
	}
	return names.Home{Shard: s.home}, s.homeErr
}

func (s *scheduleScript) register(_ context.Context, q names.Naming) (names.Home, error) {
	s.version++
	return names.Home{Shard: q.Shard, Version: s.version}, s.nameErr
}

func (s *scheduleScript) drop(_ context.Context, q names.Naming) (none verb.Nothing, err error) {
	s.Note("forget %d", q.Version)
	return none, s.forgets
}

// came records a call with the version of the name and returns its error.
func (s *scheduleScript) came(verb string, shard uint32, version uint64) error {
	s.Note("%s %d in %d", verb, version, shard)
	if s.raced > 0 {
		s.raced--
		return broker.ErrScheduleRaced
	}
	return s.done
}

// errHangs has a shard not answer.
var errHangs = errors.New("hangs")

// onSchedules runs a test on a schedule that a script knows.
func onSchedules(t *testing.T, script scheduleScript, test func(s *scheduleScript, m *routertest.Member)) {
	routertest.InScript(t, func(base *routertest.Script, m *routertest.Member) {
		s := &script
		s.Script = base
		verbtest.On(m.Control, names.Find, s.find)
		verbtest.On(m.Control, names.Register, s.register)
		verbtest.On(m.Control, names.Drop, s.drop)
		verbtest.On(m.Broker, broker.ShowSchedule, func(ctx context.Context, q broker.AtHome) (out broker.Shown[*broker.ScheduleView],
			err error) {
			err, known := s.in[q.Shard]
			if errors.Is(err, errHangs) {
				<-ctx.Done()
				err = ctx.Err()
			}
			if !known {
				err = task.NotFound("schedule", q.Name)
			}
			return out, err
		})
		verbtest.On(m.Broker, broker.PutSchedule, func(_ context.Context, q broker.SchedulePutCall) (out broker.ScheduleIsPut, err error) {
			out.At = routertest.At(q.Shard)
			return out, s.came("put", q.Shard, q.Put.Version)
		})
		verbtest.On(m.Broker, broker.DeleteSchedule, func(_ context.Context, q broker.ScheduleDeletion) (out broker.ScheduleDeleted,
			err error) {
			out.At = routertest.At(q.Shard)
			return out, s.came("delete", q.Shard, q.Version)
		})
		test(s, m)
	})
}

// A schedule is where the system shard says. If the system shard has lost the name, the data shards are asked, and one that does not
// respond may have it.
func TestSchedulesAreFound(t *testing.T) {
	notFound := task.NotFound("schedule", "s")
	for _, c := range []struct {
		script scheduleScript
		want   uint32
		err    error
	}{
		{scheduleScript{home: 2}, 2, nil},
		{scheduleScript{homeErr: routertest.ErrAway}, 0, routertest.ErrAway},
		{scheduleScript{in: map[uint32]error{3: nil}}, 3, nil},
		{scheduleScript{in: map[uint32]error{1: routertest.ErrAway, 3: nil}}, 3, nil},
		{scheduleScript{}, 0, notFound},
		{scheduleScript{in: map[uint32]error{1: routertest.ErrAway}}, 0, routertest.ErrAway},
		{scheduleScript{in: map[uint32]error{1: errHangs, 3: nil}}, 3, nil},
		{scheduleScript{in: map[uint32]error{2: errHangs}}, 0, task.ErrUnavailable},
		{scheduleScript{in: map[uint32]error{3: task.ErrInvalidArgument}}, 0, task.ErrInvalidArgument},
	} {
		onSchedules(t, c.script, func(s *scheduleScript, m *routertest.Member) {
			ctx := task.WithScope(context.Background(), task.Scope{Queues: []string{"others"}})
			began := time.Now()
			home, err := m.ShardByName(ctx, &broker.AtHome{OnSchedule: router.OnSchedule(0, routertest.Namespace, "s")})
			if home != c.want || !errors.Is(err, c.err) || s.Was() != "" || time.Since(began) > verb.PartTime ||
				c.err == task.ErrUnavailable && !strings.Contains(err.Error(),
					`schedule "s": it is not known whether it exists: shard 2: did not`) {
				t.Errorf("home %d, in %v: found in shard %d, %v; want %d, %v", s.home, s.in, home, err, c.want, c.err)
			}
		})
	}
}

// A new schedule is put into the shard of its tasks' queue and a known one where it is. Of two concurrent calls the slower one is retried.
func TestSchedulesArePut(t *testing.T) {
	put := func(queue string) broker.SchedulePut {
		return broker.SchedulePut{Schedule: task.Schedule{Name: "s", Task: task.Spec{Queue: queue}}}
	}
	dry := put("two")
	dry.DryRun = true
	raced := strings.TrimSuffix(strings.Repeat("put %d in 2, ", router.MaxChanges), ", ")
	var versions []any
	for i := range router.MaxChanges {
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
		{"its queue can't be placed", scheduleScript{}, put("none"), "place none", routertest.ErrAway},
		{"one that is there", scheduleScript{home: 1}, put("two"), "put 1 in 1", nil},
		{"nobody knows where", scheduleScript{homeErr: routertest.ErrAway}, put("two"), "", routertest.ErrAway},
		{"nobody can name it", scheduleScript{nameErr: routertest.ErrAway}, put("two"), "", routertest.ErrAway},
		{"refused", scheduleScript{done: routertest.ErrAway}, put("two"), "put 1 in 2", routertest.ErrAway},
		{"outrun", scheduleScript{raced: 2}, put("two"), "put 1 in 2, put 2 in 2, put 3 in 2", nil},
		{"outrun for ever", scheduleScript{raced: 1000}, put("two"), fmt.Sprintf(raced, versions...), task.ErrUnavailable},
		{"what would be", scheduleScript{home: 3}, dry, "put 0 in 3", nil},
		{"what would be of a new one", scheduleScript{}, dry, "put 0 in 1", nil},
	} {
		onSchedules(t, c.script, func(s *scheduleScript, m *routertest.Member) {
			_, stamp, err := m.Schedules.PutSchedule(context.Background(), task.Author{}, routertest.Namespace, c.put)
			if got := s.Was(); got != c.want || !errors.Is(err, c.err) || errors.Is(err, broker.ErrScheduleRaced) ||
				err == nil && stamp.Index == 0 {
				t.Errorf("%s: calls %s, stamp %+v, error %v; want %s, %v", c.name, got, stamp, err, c.want, c.err)
			}
		})
	}
	onSchedules(t, scheduleScript{}, func(s *scheduleScript, m *routertest.Member) {
		clear(m.Fleet.Shards)
		if _, _, err := m.Schedules.PutSchedule(context.Background(), task.Author{}, routertest.Namespace, dry); !errors.Is(err,
			task.ErrUnavailable) || !strings.Contains(err.Error(), "no data shard yet") {
			t.Errorf("PutSchedule without a data shard: %v, want unavailable", err)
		}
	})
}

// The name of a deleted schedule is removed from the system shard, unless the caller may not see all queues and the
// schedule may still exist.
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
		{"its name stays", scheduleScript{home: 2, forgets: routertest.ErrAway}, task.Scope{}, "delete 1 in 2, forget 1", nil},
		{"outrun", scheduleScript{home: 2, raced: 1}, task.Scope{}, "delete 1 in 2, delete 2 in 2, forget 2", nil},
		{"it is gone", scheduleScript{home: 2, done: notFound}, task.Scope{}, "delete 1 in 2, forget 1", notFound},
		{"it is gone for who sees some queues", scheduleScript{home: 2, done: notFound}, task.Scope{Queues: []string{"a"}},
			"delete 1 in 2", notFound},
		{"refused", scheduleScript{home: 2, done: routertest.ErrAway}, task.Scope{}, "delete 1 in 2", routertest.ErrAway},
		{"nobody knows it", scheduleScript{}, task.Scope{}, "", notFound},
	} {
		onSchedules(t, c.script, func(s *scheduleScript, m *routertest.Member) {
			_, err := m.Schedules.DeleteSchedule(task.WithScope(context.Background(), c.scope), task.Author{}, routertest.Namespace, "s")
			if got := s.Was(); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%s: calls %s, error %v; want %s, %v", c.name, got, err, c.want, c.err)
			}
		})
	}
}

// Triggering a schedule returns when its task has been created, whichever shard its queue is in.
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
		{"here", broker.Triggered{Accepted: broker.Accepted{ID: routertest.Asked}}, nil, "", nil},
		{"elsewhere", broker.Triggered{Message: carried("job", "one")}, nil, "enqueue [job] in 1", nil},
		{"elsewhere in vain", broker.Triggered{Message: carried("away", "one")}, nil, "enqueue [away] in 1", routertest.ErrAway},
		{"its queue can't be placed", broker.Triggered{Message: carried("job", "none")}, nil, "place none", routertest.ErrAway},
		{"another holds its key", broker.Triggered{Message: carried("met", "one")}, nil, "enqueue [met] in 1", overlaps},
		{"another holds its key, but the task was refused", broker.Triggered{Message: carried("metaway", "one")}, nil,
			"enqueue [metaway] in 1", routertest.ErrAway},
		{"refused", broker.Triggered{Message: carried("job", "one")}, routertest.ErrAway, "", routertest.ErrAway},
	} {
		onSchedules(t, scheduleScript{home: 2}, func(s *scheduleScript, m *routertest.Member) {
			s.Refused["away"], s.Refused["metaway"] = routertest.ErrAway, routertest.ErrAway
			verbtest.On(m.Broker, broker.TriggerSchedule, func(_ context.Context, q broker.ScheduleTrigger) (out broker.ScheduleTriggered,
				err error) {
				out.Made, out.At = c.made, routertest.At(q.Shard)
				return out, c.err
			})
			got, stamp, err := m.Schedules.TriggerSchedule(context.Background(), task.Author{}, routertest.Namespace, "s", routertest.Asked)
			if was := s.Was(); was != c.want || !errors.Is(err, c.fail) || stamp.Shard != 2 || (got.ID == task.ID{}) != (err != nil) {
				t.Errorf("%s: calls %s, task %+v, stamp %+v, error %v; want %s, %v", c.name, was, got, stamp, err, c.want, c.fail)
			}
		})
	}
}
