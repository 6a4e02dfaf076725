package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/task"
)

// The memory of undelivered messages is bounded. Its entries are removed with the messages, and all of them at the end of the term.
func TestDeliveries(t *testing.T) {
	var e deliveries
	e.begin()
	messages, out := make([]*OutboxMessage, maxDeliveries+1), make([]Enqueued, maxDeliveries+1)
	kept := make([]int, len(messages))
	for i := range messages {
		messages[i] = &OutboxMessage{Request: task.ID{1, byte(i >> 8), byte(i)}} // #nosec G115 -- cut on purpose
		out[i].Err, kept[i] = errors.New("read tcp: reset"), i
	}
	out[1].Err = task.Unavailable(time.Second, "shard 7 has no leader")
	for range 3 {
		e.done(messages, out, kept, time.Time{})
	}
	for i, want := range map[int]explain.Delivery{0: {Tries: 3, Error: "its shard did not answer"}, 1: {Tries: 3, Error: "shard 7 has no leader"}, maxDeliveries: {}} {
		if got := e.of(messages[i].Request); got != want {
			t.Errorf("message %d is reported as %+v, want %+v", i, got, want)
		}
	}
	e.done(messages[:2], out, []int{1}, time.Time{})
	e.done(messages[maxDeliveries:], out, []int{0}, time.Time{}) // there is space now
	for i, want := range map[int]int64{0: 0, 1: 4, maxDeliveries: 1} {
		if got := e.of(messages[i].Request).Tries; got != want {
			t.Errorf("after further deliveries message %d has %d tries, want %d", i, got, want)
		}
	}
	if e.begin(); e.of(messages[1].Request) != (explain.Delivery{}) {
		t.Error("deliveries were kept across a change of term")
	}
}

// followed returns specs of tasks that are followed by tasks in another shard.
func followed(n int) []task.Spec {
	specs := make([]task.Spec, n)
	for i := range specs {
		specs[i] = task.Spec{Queue: "a", Then: []task.Spec{{Queue: "far", Type: "next", Key: fmt.Sprint(i)}}}
	}
	return specs
}

// ackAll acks all tasks of a queue of the first shard.
func (w *world) ackAll(queue string) {
	w.t.Helper()
	c := call(queue)
	c.Max = 100
	for {
		got := <-w.claim(context.Background(), c, 0)
		if len(got) == 0 {
			return
		}
		for _, t := range got {
			if s := w.settle(Settle{Verb: Ack, Hold: hold(t)}); s.Err != nil {
				w.t.Fatal(s.Err)
			}
		}
	}
}

// Messages are sent in batches. Unanswered ones are resent at increasing intervals, and hold up none of the others. They
// outlive their leader.
func TestMessagesAreResent(t *testing.T) {
	inWorld(t, func(w *world) {
		stop := w.addShard(two)
		defer stop()
		w.pass(5 * time.Second)
		var mu sync.Mutex
		tries := map[string]int{}
		stuck := func(m *OutboxMessage) error {
			mu.Lock()
			defer mu.Unlock()
			if tries[m.Spec.Key]++; m.Spec.Key == "7" {
				return task.Unavailable(time.Second, "no way there")
			}
			return nil
		}
		w.onTheWay.Store(&stuck)
		w.enqueue(followed(outboxChunk + 5)...)
		w.ackAll("a")
		w.pass(time.Minute)
		arrived := func() int {
			page, err := ListTasks.Call(context.Background(), w, TaskList{OnShard: OnShard{two, ns}, Filter: ready("far"), Limit: 1000})
			w.must(err)
			return len(page.Page.Tasks)
		}
		mu.Lock()
		if n := tries["7"]; n < 7 || n > outboxChunk+15 {
			t.Errorf("an undeliverable message was tried %d times within a minute", n)
		}
		before := tries["7"]
		if others := tries["8"]; others != 1 {
			t.Errorf("another message was sent %d times, want once", others)
		}
		mu.Unlock()
		if n := arrived(); n != outboxChunk+4 {
			t.Errorf("%d messages arrived, want all but one", n)
		}
		w.pass(time.Minute)
		mu.Lock()
		if n := tries["7"] - before; n < 5 || n > 7 {
			t.Errorf("the message was tried %d times in the second minute", n)
		}
		mu.Unlock()
		if n := strings.Count(w.log.String(), "are not delivered yet"); n < 10 || !strings.Contains(w.log.String(), "no way there") {
			t.Errorf("the log warns %d times about undelivered messages: %s", n, w.log)
		}
		w.onTheWay.Store(nil)
		w.pass(outboxLongRetry)
		if n := arrived(); n != outboxChunk+5 {
			t.Errorf("%d messages arrived, want all", n)
		}
	})
}

