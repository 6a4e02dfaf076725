package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
)

// Each transition is counted as what it is.
func TestCountedTransitions(t *testing.T) {
	now := TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	in := func(s task.State, reason string) *schema.Exec {
		return &schema.Exec{State: s, Queue: "q", Type: "t", Reason: reason, ReadyAt: now.Add(-5 * time.Second),
			Claim: schema.Claim{At: now.Add(-3 * time.Second), Worker: "w"}}
	}
	for _, c := range []struct {
		name string
		t    engine.Transition
		want []stats.Counter
		ran  time.Duration
	}{
		{"created", engine.Transition{To: in(task.Ready, "")}, []stats.Counter{stats.Enqueued}, -1},
		{"due", engine.Transition{From: in(task.Scheduled, ""), To: in(task.Ready, "")}, nil, -1},
		{"claimed", engine.Transition{From: in(task.Ready, ""), To: in(task.Claimed, "")}, []stats.Counter{stats.Claimed}, -1},
		{"acked", engine.Transition{From: in(task.Claimed, ""), To: in(task.Succeeded, ""), Outcome: task.OutcomeSucceeded},
			[]stats.Counter{stats.Succeeded}, 3 * time.Second},
		{"failed", engine.Transition{From: in(task.Claimed, ""), To: in(task.Retrying, ""), Outcome: task.OutcomeFailed},
			[]stats.Counter{stats.Failed}, 3 * time.Second},
		{"failed for good", engine.Transition{From: in(task.Claimed, ""), To: in(task.Dead, ""), Outcome: task.OutcomeDead},
			[]stats.Counter{stats.Failed, stats.Dead}, 3 * time.Second},
		{"poisoned", engine.Transition{From: in(task.Claimed, ""), To: in(task.Poisoned, ""), Outcome: task.OutcomePoisoned},
			[]stats.Counter{stats.Poisoned}, 3 * time.Second},
		{"discarded", engine.Transition{From: in(task.Claimed, ""), To: in(task.Discarded, "handler"), Outcome: task.OutcomeDiscarded},
			[]stats.Counter{stats.Discarded}, 3 * time.Second},
		{"expired", engine.Transition{From: in(task.Ready, ""), To: in(task.Discarded, task.ReasonExpired)}, []stats.Counter{stats.Expired},
			-1},
		{"moved", engine.Transition{From: in(task.Ready, ""), To: in(task.Discarded, task.ReasonMoved)}, []stats.Counter{stats.Moved}, -1},
		{"crashed", engine.Transition{From: in(task.Claimed, ""), To: in(task.Ready, ""), Outcome: task.OutcomeLeaseLost},
			[]stats.Counter{stats.Crashed}, 3 * time.Second},
		{"crashed for good", engine.Transition{From: in(task.Claimed, ""), To: in(task.Dead, ""), Outcome: task.OutcomeLeaseLost},
			[]stats.Counter{stats.Crashed, stats.Dead}, 3 * time.Second},
		{"timed out", engine.Transition{From: in(task.Claimed, ""), To: in(task.Retrying, ""), Outcome: task.OutcomeTimedOut},
			[]stats.Counter{stats.TimedOut}, 3 * time.Second},
		{"without a leader", engine.Transition{From: in(task.Claimed, ""), To: in(task.Ready, ""), Outcome: task.OutcomeLeaderless},
			[]stats.Counter{stats.Leaderless}, 3 * time.Second},
		{"given back", engine.Transition{From: in(task.Claimed, ""), To: in(task.Ready, ""), Outcome: task.OutcomeReleased},
			[]stats.Counter{stats.Released}, 3 * time.Second},
		{"put off", engine.Transition{From: in(task.Claimed, ""), To: in(task.Scheduled, ""), Outcome: task.OutcomeSnoozed},
			[]stats.Counter{stats.Snoozed}, 3 * time.Second},
		{"cancelled", engine.Transition{From: in(task.Claimed, ""), To: in(task.Cancelled, ""), Outcome: task.OutcomeCancelled},
			[]stats.Counter{stats.Cancelled}, 3 * time.Second},
		{"ended as a later release says", engine.Transition{From: in(task.Claimed, ""), To: in(task.Ready, ""),
			Outcome: task.Outcome(len(attemptCounts))}, nil, 3 * time.Second},
		{"replayed", engine.Transition{From: in(task.Dead, ""), To: in(task.Ready, "")}, []stats.Counter{stats.Replayed}, -1},
	} {
		var want stats.Set
		for _, counter := range c.want {
			want = want.With(counter)
		}
		if e := eventOf(&c.t, now); e.Counts != want || e.Ran != c.ran || e.Queue != "q" || e.Type != "t" || c.t.Claims() &&
			e.Waited != 2*time.Second {
			t.Errorf("%s: counts %b after waiting %v and running %v, want %b and %v", c.name, e.Counts, e.Waited, e.Ran, want, c.ran)
		}
	}
}

// Calls that write nothing are counted where they are answered.
func TestDuplicatesAndStaleVerbsCount(t *testing.T) {
	inWorld(t, func(w *world) {
		recorder := stats.New(time.Now())
		synctest.Wait() // the shard has read it
		w.Broker.cfg.Stats = recorder
		spec := task.Spec{Type: "job", Queue: "q", IdempotencyKey: "once", MaxAttempts: 1}
		spec.Fill()
		for range 3 {
			_, _, err := w.Enqueue(context.Background(), one, ns, []task.Spec{spec})
			w.must(err)
		}
		got, _, err := w.Claim(context.Background(), one, ClaimCall{Namespace: ns, Queues: []Share{{Queue: "q"}}, Max: 1, MaxBytes: 1 << 20,
			Lease: time.Second}, 0)
		w.must(err)
		w.pass(time.Minute)
		_, _, err = w.Settle(context.Background(), one, []Settle{{Verb: Ack, Hold: hold(got[0])}})
		w.must(err)
		recorder.Totals(func(q *stats.Totals) {
			c := q.Types[0].Counts
			if c[stats.Enqueued] != 1 || c[stats.Deduplicated] != 2 || c[stats.Claimed] != 1 || c[stats.Crashed] != 1 ||
				c[stats.Dead] != 1 {
				t.Errorf("unexpected counts %v", c)
			}
		})
		if s := recorder.StaleTotals(); len(s) != 1 || s[0].Reason != task.StaleExpired || s[0].Count != 1 {
			t.Errorf("stale verbs: %+v", s)
		}
		all, err := w.QueueStatuses(context.Background(), 0)
		if err != nil || len(all) != 1 || all[0].Dead != 1 || all[0].Ready != 0 {
			t.Errorf("the queue statuses are %+v (%v), want one dead letter and nothing ready", all, err)
		}
	})
}
