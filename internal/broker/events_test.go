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
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/task"
)

// eventsAfter reads the events after a place, in words.
func (w *world) eventsAfter(at *events.Place) (all []string) {
	w.t.Helper()
	page, err := w.Events(context.Background(), one, events.Query{Filter: events.Filter{Namespace: ns}, After: *at})
	w.must(err)
	if page.Reset {
		all = append(all, "reset")
	}
	for _, e := range page.Events {
		s := string(e.Kind)
		if e.Attempt > 1 {
			s += fmt.Sprint(" ", e.Attempt)
		}
		for _, word := range []string{e.Worker, e.Reason, e.Error} {
			if word != "" {
				s += " " + word
			}
		}
		if e.Task != (task.ID{}) && (e.Queue != "a" || e.Type != "job" || e.Index == 0 || e.At.IsZero()) {
			w.t.Errorf("unexpected event: %+v", e)
		}
		all = append(all, s)
	}
	*at = page.Next
	return all
}

func TestEventsOfTasks(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		var at events.Place
		w.eventsAfter(&at)
		happened := func(what string, want ...string) {
			t.Helper()
			if got := w.eventsAfter(&at); !slices.Equal(got, want) {
				t.Errorf("%s: events %q, want %q", what, got, want)
			}
		}
		c := call("a")
		c.Worker = "w1"
		c.Lease = 10 * time.Second
		claim := func() Hold { t.Helper(); return hold((<-w.claim(ctx, c, 0))[0]) }
		enqueue := func() task.ID {
			t.Helper()
			return w.enqueue(task.Spec{Queue: "a", MaxAttempts: 2, Retry: &task.Retry{Initial: time.Minute, Factor: 1,
				Max: time.Minute}})[0]
		}
		fail := func(fall engine.FailAction, message string) {
			w.settle(Settle{Verb: Fail, Hold: claim(), Fail: Failing{Action: fall, Failure: Failure{Message: message}}})
		}

		id := enqueue()
		happened("an enqueue", "task.enqueued")
		fail(FailRetry, "no route")
		happened("an attempt", "task.claimed w1", "task.failed w1 no route", "task.retrying w1")
		w.pass(2 * time.Minute)
		happened("when its time has come")
		fail(FailRetry, strings.Repeat("x", 1000))
		happened("the last", "task.claimed 2 w1", "task.failed 2 w1 "+events.CutError(strings.Repeat("x", 1000)),
			"task.dead 2 w1 attempts_exhausted")
		err := operateTask(ctx, w.Broker, Retry, id)
		w.must(err)
		happened("a replay", "task.replayed 3")
		w.settle(Settle{Verb: Release, Hold: claim()})
		happened("a release", "task.claimed 3 w1", "task.released 3 w1 released")
		w.settle(Settle{Verb: Ack, Hold: claim()})
		happened("an ack", "task.claimed 3 w1", "task.succeeded 3 w1")

		enqueue()
		claim()
		w.pass(20 * time.Second)
		happened("a lost lease", "task.enqueued", "task.claimed w1", "task.lease_lost w1 the worker vanished: its lease ended")
		fail(FailPoison, "not JSON")
		happened("poison", "task.claimed 2 w1", "task.failed 2 w1 poisoned not JSON", "task.poisoned 2 w1 unreadable")
		id = enqueue()
		err = operateTask(ctx, w.Broker, Cancel, id)
		w.must(err)
		happened("a cancel", "task.enqueued", "task.cancelled caller")
		id = enqueue()
		err = operateTask(ctx, w.Broker, Discard, id)
		w.must(err)
		happened("a discard", "task.enqueued", "task.discarded operator")
	})
}

// A dropped round is not an end: readers continue.
func TestEventsSurviveDroppedRound(t *testing.T) {
	inWorld(t, func(w *world) {
		var at events.Place
		w.eventsAfter(&at)
		w.enqueue(task.Spec{Queue: "a"})
		r, err := w.replica(one)
		w.must(err)
		if _, _, err := change(context.Background(), r, func(*engine.Round) (struct{}, error) { panic("on purpose") }); err == nil {
			t.Error("a call that panicked returned no error")
		}
		w.enqueue(task.Spec{Queue: "a"})
		if got, want := w.eventsAfter(&at), []string{"task.enqueued", "task.enqueued"}; !slices.Equal(got, want) {
			t.Errorf("got events %q, want %q", got, want)
		}
	})
}

// A reader gets *NotLeader if the shard is not led here, even while it waits.
func TestEventsAtAFollower(t *testing.T) {
	inWorld(t, func(w *world) {
		var notLeader *NotLeader
		if _, err := w.Events(context.Background(), 9, events.Query{}); !errors.As(err, &notLeader) {
			t.Errorf("Events of a shard that is not on this node: %v, want NotLeader", err)
		}
		stop := w.addShard(2)
		w.pass(5 * time.Second)
		ended := make(chan error, 1)
		go func() {
			_, err := w.Events(context.Background(), 2, events.Query{Wait: time.Hour})
			ended <- err
		}()
		w.pass(time.Second)
		stop()
		select {
		case err := <-ended:
			if !errors.As(err, &notLeader) {
				t.Errorf("Events ended with %v when the shard was removed, want NotLeader", err)
			}
		case <-time.After(time.Minute):
			t.Error("the reader still waits for a shard that was removed")
		}
	})
}

// BenchmarkLife runs tasks through enqueue, claim and ack in batches of 100 by two callers, with readers of events that look for
// something else, and with digests, which are read again every second: half of them of all events, half of something else.
func BenchmarkLife(b *testing.B) {
	for _, c := range []struct{ readers, digests int }{{0, 0}, {1, 0}, {50, 0}, {0, 1}, {0, 100}} {
		readers := c.readers
		b.Run(fmt.Sprint(readers, " readers ", c.digests, " digests"), func(b *testing.B) {
			br := benchBroker(b)
			ctx, stop := context.WithCancel(context.Background())
			var reading sync.WaitGroup
			for n := range readers {
				reading.Go(func() {
					q := events.Query{Filter: events.Filter{Namespace: ns, Queue: fmt.Sprint("other", n)}, Wait: time.Second}
					for ctx.Err() == nil {
						page, err := br.Events(ctx, one, q)
						if err != nil {
							continue
						}
						q.After = page.Next
					}
				})
			}
			for n := range c.digests {
				reading.Go(func() {
					q := events.Query{Filter: events.Filter{Namespace: ns}, Wait: time.Second, Pulse: uint64(n + 1)} // #nosec G115
					if n%2 == 1 {
						q.Filter.Queue = "other"
					}
					for ctx.Err() == nil {
						page, err := br.Events(ctx, one, q)
						if q.After = page.Next; err != nil || !page.Changed {
							continue
						}
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
						}
					}
				})
			}
			var done atomic.Int64
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				specs := benchSpecs(100)
				for pb.Next() {
					if _, _, err := br.Enqueue(ctx, one, ns, specs); err != nil {
						b.Error(err)
					}
					got, _, err := br.Claim(ctx, one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "q"}}, Max: 100, MaxBytes: 4 << 20},
						0)
					if err != nil {
						b.Error(err)
					}
					acks := make([]Settle, len(got))
					for i, t := range got {
						acks[i] = Settle{Verb: Ack, Hold: hold(t)}
					}
					if _, _, err := br.Settle(ctx, one, acks); err != nil {
						b.Error(err)
					}
					done.Add(int64(len(got)))
				}
			})
			b.ReportMetric(float64(done.Load())/b.Elapsed().Seconds(), "tasks/s")
			stop()
			reading.Wait()
		})
	}
}
