package broker

import (
	"bytes"
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

	"github.com/pawlq/pawl/internal/broker/waiting"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// followed returns specs of tasks that are followed by tasks in another shard.
func followed(n int) []task.Spec {
	specs := make([]task.Spec, n)
	for i := range specs {
		specs[i] = task.Spec{Queue: "a", Then: []task.Spec{{Queue: "far", Type: "next", Key: fmt.Sprint(i)}}}
	}
	return specs
}

// arrived returns how many tasks of a queue are ready.
func (w *world) arrived(queue string) int {
	w.t.Helper()
	page, err := ListTasks.Call(context.Background(), w, TaskList{OnShard: OnShard{shardOf(queue), ns}, Filter: ready(queue), Limit: 1000})
	w.must(err)
	return len(page.Page.Tasks)
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
		arrived := func() int { return w.arrived("far") }
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
		w.pass(waiting.MaxPause)
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
			if !strings.Contains(line, want[i]) || !strings.HasSuffix(line, of[i]) || !strings.Contains(line, "queue=far") ||
				!strings.Contains(line, "is frozen") {
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

// A message that makes its shard panic is sent ever more rarely, and holds up none of the others. It is delivered once
// its shard can handle it.
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
			if n := w.arrived("far"); n != want {
				t.Errorf("%d messages arrived, want %d", n, want)
			}
		}
		for range 10 {
			w.pass(time.Hour)
			r, err := w.replica(one)
			w.must(err)
			_, _, _ = change(context.Background(), r, func(*engine.Round) (struct{}, error) {
				panic("a round is dropped, and the term goes on")
			})
		}
		if n := tries.Load(); n < 16 || n > 20 { // 9 until the pause is an hour, and one for each of the others
			t.Errorf("the message was sent %d times in ten hours", n)
		}
		arrived(2)
		r, err := w.replica(one)
		w.must(err)
		left, _, err := read(context.Background(), r, func(from store.Reader) ([]schema.StoredMessage, error) {
			return schema.ListMessages(from, ns, task.ID{}, 10), nil
		})
		w.must(err)
		if d := r.sender.lanes.Of(left[0].Request); d.Tries < 16 || !strings.Contains(d.Error, "panicked") {
			t.Errorf("explain says %+v", d)
		}
		w.onTheWay.Store(nil)
		w.pass(waiting.PanicLongPause + waiting.MaxPause)
		arrived(3)
	})
}

// A queue that is full and a shard that hangs hold up their own messages, and no others: neither new ones nor those
// behind them in the outbox.
func TestDestinationsDoNotWaitForEachOther(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		defer w.addShard(three)()
		w.pass(5 * time.Second)
		var mu sync.Mutex
		sent := map[string]int{}
		tries := func(queue string) int {
			mu.Lock()
			defer mu.Unlock()
			return sent[queue]
		}
		stuck := func(m *OutboxMessage) error {
			mu.Lock()
			sent[m.Spec.Queue]++
			mu.Unlock()
			switch m.Spec.Queue {
			case "third-full":
				return &task.Error{Code: task.CodeQueueFull, Message: "the queue is full"}
			case "far-hangs":
				time.Sleep(time.Minute)
				return errors.New("no answer")
			}
			return nil
		}
		w.onTheWay.Store(&stuck)
		follow := func(n int, queue string) {
			specs := make([]task.Spec, n)
			for i := range specs {
				specs[i] = task.Spec{Queue: "a", Then: []task.Spec{{Queue: queue, Type: "next"}}}
			}
			w.enqueue(specs...)
			w.ackAll("a")
		}
		follow(1, "third-full")
		w.pass(30 * time.Second) // its pauses are long by now
		follow(2*outboxChunk+1, "far-hangs")
		follow(3, "third-1")
		w.pass(1100 * time.Millisecond)
		if n := tries("third-1"); n != 3 {
			t.Errorf("%d of 3 messages were sent within a second after those for a shard that hangs", n)
		}
		for i := range 10 {
			queue := fmt.Sprintf("third-%d", i+2)
			follow(1, queue)
			w.pass(10 * time.Millisecond)
			if n := tries(queue); n != 1 {
				t.Errorf("a message to %q was sent %d times at once, want once", queue, n)
			}
			w.pass(3300 * time.Millisecond)
		}
		if n := tries("third-full"); n < 8 || n > 12 {
			t.Errorf("the message for a full queue was sent %d times in about a minute", n)
		}
		if n := tries("far-hangs"); n != 1 {
			t.Errorf("%d messages were sent to a shard that hangs", n)
		}
		w.onTheWay.Store(nil)
		w.pass(2 * time.Minute)
		for _, queue := range []string{"third-full", "far-hangs"} {
			if n, want := w.arrived(queue), map[string]int{"third-full": 1, "far-hangs": 2*outboxChunk + 1}[queue]; n != want {
				t.Errorf("%d messages arrived in %q in the end, want %d", n, queue, want)
			}
		}
	})
}

