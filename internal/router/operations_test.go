package router_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

var bg = context.Background()

// answer has the shards count some tasks each, and the first of them start operations. It returns what the last one was started with.
func answer(s *routertest.Script, m *routertest.Member, counts map[uint32]broker.Matches,
	countErr, startErr error) (started *broker.NewOperation) {
	started = &broker.NewOperation{}
	verbtest.On(m.Broker, broker.CountMatches, func(_ context.Context, q broker.MatchCount) (broker.MatchesCounted, error) {
		if q.Wait != broker.CountTime || q.Namespace != routertest.Namespace || q.Filter.Queue != "one" {
			s.Note("count %+v", q)
		}
		at := routertest.At(q.Shard)
		at.Time = store.Time(100 + q.Shard)
		return broker.MatchesCounted{Matches: counts[q.Shard], Stamped: broker.Stamped{At: at}}, countErr
	})
	verbtest.On(m.Broker, broker.StartOperation, func(_ context.Context, q broker.NewOperation) (broker.Shown[broker.OperationView],
		error) {
		s.Note("start in %d", q.Shard)
		*started = q
		return broker.Shown[broker.OperationView]{View: broker.OperationView{Operation: &broker.Operation{ID: routertest.Asked}},
			Stamped: broker.Stamped{At: routertest.At(q.Shard)}}, startErr
	})
	return started
}

// dead is a count of dead letters, which continues at next.
func dead(n int64, next []byte) broker.Matches {
	return broker.Matches{Count: n, States: map[task.State]int64{task.Dead: n}, Next: next}
}

// An operation is started in the first shard, with the tasks of all shards counted up to a time in each.
func TestStartOperation(t *testing.T) {
	for _, c := range []struct {
		what               string
		spec               broker.OperationSpec
		counts             map[uint32]broker.Matches
		countErr, startErr error
		did                string
		want               error
		total              int64
		soFar              bool
	}{
		{"all are counted", broker.OperationSpec{Action: task.Replay}, map[uint32]broker.Matches{1: dead(2, nil), 3: dead(5, nil)}, nil,
			nil, "start in 1", nil, 7, false},
		{"not all are counted", broker.OperationSpec{Action: task.Replay}, map[uint32]broker.Matches{1: dead(2, nil),
			2: dead(3, []byte{1})}, nil,
			nil, "start in 1", nil, 5, true},
		{"to a known queue", broker.OperationSpec{Action: task.Move, ToQueue: "two"}, nil, nil, nil, "start in 1", nil, 0, false},
		{"to a new queue", broker.OperationSpec{Action: task.Move, ToQueue: "new"}, nil, nil, nil, "place new, start in 1", nil, 0, false},
		{"to a queue that can't be created", broker.OperationSpec{Action: task.Move, ToQueue: "none"}, nil, nil, nil, "place none",
			routertest.ErrAway, 0, false},
		{"a queue that is not for this action", broker.OperationSpec{Action: task.Replay, ToQueue: "none"}, nil, nil, nil,
			"start in 1", nil, 0, false},
		{"a shard that can't count", broker.OperationSpec{Action: task.Replay}, nil, task.ErrInvalidArgument, nil, "",
			task.ErrInvalidArgument, 0, false},
		{"a home that refuses", broker.OperationSpec{Action: task.Replay}, nil, nil, task.ErrWrongState, "start in 1",
			task.ErrWrongState, 0, false},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			started := answer(s, m, c.counts, c.countErr, c.startErr)
			c.spec.Filter.Queue = "one"
			view, at, err := m.Operations.StartOperation(bg, routertest.Namespace, c.spec)
			if did := s.Was(); !errors.Is(err, c.want) || did != c.did {
				t.Errorf("%s: %v, want %v; did %q, want %q", c.what, err, c.want, did, c.did)
			}
			if c.want != nil {
				return
			}
			if view.ID != routertest.Asked || at != routertest.At(1) {
				t.Errorf("%s: %+v at %+v", c.what, view, at)
			}
			got := fmt.Sprint(started.Namespace, " ", started.Spec.Total, " ", started.Spec.TotalSoFar, " ", started.Spec.Until)
			if want := fmt.Sprint(routertest.Namespace, " ", c.total, " ", c.soFar, " ", []broker.ShardTime{{Shard: 1, At: 101},
				{Shard: 2, At: 102}, {Shard: 3, At: 103}}); got != want {
				t.Errorf("%s: started with %s, want %s", c.what, got, want)
			}
		})
	}
}

// A shard that hangs does not keep an operation from its start: the total is then a lower bound, and the operation's time holds there.
func TestStartWithoutAShard(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		started := answer(s, m, map[uint32]broker.Matches{1: dead(2, nil), 2: dead(100, nil), 3: dead(5, nil)}, nil, nil)
		count := m.Broker[broker.CountMatches.Name()]
		m.Broker[broker.CountMatches.Name()] = func(ctx context.Context, c verb.Call) error {
			if c.Shard() == 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			if err := routertest.Sleep(ctx, broker.CountTime+verb.PartTime/4); err != nil { // it counts for as long as it may, and is read
				return err
			}
			return count(ctx, c)
		}
		began := time.Now()
		_, _, err := m.Operations.StartOperation(bg, routertest.Namespace, broker.OperationSpec{Action: task.Replay,
			Filter: broker.Filter{Queue: "one"}})
		got := fmt.Sprint(started.Spec.Total, " ", started.Spec.TotalSoFar, " ", started.Spec.Until)
		if want := fmt.Sprint(7, " ", true, " ", []broker.ShardTime{{Shard: 1, At: 101}, {Shard: 3, At: 103}}); err != nil || got != want ||
			time.Since(began) != verb.PartTime {
			t.Errorf("started with %s after %s, %v, want %s", got, time.Since(began), err, want)
		}
	})
}

