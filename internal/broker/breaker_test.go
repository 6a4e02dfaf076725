package broker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/task"
)

// There is one line when a breaker opens, one when it reopens and one when it closes; none is repeated or premature.
func TestBreakersAreLogged(t *testing.T) {
	inWorld(t, func(w *world) {
		s := task.DefaultSettings()
		s.Breaker = task.Breaker{FailureRate: 100, Window: time.Minute, MinAttempts: 2, Hold: 10 * time.Second, MaxHold: time.Minute,
			Probes: 1}
		w.must(copyQueues(context.Background(), w.Broker, one, map[string]task.QueueConfig{"a": {Version: 100, Settings: s}}))
		line := func(what string, attrs ...string) {
			t.Helper()
			synctest.Wait() // a caller that was answered may run on before the line is written
			log := w.log.String()
			at := strings.LastIndex(log, what)
			if at < 0 {
				t.Fatalf("the log has no line %q: %s", what, log)
			}
			last, _, _ := strings.Cut(log[at:], "\n")
			for _, want := range attrs {
				if !strings.Contains(last, want) {
					t.Errorf("the line lacks %q: %s", want, last)
				}
			}
		}
		fail := func(message string) {
			w.enqueue(task.Spec{Queue: "a"})
			got := <-w.claim(context.Background(), call("a"), time.Minute)
			w.settle(Settle{Verb: Fail, Hold: hold(got[0]), Fail: Failing{Action: FailDead, Failure: Failure{Message: message}}})
		}
		var at events.Place
		w.eventsAfter(&at)
		fail("smtp closed")
		synctest.Wait()
		if strings.Contains(w.log.String(), "breaker") {
			t.Errorf("a single failure logged something about a breaker: %s", w.log.String())
		}
		fail("smtp closed")
		line("breaker opened", "queue=a", "type=job", "attempts=2", "failed=2", "times=1", `error="smtp closed"`)
		fail("smtp is gone") // waits for the end of the hold
		line("breaker opened", "times=2", `error="smtp is gone"`)
		w.pass(20 * time.Second)
		w.enqueue(task.Spec{Queue: "a"})
		got := <-w.claim(context.Background(), call("a"), time.Minute)
		w.settle(Settle{Verb: Ack, Hold: hold(got[0])})
		line("breaker closed", "queue=a", "type=job", "by=probes")
		fail("again")
		fail("again")
		if out, err := CloseBreakers.Call(context.Background(), w, BreakersOf{OnQueue: OnQueue{OnShard{one, ns}, "a"}}); out.Closed != 1 ||
			err != nil {
			t.Errorf("CloseBreakers closed %d, %v, want 1", out.Closed, err)
		}
		line("breaker closed", "by=operator")
		var told []string
		for _, e := range w.eventsAfter(&at) {
			if strings.HasPrefix(e, "breaker.") {
				told = append(told, e)
			}
		}
		if want := []string{
			`breaker.opened 2 of 2 attempts failed within 1m0s, the last with "smtp closed" smtp closed`,
			`breaker.opened 2 of 2 attempts failed within 1m0s, then 1 probe, the last with "smtp is gone" smtp is gone`,
			"breaker.closed probes smtp is gone",
			`breaker.opened 2 of 2 attempts failed within 1m0s, the last with "again" again`,
			"breaker.closed operator again",
		}; !slices.Equal(told, want) {
			t.Errorf("events: %q, want %q", told, want)
		}
		if opened, closed := strings.Count(w.log.String(), "breaker opened"), strings.Count(w.log.String(),
			"breaker closed"); opened != 3 ||
			closed != 2 {
			t.Errorf("%d lines report an opened breaker, want 3, and %d a closed one, want 2: %s", opened, closed, w.log.String())
		}
	})
}

// A change of settings that closes thousands of breakers does not fill the log.
func TestBreakerLogLinesAreBounded(t *testing.T) {
	for more := range 2 {
		var log syncBuffer
		r := &replica{log: slog.New(slog.NewTextHandler(&log, nil))}
		r.logBreakers(make([]breaker.Change, 100+more))
		if n := strings.Count(log.String(), "breaker opened"); n != 100 || strings.Contains(log.String(),
			`"more breakers opened or closed" count=1`) != (more > 0) {
			t.Errorf("with %d changes over the limit, the log has %d lines: %s", more, n, log.String())
		}
	}
}
