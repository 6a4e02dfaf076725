package waiting

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/task"
)

// world is a sender. Its messages are named "shard/queue", or "shard/" if they are no tasks. Each is another message,
// unless "#" and an id follows.
type world struct {
	t      *testing.T
	lanes  Lanes
	due    time.Time
	unique uint64
}

func (w *world) messages(names []string) (all []Message) {
	for _, name := range names {
		w.unique++
		m := Message{ID: task.NewID(1, 1, w.unique), To: Destination{Namespace: "ns"}}
		name, id, named := strings.Cut(name, "#")
		if named {
			m.ID = task.ID{id[0]}
		}
		_, _ = fmt.Sscanf(strings.Replace(name, "/", " ", 1), "%d %s", &m.To.Shard, &m.To.Queue)
		all = append(all, m)
	}
	return all
}

// page assigns the messages of a page, in the current pass, and starts the batches that may be sent. It compares them with want.
func (w *world) page(want string, names ...string) (started []*Batch) {
	w.t.Helper()
	batches, due, ok := w.lanes.Assign(w.messages(names), w.lanes.Ended(), time.Now())
	if !ok {
		w.t.Fatal("the page must be read again")
	}
	w.due = due
	var got []string
	for _, b := range batches {
		if w.lanes.Start(context.Background(), b) {
			started = append(started, b)
			got = append(got, fmt.Sprint(b.Indexes))
		}
	}
	if strings.Join(got, " ") != want {
		w.t.Errorf("of %v, %v were sent, want %s", names, got, want)
	}
	return started
}

// pass is a pass over one page.
func (w *world) pass(want string, names ...string) []*Batch {
	w.t.Helper()
	w.lanes.Begin()
	return w.page(want, names...)
}

// end ends a batch, of which the kept messages were refused, and checks whether there must be another pass.
func (w *world) end(b *Batch, again bool, kept ...int) {
	w.t.Helper()
	var failed []Failure
	for _, i := range kept {
		failed = append(failed, Failure{Index: i, Reason: "on purpose", Answered: true})
	}
	if got := w.lanes.End(b, failed, true); got != again {
		w.t.Errorf("End of %+v says again: %t, want %t", *b, got, again)
	}
}

// away ends a batch that was not answered.
func (w *world) away(b *Batch) {
	w.t.Helper()
	var failed []Failure
	for i := range b.messages {
		failed = append(failed, Failure{Index: i, Reason: "no answer"})
	}
	if !w.lanes.End(b, failed, true) {
		w.t.Errorf("no pass follows %+v, which was not answered", *b)
	}
}

func (w *world) wait(want time.Duration) {
	w.t.Helper()
	if got := time.Until(w.due); w.due.IsZero() || got != want {
		w.t.Errorf("the next message is due in %v, want %v", got, want)
	}
	time.Sleep(want)
}

func inWorld(t *testing.T, test func(*world)) {
	synctest.Test(t, func(t *testing.T) { test(&world{t: t}) })
}

// Each shard has one batch at a time. What comes meanwhile is sent after it, and another pass begins only if there is any.
func TestOneBatchForEachShard(t *testing.T) {
	inWorld(t, func(w *world) {
		began := time.Now()
		b := w.pass("[0 2 3] [1]", "1/a", "2/a", "1/b", "1/")
		c := w.pass("[1]", "1/a", "3/a")
		w.end(c[0], true)
		w.end(b[1], false)
		w.pass("[1]", "1/c", "2/a")
		w.end(b[0], true)
		if !w.due.IsZero() || time.Since(began) > 0 {
			t.Errorf("messages are due at %v: none failed; waited %v for batches of earlier passes", w.due, time.Since(began))
		}
		w.pass("[0]", "1/c")
	})
}

