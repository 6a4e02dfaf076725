package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// What is not there for a call can't be changed or read by it, whatever the verb.
func TestVerbsStayWithinTheScope(t *testing.T) {
	inWorld(t, func(w *world) {
		id := w.enqueue(task.Spec{Queue: "a"})[0]
		spec := task.Schedule{Name: "s", Every: time.Hour, Task: task.Spec{Queue: "a", Type: "t"}}
		spec.Fill()
		_, err := PutSchedule.Call(context.Background(), w, SchedulePutCall{OnShard: OnShard{one, ns}, Put: SchedulePut{Schedule: spec, Version: 1}})
		w.must(err)
		home := AtHome{OnSchedule{OnShard{one, ns}, "s"}}
		for name, call := range map[string]func(ctx context.Context) error{
			"an order": func(ctx context.Context) error { return order(ctx, w.Broker, RunNow, id) },
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
			within := func(queue string) error {
				return call(task.WithScope(context.Background(), task.Scope{Queues: []string{queue}}))
			}
			if err := within("b"); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("%s from another queue: %v", name, err)
			}
			if err := within("a"); err != nil {
				t.Errorf("%s from its own queue: %v", name, err)
			}
		}
		out, err := PauseSchedule.Call(context.Background(), w, ScheduleCommand{AtHome: home})
		if err != nil || out.Stamp().Shard != one || out.Stamp().Index == 0 {
			t.Errorf("a change tells of %+v, %v", out.At, err)
		}
	})
}