// A task that its shard refuses permanently is not sent again, and the log says where it came from.
func TestRefusedMessagesAreLogged(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		refused := func(*OutboxMessage) error { return task.Invalid("queue", "%q is frozen", "far") }
		w.onTheWay.Store(&refused)
		ids := w.enqueue(followed(1)...)
		w.ackAll("a")
		g := task.Group{Tasks: []task.Spec{{Queue: "far", Type: "member"}}}
		g.Fill()
		made, _, err := w.MakeGroup(ctx, one, ns, g, nil)
		w.must(err)
		spec := task.Schedule{Name: "hourly", Every: time.Hour, Task: task.Spec{Queue: "far", Type: "tick"}}
		spec.Fill()
		_, err = PutSchedule.Call(ctx, w, SchedulePutCall{OnShard: OnShard{one, ns}, Put: SchedulePut{Schedule: spec, Version: 1}})
		w.must(err)
		home := AtHome{OnSchedule{OnShard{one, ns}, "hourly"}}
		fired, err := TriggerSchedule.Call(ctx, w, ScheduleTrigger{AtHome: home, Request: task.NewID(one, time.Now().UnixMilli(), 7)})
		if err != nil || fired.Made.Message == nil {
			t.Fatalf("TriggerSchedule = %+v, %v, want a message to another shard", fired, err)
		}
		synctest.Wait()
		var lines []string
		for line := range strings.Lines(w.log.String()) {
			if _, rest, ok := strings.Cut(line, "a task for another shard was refused"); ok {
				lines = append(lines, strings.TrimSpace(rest))
			}
		}
		slices.Sort(lines)
		want := []string{"type=member", "type=next", "type=tick"}
		of := []string{"group_id=" + made.Group.ID.String(), "parent_id=" + ids[0].String(), "schedule=hourly"}
		if len(lines) != 3 {
			t.Fatalf("the log has %q, want 3 refusals", lines)
		}
		for i, line := range lines {
			if !strings.Contains(line, want[i]) || !strings.HasSuffix(line, of[i]) || !strings.Contains(line, "queue=far") || !strings.Contains(line, "is frozen") {
				t.Errorf("the log has %q, want %s of %s", line, want[i], of[i])
			}
		}
		w.pass(time.Minute)
		if n := strings.Count(w.log.String(), "refused"); n != 3 {
			t.Errorf("%d log lines report a refusal, want 3", n)
		}
		history, err := ScheduleHistory.Call(ctx, w, ScheduleHistoryList{AtHome: home, Limit: 10})
		if err != nil || len(history.Entries) != 1 {
			t.Errorf("ScheduleHistory = %+v, %v, want one entry", history, err)
		}
	})
}

// A new leader delivers the messages that the previous one could not.
func TestMessagesSurviveElection(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		stop := w.addShard(two)
		w.pass(5 * time.Second)
		lost := func(*OutboxMessage) error { return errors.New("connection reset") }
		w.onTheWay.Store(&lost)
		g := task.Group{Tasks: []task.Spec{{Queue: "a", Type: "job"}}} // whose home is the other shard
		g.Fill()
		_, _, err := w.MakeGroup(ctx, two, ns, g, nil)
		w.must(err)
		w.pass(time.Second)
		stop()
		w.onTheWay.Store(nil)
		stop = w.addShard(two)
		defer stop()
		w.pass(5 * time.Second)
		if got := <-w.claim(ctx, call("a"), 0); len(got) != 1 {
			t.Errorf("claimed %v, want the task delivered by the new leader", got)
		}
	})
}

// A node that stops does not warn about undelivered messages: the next leader delivers them.
func TestNoWarningOfMessagesAtTheEnd(t *testing.T) {
	var log *syncBuffer
	inWorld(t, func(w *world) {
		log = w.log
		held := func(*OutboxMessage) error { <-w.stopping.Done(); return errors.New("the node stops") }
		w.onTheWay.Store(&held)
		w.enqueue(followed(1)...)
		w.ackAll("a")
		synctest.Wait()
	})
	if strings.Contains(log.String(), "not delivered yet") {
		t.Errorf("a stopping node logged undelivered messages: %s", log)
	}
}

// A message that makes its shard panic is sent ever more rarely, and holds up none of the others. It is delivered once its shard can handle it.
func TestMessageThatPanics(t *testing.T) {
	inWorld(t, func(w *world) {
		stop := w.addShard(two)
		defer stop()
		w.pass(5 * time.Second)
		var tries atomic.Int64
		panics := func(m *OutboxMessage) error {
			if m.Spec.Key == "1" {
				tries.Add(1)
				return fmt.Errorf("shard 2: %w", &PanicError{Value: "on purpose"})
			}
			return nil
		}
		w.onTheWay.Store(&panics)
		w.enqueue(followed(3)...)
		w.ackAll("a")
		arrived := func(want int) {
			t.Helper()
			page, err := ListTasks.Call(context.Background(), w, TaskList{OnShard: OnShard{two, ns}, Filter: ready("far"), Limit: 10})
			w.must(err)
			if n := len(page.Page.Tasks); n != want {
				t.Errorf("%d messages arrived, want %d", n, want)
			}
		}
		for range 10 {
			w.pass(time.Hour)
			r, err := w.replica(one)
			w.must(err)
			_, _, _ = change(context.Background(), r, func(*engine.Round) (struct{}, error) { panic("a round is dropped, and the term goes on") })
		}
		if n := tries.Load(); n < 16 || n > 20 { // 9 until the pause is an hour, and one for each of the others
			t.Errorf("the message was sent %d times in ten hours", n)
		}
		arrived(2)
		r, err := w.replica(one)
		w.must(err)
		var message task.ID
		r.sender.deliveries.mu.Lock()
		for message = range r.sender.deliveries.tried {
		}
		r.sender.deliveries.mu.Unlock()
		if d := r.sender.deliveries.of(message); d.Tries < 16 || !strings.Contains(d.Error, "panicked") {
			t.Errorf("explain says %+v", d)
		}
		w.onTheWay.Store(nil)
		w.pass(panicLongPause + outboxLongRetry)
		arrived(3)
	})
}
