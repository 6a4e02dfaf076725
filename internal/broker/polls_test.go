package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// ask returns a claim for polls to record.
func ask(queue, types, worker string) *waiter {
	return &waiter{call: engine.ClaimRequest{Namespace: ns, Queues: []engine.Share{{Queue: queue}}, Worker: worker}, types: types}
}

// The memory of polls is bounded: old ones are dropped first, and if all are dropped it is recorded since when polls are known.
func TestPollsAreBounded(t *testing.T) {
	r := &replica{b: &Broker{draining: make(chan struct{})}}
	at := func(d time.Duration) store.Time { return store.Time(0).Add(time.Hour + d) }
	r.polls.begin(at(0))
	stream, single := ask("s", "", "w1"), ask("s", "", "w2")
	stream.call.Stream = true
	r.polls.note(single, at(1))
	r.polls.note(stream, at(2))
	if got := r.workersOf(ns, "s", task.QueueWorkers{}).Polls; len(got) != 1 || got[0].Last != at(2) || got[0].Worker != "w1" || got[0].Called != at(1) || got[0].Caller != "w2" {
		t.Errorf("polls of a stream after a single call: %+v", got)
	}
	r.polls.note(ask("q", "old", "w0"), at(0))
	for i := range maxPolledTypes - 1 {
		r.polls.note(ask("q", fmt.Sprintf("type-%03d", i), "w1"), at(pollKept))
	}
	if n := len(r.workersOf(ns, "q", task.QueueWorkers{}).Polls); n != maxPolledTypes {
		t.Fatalf("%d sets of types are recorded, want %d", n, maxPolledTypes)
	}
	later := at(pollKept + time.Second)
	r.polls.note(ask("q", "new", "w2"), later)
	if got := r.workersOf(ns, "q", task.QueueWorkers{}); len(got.Polls) != maxPolledTypes || got.Polls[0].Types[0] != "new" || got.Since != at(0) {
		t.Errorf("after an old poll made room, %d are recorded since %v, the first is %+v", len(got.Polls), got.Since, got.Polls[0])
	}
	r.polls.note(ask("q", "newer", "w3"), later)
	if got := r.workersOf(ns, "q", task.QueueWorkers{}); len(got.Polls) != 1 || got.Polls[0].Worker != "w3" || got.Since != later {
		t.Errorf("over the limit of types, %+v are recorded since %v", got.Polls, got.Since)
	}

	for i := range maxPolledQueues - 2 {
		r.polls.note(ask(fmt.Sprintf("queue-%d", i), "", "w"), later)
	}
	r.polls.note(ask("new", "", "w"), later) // only polls more than an hour old are dropped
	if _, known := r.polls.queues[queueKey{ns, "s"}]; known || len(r.polls.queues) != maxPolledQueues || r.polls.since != at(0) {
		t.Errorf("%d queues are recorded since %v, the old one among them: %v", len(r.polls.queues), r.polls.since, known)
	}
	if n := len(r.polls.queues); n != maxPolledQueues {
		t.Fatalf("%d queues are recorded, want %d", n, maxPolledQueues)
	}
	evenLater := later.Add(time.Minute)
	r.polls.note(ask("last", "", "w"), evenLater)
	if got := r.workersOf(ns, "q", task.QueueWorkers{}); len(r.polls.queues) != 1 || len(got.Polls) != 0 || got.Since != evenLater {
		t.Errorf("%d queues are recorded, the polls of the first are %+v", len(r.polls.queues), got)
	}
	r.polls.begin(at(0)) // the same term: a round was dropped
	if n := len(r.workersOf(ns, "last", task.QueueWorkers{}).Polls); n != 1 {
		t.Errorf("a dropped round removed the recorded polls")
	}
	r.polls.begin(evenLater + 1)
	if n := len(r.workersOf(ns, "last", task.QueueWorkers{}).Polls); n != 0 {
		t.Errorf("polls of an earlier term were kept")
	}
}

// Waiting claims are distinguished from earlier polls, and their end is noticed.
func TestWaitingClaimsAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.enqueue(task.Spec{Queue: "q"})[0]
		codes := func() (all []task.Why) {
			out, err := ExplainTask.Call(w.t.Context(), w, Explained{ns, first})
			e := out.Explanation
			w.must(err)
			for _, r := range e.Reasons {
				all = append(all, r.Code)
			}
			return all
		}
		want := func(what string, code task.Why) {
			w.t.Helper()
			if got := codes(); len(got) != 1 || got[0] != code {
				w.t.Errorf("%s: reasons %v, want %s", what, got, code)
			}
		}
		want("nobody ever asked", task.WhyNoWorker)
		w.cfg.Workers = func(_ context.Context, queues []QueueName) []task.QueueWorkers {
			if !slices.Equal(queues, []QueueName{{ns, "q"}}) {
				w.t.Errorf("Workers was called for %v", queues)
			}
			return []task.QueueWorkers{{Silent: []string{"n2"}}}
		}
		want("a node does not say who asked there", task.WhyWorkersUnknown)
		w.cfg.Workers = nil
		c := call("q")
		c.Types = []string{"b"}
		ctx, hangUp := context.WithCancel(w.t.Context())
		w.claim(ctx, c, time.Minute)
		want("one waits for another type", task.WhyNoWorkerForType)
		c.Types = []string{"z", "job"}
		w.must(copyQueues(w.t.Context(), w.Broker, one, map[string]task.QueueConfig{"q": {Version: 9, Settings: task.DefaultSettings(), Paused: true}}))
		got := w.claim(ctx, c, time.Minute)
		want("one waits, but it is paused", task.WhyQueuePaused)
		hangUp()
		if tasks := <-got; len(tasks) > 0 {
			w.t.Errorf("a claim of the paused queue got %v", tasks)
		}
		w.must(copyQueues(w.t.Context(), w.Broker, one, map[string]task.QueueConfig{"q": {Version: 10, Settings: task.DefaultSettings()}}))
		want("it has hung up", task.WhyWorkersBusy)
		w.Drain()
		if got := codes(); len(got) != 2 || got[0] != task.WhyDraining || got[1] != task.WhyWorkersBusy {
			w.t.Errorf("reasons while the node drains: %v", got)
		}
	})
}

// BenchmarkNote measures the cost of recording a claim of one queue.
func BenchmarkNote(b *testing.B) {
	var a polls
	w := ask("default", "mail\x00report", "worker-1")
	b.ReportAllocs()
	for now := store.Time(1); b.Loop(); now++ {
		a.note(w, now)
	}
}