// A refused message makes only those for its queue wait, ever longer, and in a lane of its own. It ends when none is refused.
func TestRefusedMessagesWait(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0 1 2 3]", "1/full", "1/a", "1/full", "1/")
		w.end(b[0], true, 2)
		b = w.pass("[1 2]", "1/full", "1/a", "1/")
		w.wait(MinPause)
		c := w.pass("[0]", "1/full", "1/a") // while others are on their way
		w.end(c[0], true, 0)
		w.end(b[0], false)
		for pause := 2 * MinPause; pause < 2*MaxPause; pause *= 2 {
			w.pass("", "1/full")
			w.wait(min(pause, MaxPause))
			time.Sleep(time.Second) // the sender may be late
			b = w.pass("[0 1]", "1/full", "1/full")
			w.end(b[0], true, 0)
		}
		w.pass("", "1/full")
		w.wait(MaxPause)
		b = w.pass("[0] [1]", "1/full", "1/a")
		w.end(b[0], false)
		w.end(b[1], false)
		w.pass("[0 1]", "1/full", "1/a")
	})
}

// A shard that answers nothing is tried with one batch for all of its queues. Others are not delayed.
func TestShardIsAway(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0 1]", "1/full", "1/a")
		w.end(b[0], true, 0)
		time.Sleep(MinPause)
		b = w.pass("[0] [1]", "1/full", "1/a")
		w.away(b[1])
		time.Sleep(MinPause)
		c := w.pass("[1]", "1/full", "1/a") // the other batch is still on its way
		w.end(c[0], true)
		c = w.pass("[1]", "1/full", "1/a")
		w.away(b[0])
		w.away(c[0])
		w.pass("[2]", "1/full", "1/a", "2/a")
		w.wait(MinPause)
		b = w.pass("[0 1 2]", "1/full", "1/a", "1/")
		w.pass("", "1/full", "1/b")
		w.end(b[0], true)
		w.pass("[0 1]", "1/full", "1/b")
	})
}

// Batches of one pass follow each other, but a pass does not wait long for one, and not at all for one of an earlier pass.
func TestPassWaitsForItsOwnBatches(t *testing.T) {
	inWorld(t, func(w *world) {
		began := time.Now()
		b := w.pass("[0]", "1/a")
		time.AfterFunc(laneWait/2, func() { w.lanes.End(b[0], nil, true) })
		b = w.page("[1] [0]", "1/a", "2/a")
		if took := time.Since(began); took != laneWait/2 {
			t.Errorf("waited %v for a batch, want %v", took, laneWait/2)
		}
		w.page("", "1/a")
		w.page("", "1/a")
		w.pass("[1]", "1/a", "3/a")
		if took := time.Since(began); took != laneWait*3/2 {
			t.Errorf("waited %v in all, want a second for one batch that takes long", took)
		}
		w.away(b[1])
		time.Sleep(MinPause)
		w.pass("[0]", "1/a") // it may be away still
		w.page("", "1/b")
		if took := time.Since(began); took != laneWait*3/2+MinPause {
			t.Errorf("waited for a shard that was away")
		}
	})
}

// A batch that fails while the pass waits for it takes what waits with it.
func TestBatchFailsWhileAnotherWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0]", "1/a")
		time.AfterFunc(laneWait/2, func() { w.away(b[0]) })
		w.page("", "1/b")
	})
}

// Messages are read again if a batch of an earlier pass has ended meanwhile: they may have been delivered with it.
func TestPageIsReadAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0] [1]", "1/a", "2/a")
		ended := w.lanes.Ended()
		w.end(b[1], false)
		if _, _, ok := w.lanes.Assign(w.messages([]string{"3/a"}), ended, time.Now()); !ok {
			t.Error("a page must be read again after a batch of the same pass")
		}
		w.lanes.Begin()
		ended = w.lanes.Ended()
		w.end(b[0], false)
		if _, _, ok := w.lanes.Assign(w.messages([]string{"1/a"}), ended, time.Now()); ok {
			t.Error("a page need not be read again after a batch of an earlier pass")
		}
	})
}