// A message that makes a call with several panic does not delay those that there was no time to send alone: only one
// that was does its shard any harm.
func TestPanicAmongSlowMessages(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		w.pass(5 * time.Second)
		var alone atomic.Bool
		panics := func(m *OutboxMessage) error {
			if m.Spec.Key == "0" {
				alone.Store(true)
				return fmt.Errorf("shard 2: %w", &PanicError{Value: "on purpose"})
			}
			if alone.Load() {
				time.Sleep(outboxSendTime / 150) // twice for each, so that there is time for 75
			}
			return nil
		}
		w.together.Store(true)
		away := func(*OutboxMessage) error { return errors.New("no answer") }
		w.onTheWay.Store(&away)
		w.enqueue(followed(100)...)
		w.ackAll("a")
		w.onTheWay.Store(&panics)
		w.pass(14 * time.Second)
		if n := w.arrived("far"); n != 99 {
			t.Errorf("%d messages arrived, want all but one", n)
		}
	})
}

// The sender pauses after it has read messages that wait, the longer the more there are: it must leave the node time for others.
func TestPauseAfterMessagesThatWait(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		defer w.addShard(three)()
		w.pass(5 * time.Second)
		var sent atomic.Int64
		hangs := func(m *OutboxMessage) error {
			if m.Spec.Queue == "far" {
				time.Sleep(time.Minute)
				return errors.New("no answer")
			}
			sent.Add(1)
			return nil
		}
		w.onTheWay.Store(&hangs)
		const waiting = 5 * outboxChunk
		w.enqueue(followed(waiting)...)
		w.ackAll("a")
		w.pass(2 * time.Second)
		next := func(want int64, after time.Duration) {
			t.Helper()
			w.enqueue(task.Spec{Queue: "a", Then: []task.Spec{{Queue: "third", Type: "next"}}})
			w.ackAll("a")
			w.pass(after)
			if n := sent.Load(); n != want {
				t.Errorf("%d messages to another shard were sent after %v, want %d", n, after, want)
			}
		}
		pause := waiting * outboxReadPause
		next(1, 0)
		next(1, pause/2)
		next(3, pause/2+time.Millisecond)
	})
}

// Messages for a queue are sent in the order of the outbox, also if its shard takes longer than a pass waits, and others do not.
func TestMessagesOfAQueueKeepTheirOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		defer w.addShard(three)()
		w.pass(5 * time.Second)
		away := func(*OutboxMessage) error { return errors.New("no answer") }
		w.onTheWay.Store(&away)
		specs := followed(8 * outboxChunk)
		for i := range specs {
			if i%2 == 1 {
				specs[i].Then[0].Queue = "third"
			}
		}
		w.enqueue(specs...)
		w.ackAll("a")
		var mu sync.Mutex
		sent := map[string][]task.ID{}
		slow := func(m *OutboxMessage) error {
			time.Sleep(map[string]time.Duration{"far": 12 * time.Millisecond, "third": 9 * time.Millisecond}[m.Spec.Queue])
			mu.Lock()
			defer mu.Unlock()
			sent[m.Spec.Queue] = append(sent[m.Spec.Queue], m.Request)
			return nil
		}
		w.onTheWay.Store(&slow)
		w.pass(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for _, queue := range []string{"far", "third"} {
			if !slices.IsSortedFunc(sent[queue], func(a, b task.ID) int { return bytes.Compare(a[:], b[:]) }) ||
				len(sent[queue]) != 4*outboxChunk {
				t.Errorf("%d messages for %q were sent, or not in order, want all %d once", len(sent[queue]), queue, 4*outboxChunk)
			}
		}
	})
}

// A damaged message in a batch does not shift the attempts of the others: the one that its shard refuses for now is the
// one that is known as refused.
func TestDamagedMessageInABatch(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		if err != nil {
			t.Fatal(err)
		}
		r.b.cfg.SendOutbox = func(_ context.Context, _ string, messages []*OutboxMessage) []Enqueued {
			out := make([]Enqueued, len(messages))
			out[0].Err = task.Unavailable(time.Second, "the queue is full")
			return out
		}
		ids := []task.ID{task.NewID(one, 1, 1), task.NewID(one, 1, 2), task.NewID(one, 1, 3)}
		_, _, err = change(context.Background(), r, func(round *engine.Round) (struct{}, error) {
			for _, id := range ids {
				m := OutboxMessage{Request: id, Spec: task.Spec{Queue: "far", Type: "job", RequestID: id}}
				m.Put(round.Tx(), ns) // which does not wake the shard's own sender
			}
			key := schema.IDKey(ns, schema.TableOutbox, ids[0])
			row, _ := round.Tx().Get(key)
			round.Tx().Set(key, append(slices.Clone(row), 0xff))
			return struct{}{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &outboxSender{r: r, wake: make(chan struct{}, 1)}
		pass := outboxPass{s: s}
		if err := pass.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		for i, want := range []int64{0, 1, 0} {
			if got := s.lanes.Of(ids[i]); got.Tries != want {
				t.Errorf("message %d has %+v, want %d tries", i, got, want)
			}
		}
	})
}