// A step that moves tasks to a queue that was deleted is refused, and creates no queue: but first, tasks that are on
// their way are waited for, and a step that was done before gives its answer.
func TestStepToADeletedQueue(t *testing.T) {
	moved := broker.StepAnswer{Tally: broker.Tally{Matched: 3}, Away: 3}
	for _, c := range []struct {
		what   string
		step   broker.StepCall
		answer broker.StepAnswer
		asked  int
		want   error
	}{
		{"to a queue", broker.StepCall{Action: task.Move, ToQueue: "two", Count: 9}, moved, 9, nil},
		{"to a queue, with nothing left", broker.StepCall{Action: task.Move, ToQueue: "two", Count: 9}, broker.StepAnswer{Swept: true}, 9,
			nil},
		{"of another action", broker.StepCall{Action: task.Replay, ToQueue: "gone", Count: 9}, broker.StepAnswer{}, 9, nil},
		{"to a deleted queue", broker.StepCall{Action: task.Move, ToQueue: "gone", Count: 9}, broker.StepAnswer{}, 0,
			task.ErrInvalidArgument},
		{"to a deleted queue, all done", broker.StepCall{Action: task.Move, ToQueue: "gone", Count: 9}, broker.StepAnswer{Swept: true}, 0,
			task.ErrInvalidArgument},
		{"done before", broker.StepCall{Action: task.Move, ToQueue: "gone", Count: 9}, broker.StepAnswer{Tally: broker.Tally{Matched: 3,
			Done: 3}}, 0, nil},
		{"on their way", broker.StepCall{Action: task.Move, ToQueue: "gone", Count: 9}, broker.StepAnswer{Away: 1}, 0, nil},
		{"arrived", broker.StepCall{Action: task.Move, ToQueue: "gone", Count: 9}, broker.StepAnswer{Tally: broker.Tally{Done: 1}}, 0, nil},
		{"came back", broker.StepCall{Action: task.Move, ToQueue: "gone", Count: 9}, broker.StepAnswer{Tally: broker.Tally{Failed: 1}}, 0,
			nil},
		{"skipped", broker.StepCall{Action: task.Move, ToQueue: "gone", Count: 9},
			broker.StepAnswer{Tally: broker.Tally{Skipped: []broker.Skipped{{Count: 1}}}}, 0, nil},
	} {
		routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
			m.Fleet.With(func() { m.Fleet.Queues["two"] = m.Copy["two"] })
			verbtest.On(m.Broker, broker.RunStep, func(_ context.Context, q broker.StepOrder) (broker.StepDone, error) {
				if q.Shard != 2 || q.Namespace != routertest.Namespace || q.Step.Count != c.asked {
					t.Errorf("%s: shard %d is asked for %+v, want %d tasks", c.what, q.Shard, q.Step, c.asked)
				}
				return broker.StepDone{Step: c.answer}, nil
			})
			a, err := m.Operations.RunStep(bg, 2, routertest.Namespace, c.step)
			if !errors.Is(err, c.want) || err == nil && a.Matched != c.answer.Matched {
				t.Errorf("%s: %+v, %v, want %v", c.what, a, err, c.want)
			}
			if did := s.Was(); did != "" {
				t.Errorf("%s: did %q", c.what, did)
			}
		})
	}
}

// An operation needs a shard.
func TestOperationsNeedAShard(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		m.Fleet.With(func() { clear(m.Fleet.Shards) })
		if _, _, err := m.Operations.StartOperation(bg, routertest.Namespace, broker.OperationSpec{}); !errors.Is(err,
			task.ErrUnavailable) ||
			s.Was() != "" {
			t.Errorf("without shards: %v", err)
		}
	})
}

// A caller waits for an operation only while it is running.
func TestOperation(t *testing.T) {
	routertest.InScript(t, func(s *routertest.Script, m *routertest.Member) {
		id := task.NewID(2, 1, 1)
		state, refused := broker.OperationRunning, error(nil)
		verbtest.On(m.Broker, broker.ShowOperation, func(ctx context.Context, q broker.OperationWait) (broker.Shown[broker.OperationView],
			error) {
			s.Note("show in %d for %v", q.ID.Shard(), q.Wait)
			if q.ID != id || q.Namespace != routertest.Namespace {
				t.Errorf("shown is %+v", q)
			}
			// Another node ends the wait early, because it stops.
			return broker.Shown[broker.OperationView]{View: broker.OperationView{Operation: &broker.Operation{ID: id, State: state}},
				Stamped: broker.Stamped{At: routertest.At(2)}}, refused
		})
		for _, c := range []struct {
			state operation.State
			wait  time.Duration
			did   string
		}{
			{broker.OperationRunning, 0, "show in 2 for 0s"},
			{broker.OperationRunning, 250 * time.Millisecond, "show in 2 for 250ms, show in 2 for 150ms, show in 2 for 50ms"},
			{broker.OperationPaused, time.Minute, "show in 2 for 1m0s"},
			{broker.OperationFailed, time.Minute, "show in 2 for 1m0s"},
		} {
			state = c.state
			view, at, err := m.Operations.Operation(bg, routertest.Namespace, id, c.wait)
			if did := s.Was(); err != nil || view.ID != id || view.State != c.state || at != routertest.At(2) || did != c.did {
				t.Errorf("%v, waiting for %v: %+v at %+v, %v; did %q, want %q", c.state, c.wait, view, at, err, did, c.did)
			}
		}
		refused = task.NotFound("operation", id.String())
		if _, _, err := m.Operations.Operation(bg, routertest.Namespace, id, time.Minute); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("one that is not there: %v", err)
		}
	})
}