// Only some queues are tried at the same time; shards are not bounded by that, and nothing is kept of what is delivered.
func TestTriesAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		var names []string
		for i := range maxTries + 2 {
			names = append(names, fmt.Sprintf("1/q%d", i))
		}
		w.lanes.Begin()
		batches, _, _ := w.lanes.Assign(w.messages(names), 0, time.Now())
		w.lanes.Start(t.Context(), batches[0])
		w.end(batches[0], true, batches[0].Indexes...)
		time.Sleep(MinPause)
		w.lanes.Begin()
		batches, _, _ = w.lanes.Assign(w.messages(append(names, "1/other")), w.lanes.Ended(), time.Now())
		var started []*Batch
		for _, b := range batches {
			if w.lanes.Start(t.Context(), b) {
				started = append(started, b)
			}
		}
		if n := len(started); n != maxTries+1 || !slices.Contains(started, batches[len(batches)-1]) {
			t.Errorf("%d batches were started, want %d queues' and one of others", n, maxTries)
		}
		for i, b := range started {
			w.end(b, i == 0)
		}
		if n := len(w.lanes.all); n != 2 || w.lanes.tries != 0 {
			t.Errorf("%d lanes and %d tries were kept, want those of the 2 queues that wait", n, w.lanes.tries)
		}
	})
}

// A pass does not overtake what it has left out: messages for one destination are sent in order, even if a lane becomes
// free between two pages.
func TestPassOvertakesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0]", "1/a")
		w.pass("", "1/a")
		w.end(b[0], true)
		c := w.page("[1]", "1/a", "1/b")
		w.end(c[0], true)
		b = w.pass("[0 1]", "1/a", "1/a")
		w.end(b[0], true, 1)
		w.pass("", "1/a")
		w.wait(MinPause)
		w.page("", "1/a") // its pause ends between the pages
		w.pass("[0 1]", "1/a", "1/a")
		b = w.pass("[0]", "2/a")
		w.page("", "2/a") // the batch takes longer than a pass waits
		w.end(b[0], true)
		w.page("[1]", "2/a", "2/b")
	})
}

// A message that is refused while the pass waits for its batch is not overtaken by one that goes with the next.
func TestRefusedMessageIsNotOvertaken(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0 1]", "1/full", "1/a")
		time.AfterFunc(laneWait/2, func() { w.end(b[0], true, 0) })
		w.page("", "1/a", "1/full")
		w.pass("[1]", "1/full", "1/a", "1/full")
	})
}

// A message that fails is not overtaken later in the same pass, even if its pause ends meanwhile.
func TestFailedMessageIsNotOvertaken(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0 1] [2 3] [4]", "1/full", "1/a", "2/a", "2/b", "3/a")
		w.end(b[0], true, 0)
		w.away(b[1])
		w.lanes.End(b[2], nil, false) // no answer was recorded
		time.Sleep(MinPause)
		w.page("[1] [3]", "1/full", "1/a", "2/a", "2/c", "3/a")
		w.pass("[0]", "1/full") // the next pass begins with it
	})
}

// A message has one lane at a time, also if its queue moves to another shard. Those behind it do not overtake it. The
// end of its batch makes all of them due: from then on none of them is on its way.
func TestMessageOfAQueueThatMoves(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0]", "1/a#m")
		w.pass("[2]", "2/a#m", "2/a#n", "2/b")
		w.end(b[0], true, 0)
		w.pass("", "2/b") // the batch with b is still on its way
		time.Sleep(MinPause)
		w.pass("[0 1]", "3/a#m", "3/a#n")
	})
}

// A message that is not answered in a lane of its own delays only its queue: it is no sign that the shard is away.
func TestOnlyAQueueIsAway(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0 1]", "1/moving", "1/a")
		w.end(b[0], true, 0)
		time.Sleep(MinPause)
		b = w.pass("[0] [1]", "1/moving", "1/a")
		w.end(b[1], false)
		w.away(b[0])
		w.pass("[1]", "1/moving", "1/a")
		w.wait(2 * MinPause)
	})
}

