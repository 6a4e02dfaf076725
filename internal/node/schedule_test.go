package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/task"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// While leaders die, of the schedule's home and of its tasks' shard, each tick enqueues exactly one task.
func TestSchedulesSurviveElections(t *testing.T) {
	bySameGoroutines(t, "TestOperationsSurviveElections")
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		w.addShard()
		c := w.anyone()
		const every = 5 * time.Second
		if _, err := admin.New(c).Schedules().Put(t.Context(), admin.ScheduleSpec{Name: "beat", Every: every,
			Task: pawl.RawTask{Type: "beat"}}); err != nil {
			t.Fatal(err)
		}
		for round := range uint32(6) {
			pass(17 * time.Second)
			if round == 2 { // from now on the tasks are in another shard than the schedule
				w.until("the tasks go elsewhere", func() error { return sendAway(t, w.anyone()) })
			}
			name := w.leaderOf(1 + round%2)
			w.crash(name)
			pass(9 * time.Second)
			w.start(name, dirs[name])
			w.until("three voters each", w.replicated(3))
		}
		w.until("each tick has its task", func() error { return ticksAreWhole(t, w.anyone(), every) })
	})
}

// sendAway moves the queue of a schedule's tasks to the other of two shards.
func sendAway(t *testing.T, c *pawl.Client) error {
	s, err := admin.New(c).Schedules().Get(t.Context(), "beat")
	if err != nil {
		return err
	}
	id, err := task.ParseID(s.ID)
	if err != nil {
		return err
	}
	_, err = admin.New(c).Queues().Spread(t.Context(), "default", admin.SpreadOptions{Shards: []int{3 - int(id.Shard())}})
	return err
}

// ticksAreWhole returns what is wrong with the history of a schedule that was never paused, or with its tasks.
func ticksAreWhole(t *testing.T, c *pawl.Client, every time.Duration) error {
	var ticks []*admin.Tick
	for tick, err := range admin.New(c).Schedules().History(t.Context(), "beat") {
		if err != nil {
			return err
		}
		ticks = append(ticks, tick)
	}
	if len(ticks) < 30 {
		return errors.New("the history is short")
	}
	slices.Reverse(ticks)
	shards, tasks := map[uint32]bool{}, map[string]bool{}
	for i, tick := range ticks {
		if i > 0 && tick.PlannedAt.Sub(ticks[i-1].PlannedAt) != every || tick.Outcome != admin.TickFired {
			t.Errorf("tick %+v follows %+v", tick, ticks[max(i-1, 0)])
		}
		id, err := task.ParseID(tick.TaskID)
		if err != nil {
			return fmt.Errorf("the task of %s is on its way", tick.PlannedAt)
		}
		tasks[tick.TaskID], shards[id.Shard()] = true, true
	}
	there := 0
	for info, err := range admin.New(c).Tasks().List(t.Context(), admin.Filter{Queue: "default"}) {
		if err != nil {
			return err
		}
		if tasks[info.ID] {
			there++
		} else if info.CreatedAt.Before(ticks[len(ticks)-1].DecidedAt) {
			t.Errorf("task %s of %s is of no tick", info.ID, info.CreatedAt)
		}
	}
	if there != len(ticks) || len(tasks) != len(ticks) || len(shards) != 2 {
		t.Errorf("%d tasks, %d of them different, in shards %v, for %d ticks", there, len(tasks), shards, len(ticks))
	}
	return nil
}

// The task of a schedule belongs to the trace that its home began, even if it is in another shard.
func TestTickIsTracedInAnotherShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		s := start(t, Config{InMemory: true, DataShards: 2, Tracers: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
		c := s.client()
		put, err := admin.New(c).Schedules().Put(t.Context(), admin.ScheduleSpec{Name: "beat", Every: time.Hour,
			Task: pawl.RawTask{Type: "beat"}})
		if err != nil {
			t.Fatal(err)
		}
		home, err := task.ParseID(put.Schedule.ID)
		if err != nil {
			t.Fatal(err)
		}
		for sendAway(t, c) != nil { // while the queue is still moving
			pass(time.Second)
		}
		ref, err := admin.New(c).Schedules().Trigger(t.Context(), "beat")
		if err != nil {
			t.Fatal(err)
		}
		info, err := c.Task(t.Context(), ref.ID)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := task.ParseID(ref.ID); err != nil || id.Shard() == home.Shard() {
			t.Errorf("task %s lies with its schedule %s, %v", ref.ID, home, err)
		}
		ended := spans.Ended()
		if len(ended) != 1 || info.Headers["traceparent"] != fmt.Sprintf("00-%s-%s-01", ended[0].SpanContext().TraceID(),
			ended[0].SpanContext().SpanID()) {
			t.Errorf("%d spans, and the task has headers %v", len(ended), info.Headers)
		}
		s.end()
	})
}
