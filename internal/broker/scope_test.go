package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// No verb can change or read what is outside the scope of a call.
func TestVerbsRespectScope(t *testing.T) {
	inWorld(t, func(w *world) {
		id := w.enqueue(task.Spec{Queue: "a"})[0]
		spec := task.Schedule{Name: "s", Every: time.Hour, Task: task.Spec{Queue: "a", Type: "t"}}
		spec.Fill()
		_, err := PutSchedule.Call(context.Background(), w, SchedulePutCall{OnShard: OnShard{one, ns},
			Put: SchedulePut{Schedule: spec, Version: 1}})
		w.must(err)
		home := AtHome{OnSchedule{OnShard{one, ns}, "s"}}
		for name, call := range map[string]func(ctx context.Context) error{
			"a look at a task": func(ctx context.Context) error { _, _, err := w.Task(ctx, ns, id, 0); return err },
			"a peek":           func(ctx context.Context) error { _, _, _, err := w.Peek(ctx, ns, id); return err },
			"an explanation":   func(ctx context.Context) error { _, err := ExplainTask.Call(ctx, w, Explained{ns, id}); return err },
			"an order":         func(ctx context.Context) error { return operateTask(ctx, w.Broker, RunNow, id) },
			"a pause": func(ctx context.Context) error {
				_, err := PauseSchedule.Call(ctx, w, ScheduleCommand{AtHome: home})
				return err
			},
			"a look": func(ctx context.Context) error { _, err := ShowSchedule.Call(ctx, w, home); return err },
			"a history": func(ctx context.Context) error {
				_, err := ScheduleHistory.Call(ctx, w, ScheduleHistoryList{AtHome: home, Limit: 1})
				return err
			},
		} {
			if err := call(within("b")); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("%s with a token for another queue: %v, want ErrNotFound", name, err)
			}
			if err := call(within("a")); err != nil {
				t.Errorf("%s with a token for its own queue: %v", name, err)
			}
		}
		claimed := <-w.claim(context.Background(), call("a"), 0)
		for queue, want := range map[string]error{"b": task.ErrNotFound, "a": nil} {
			got, _, err := w.Settle(within(queue), one, []Settle{{Verb: Extend, Hold: hold(claimed[0])}})
			if err != nil || !errors.Is(got[0].Err, want) {
				t.Errorf("Extend with a token for queue %s: %+v, %v", queue, got, err)
			}
		}
		out, err := PauseSchedule.Call(context.Background(), w, ScheduleCommand{AtHome: home})
		if err != nil || out.Stamp().Shard != one || out.Stamp().Index == 0 {
			t.Errorf("PauseSchedule returned the stamp %+v, %v", out.At, err)
		}
	})
}

// No verb that selects tasks by a filter finds those outside the scope of a call.
func TestFiltersRespectScope(t *testing.T) {
	inWorld(t, func(w *world) {
		w.deadLetter(task.Spec{Queue: "a"}, Failing{Action: FailDead})
		w.enqueue(task.Spec{Queue: "a"})
		at, ready, requests := OnShard{one, ns}, Filter{States: []task.State{task.Ready}}, uint64(0)
		for _, c := range []struct {
			name string
			find func(ctx context.Context) (int64, error)
		}{
			{"a list of tasks", func(ctx context.Context) (int64, error) {
				out, err := ListTasks.Call(ctx, w, TaskList{OnShard: at, Filter: ready, Limit: 10})
				return int64(len(out.Page.Tasks)), err
			}},
			{"groups of dead letters", func(ctx context.Context) (int64, error) {
				out, err := GroupDead.Call(ctx, w, DeadOf{OnQueue{OnShard: at}, task.Dead})
				return int64(len(out.Groups)), err
			}},
			{"a count of matches", func(ctx context.Context) (int64, error) {
				out, err := CountMatches.Call(ctx, w, MatchCount{OnShard: at, Filter: ready})
				return out.Matches.Count, err
			}},
			{"an operation", func(ctx context.Context) (int64, error) {
				requests++
				spec := OperationSpec{Action: task.Cancel, Filter: ready, Request: task.NewID(one, 1, requests)}
				out, err := StartOperation.Call(ctx, w, NewOperation{OnShard: at, Spec: spec})
				w.must(err)
				return w.waitUntilStopped(out.View.ID).Matched, nil
			}},
		} {
			for i, queue := range []string{"b", "a"} {
				if n, err := c.find(within(queue)); err != nil || n != int64(i) {
					t.Errorf("%s with a token for queue %s found %d, %v, want %d", c.name, queue, n, err, i)
				}
			}
		}
	})
}