// A message that makes its shard panic waits alone, ever longer: others for its queue pass it.
func TestMessageThatPanicsWaitsAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		for pause := panicPause; pause < 3*PanicLongPause; pause *= 2 {
			b := w.pass("[0 1]", "1/a#m", "1/a")
			if !w.lanes.End(b[0], []Failure{{Index: 0, Reason: "it panicked", Answered: true, Panicked: true}}, true) {
				t.Error("no pass follows a panic")
			}
			w.pass("", "1/a")
			time.Sleep(MaxPause / 2) // of its queue
			b = w.pass("[1]", "1/a#m", "1/a")
			w.end(b[0], false)
			w.wait(min(pause, PanicLongPause) - MaxPause/2)
		}
	})
}

// A panic is remembered even if many other messages fail.
func TestPanicIsRememberedAmongMany(t *testing.T) {
	inWorld(t, func(w *world) {
		indexes := make([]int, maxTried)
		for i := range indexes {
			indexes[i] = i
		}
		w.away(w.pass(fmt.Sprint(indexes), slices.Repeat([]string{"1/a"}, maxTried)...)[0])
		for range 2 {
			b := w.pass("[0]", "2/a#m")
			w.lanes.End(b[0], []Failure{{Reason: "it panicked", Answered: true, Panicked: true}}, true)
			time.Sleep(MaxPause / 2) // of its queue
			w.pass("", "2/a#m")
			time.Sleep(PanicLongPause)
		}
	})
}

// The memory of undelivered messages is bounded. Its entries are removed with the messages, and all of them at the end of the term.
func TestAttempts(t *testing.T) {
	inWorld(t, func(w *world) {
		messages, failed := w.messages(slices.Repeat([]string{"1/a"}, maxTried+1)), make([]Failure, maxTried+1)
		send := func(failed []Failure, recorded bool) {
			w.lanes.Begin()
			batches, _, ok := w.lanes.Assign(messages, w.lanes.Ended(), time.Now())
			if !ok || len(batches) != 1 || !w.lanes.Start(t.Context(), batches[0]) {
				t.Fatalf("Assign = %v, %t, want one batch", batches, ok)
			}
			w.lanes.End(batches[0], failed, recorded)
			time.Sleep(MaxPause)
		}
		tries := func(want map[int]explain.Delivery) {
			t.Helper()
			for i, d := range want {
				if got := w.lanes.Of(messages[i].ID); got != d {
					t.Errorf("message %d is reported as %+v, want %+v", i, got, d)
				}
			}
		}
		for i := range failed {
			failed[i] = Failure{Index: i, Reason: fmt.Sprint(i)}
		}
		for range 3 {
			send(failed, true)
		}
		send(nil, false) // no answer was recorded
		tries(map[int]explain.Delivery{0: {Tries: 3, Error: "0"}, 1: {Tries: 3, Error: "1"}, maxTried: {}})
		send(failed[1:], true)
		tries(map[int]explain.Delivery{0: {}, 1: {Tries: 4, Error: "1"}, maxTried: {Tries: 1, Error: fmt.Sprint(maxTried)}})
		w.lanes.BeginTerm()
		tries(map[int]explain.Delivery{1: {}, maxTried: {}})
	})
}

// Lanes to which no message is sent any more are forgotten.
func TestLanesAreForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		b := w.pass("[0 1 2]", "1/a", "1/b", "1/c")
		w.end(b[0], true, 0, 1)
		time.Sleep(MinPause)
		b = w.pass("[0]", "1/b")
		time.Sleep(MaxPause + time.Second)
		w.lanes.Begin()
		if n := len(w.lanes.all); n != 1 {
			t.Errorf("%d lanes were kept, want that with a batch", n)
		}
		w.end(b[0], false)
	})
}
