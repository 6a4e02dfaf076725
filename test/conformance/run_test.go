package conformance

import (
	"testing"
)

func TestSuccess(t *testing.T) {
	tellAll(t, []story{
		{name: "a task is claimed and succeeds", tell: func(w *world) {
			a := w.enqueue(spec{Payload: `1`})
			w.pass(2 * second)
			c := w.claim()
			running := w.get(a.ID)
			is(w, "while it runs", running, view{ID: a.ID, Type: "job", Queue: "default", Status: "processing", State: "claimed",
				Priority: "normal", Payload: `1`, Attempts: 1, MaxAttempts: 5, Fence: 1, Worker: "w1", CreatedAt: a.CreatedAt,
				RunAt: a.CreatedAt, ClaimedAt: w.now(), LeaseExpiresAt: w.at(30 * second), Retry: defaultRetry,
				Log: []attempt{{Attempt: 1, Fence: 1, Worker: "w1",
					StartedAt: w.now(), Waited: 2 * second}}, ETag: running.ETag})
			w.pass(3 * second)
			must(w.T, w.api.Ack(w.ctx(), c.hold(), result{Data: `{"sent":true}`}))
			want := running
			want.Status, want.State, want.Result, want.EndedAt, want.KeptUntil, want.Retention = "completed", "succeeded", `{"sent":true}`,
				w.now(), w.at(day), day
			want.LeaseExpiresAt = view{}.LeaseExpiresAt
			want.Log[0].EndedAt, want.Log[0].Outcome = w.now(), "succeeded"
			is(w, "in the end", w.get(a.ID), want)
		}},
		{name: "a result may be any bytes, or none", tell: func(w *world) {
			w.fill(2, spec{})
			c, none := w.claim(), w.claim()
			must(w.T, w.api.Ack(w.ctx(), c.hold(), result{"\x00\xff", "image/png"}))
			v := w.get(c.ID)
			is(w, "the result", result{v.Result, v.ResultType}, result{"\x00\xff", "image/png"})
			w.ack(none)
			is(w, "no result", w.get(none.ID).Result, "")
		}},
		{name: "a repeated ack returns the first answer", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			must(w.T, w.api.Ack(w.ctx(), c.hold(), result{Data: `1`}))
			w.pass(hour)
			must(w.T, w.api.Ack(w.ctx(), c.hold(), result{Data: `2`}))
			is(w, "the result", w.get(c.ID).Result, `1`)
		}},
		{name: "a caller waiting for a task learns of its success", tell: func(w *world) {
			id := w.id(spec{})
			beside := meanwhile(w, func() (view, error) { return w.api.WaitResult(w.ctx(), id, 20*second) })
			c := w.claim()
			w.pass(5 * second)
			must(w.T, w.api.Ack(w.ctx(), c.hold(), result{Data: `"done"`}))
			is(w, "the result", beside.answer(5*second).Result, `"done"`)
		}},
		{name: "a caller waiting for a task learns of any other end", tell: func(w *world) {
			for _, end := range []string{"dead", "discarded", "poisoned", "cancelled"} {
				id := w.id(spec{})
				beside := meanwhile(w, func() (view, error) { return w.api.WaitResult(w.ctx(), id, 20*second) })
				w.pass(second)
				w.end(end)
				is(w, "the state", beside.answer(second).State, end)
			}
		}},
		{name: "a caller whose wait ends early gets the task's current state", tell: func(w *world) {
			id := w.id(spec{})
			w.claims(claimCall{Queues: []string{"default"}, Lease: hour})
			beside := meanwhile(w, func() (view, error) { return w.api.WaitResult(w.ctx(), id, 20*second) })
			is(w, "the state", beside.answer(20*second).State, "claimed")
		}},
		{name: "waiting for a finished task returns immediately", tell: func(w *world) {
			id := w.id(spec{})
			w.ack(w.claim())
			is(w, "the state", meanwhile(w, func() (view, error) { return w.api.WaitResult(w.ctx(), id, 20*second) }).answer(0).State,
				"succeeded")
		}},
		{name: "many claims are settled in one call, each with its own result", tell: func(w *world) {
			w.fill(5, spec{})
			c := w.claims(from("default").most(5))
			w.ack(c[4])
			_, err := w.api.Cancel(w.ctx(), c[3].ID)
			must(w.T, err)
			got := ok[[]settled](w)(w.api.Settle(w.ctx(), []settlement{
				{hold: c[3].hold()},
				{hold: c[0].hold(), Result: result{Data: `1`}},
				{hold: c[1].hold(), Fail: &failing{Message: "broken", RetryIn: minute}},
				{hold: c[4].hold(), Fail: &failing{Message: "broken"}},
				{hold: c[2].hold(), Fail: &failing{Message: "broken", Outcome: "dead"}},
			}))
			if len(got) != 5 {
				w.Fatalf("5 items got %d answers, want 5", len(got))
			}
			w.refused("the cancelled", got[0].Err, refusal{Code: "stale_claim", Reason: "cancelled", State: "cancelled"})
			is(w, "the acked", got[1], settled{State: "succeeded"})
			is(w, "the failed", got[2], settled{State: "retrying", NextRunAt: w.at(minute)})
			w.refused("the completed", got[3].Err, refusal{Code: "stale_claim", Reason: "completed", State: "succeeded"})
			is(w, "the dead", got[4], settled{State: "dead"})
			is(w, "the result", w.get(c[0].ID).Result, `1`)
		}},
	})
}

// end brings the one ready task of the default queue to an end state.
func (w *world) end(state string) {
	w.Helper()
	c := w.claim()
	switch state {
	case "succeeded":
		w.ack(c)
	case "cancelled":
		ok[view](w)(w.api.Cancel(w.ctx(), c.ID))
	default:
		outcome := map[string]string{"dead": "dead", "discarded": "discard", "poisoned": "poison"}[state]
		w.fail(c, failing{Message: "broken", Outcome: outcome})
	}
	is(w, "the end", w.get(c.ID).State, state)
}

func TestFailure(t *testing.T) {
	broken := failure{"broken", failureType}
	tellAll(t, []story{
		{name: "a failed task is retried with growing delays until its attempts are used up", tell: func(w *world) {
			id := w.id(spec{MaxAttempts: 4, Retry: retry{Initial: 10 * second, Factor: 2, Max: 25 * second, Jitter: noJitter}})
			for n, pause := range []span{10 * second, 20 * second, 25 * second} {
				c := w.claim()
				is(w, "the attempt", c.Attempt, n+1)
				is(w, "the answer", w.fail(c, failing{Message: "broken"}), settled{State: "retrying", NextRunAt: w.at(pause)})
				is(w, "the next attempt", w.get(id).RunAt, w.at(pause))
				w.pass(pause - millisecond)
				w.nothing()
				w.pass(millisecond)
			}
			is(w, "the last answer", w.fail(w.claim(), failing{Message: "broken"}), settled{State: "dead"})
			v := w.get(id)
			is(w, "the end", v.State+" "+v.Reason+" "+v.Status, "dead attempts_exhausted failed")
			is(w, "its failures", v.Failures, 4)
			is(w, "its last attempt", v.Log[3], attempt{Attempt: 4, Fence: 4, Worker: "w1", StartedAt: w.now(), EndedAt: w.now(),
				Outcome: "failed", Error: broken})
		}},
		{name: "a retry delay has up to a quarter of jitter, the same in all answers", tell: func(w *world) {
			w.enqueue(spec{})
			next := w.fail(w.claim(), failing{Message: "broken"}).NextRunAt
			if d := span(next.Sub(w.now())); d < 30*second || d > 30*second+30*second/4 {
				w.Errorf("the retry delay is %v, want 30 s to a quarter more", d)
			}
		}},
		{name: "the queue's retry policy applies to tasks without one", tell: func(w *world) {
			w.put("default", settings{MaxAttempts: 2, Retry: retry{Initial: 5 * second, Factor: 1, Jitter: noJitter}})
			id := w.id(spec{})
			c := w.claim()
			is(w, "attempts at most", c.MaxAttempts, 2)
			is(w, "the answer", w.fail(c, failing{}).NextRunAt, w.at(5*second))
			w.pass(5 * second)
			w.fail(w.claim(), failing{})
			is(w, "the end", w.state(id), "dead attempts_exhausted")
		}},
		{name: "a failure can set the time of the retry", tell: func(w *world) {
			w.enqueue(spec{})
			is(w, "the answer", w.fail(w.claim(), failing{RetryIn: hour}), settled{State: "retrying", NextRunAt: w.at(hour)})
			w.pass(hour - millisecond)
			w.nothing()
			w.pass(millisecond)
			is(w, "the attempt", w.claim().Attempt, 2)
		}},
		{name: "a failure can end its task", tell: func(w *world) {
			for _, c := range []struct{ outcome, state, recorded, reason string }{
				{"dead", "dead", "dead", "not_retryable"}, {"discard", "discarded", "discarded", "handler"}, {"poison", "poisoned",
					"poisoned", "unreadable"},
			} {
				id := w.id(spec{})
				is(w, "the answer", w.fail(w.claim(), failing{Message: "broken", Outcome: c.outcome}), settled{State: c.state})
				v := w.get(id)
				is(w, "the end", v.State+" "+v.Reason+" "+v.Status, c.state+" "+c.reason+" failed")
				is(w, "its log", v.Log, []attempt{{Attempt: 1, Fence: 1, Worker: "w1", StartedAt: w.now(), EndedAt: w.now(),
					Outcome: c.recorded, Error: broken}})
				w.nothing()
			}
		}},
		{name: "a repeated fail returns the first answer", tell: func(w *world) {
			for _, f := range []failing{{RetryIn: minute}, {Outcome: "dead"}, {Outcome: "discard"}, {Outcome: "poison"}} {
				w.enqueue(spec{})
				c := w.claim()
				first := w.fail(c, f)
				w.pass(second)
				is(w, "the repeat", w.fail(c, f), first)
				is(w, "its attempts", len(w.get(c.ID).Log), 1)
			}
		}},
	})
}

func TestReleaseAndSnooze(t *testing.T) {
	tellAll(t, []story{
		{name: "a released task returns to its old place and uses no attempt", tell: func(w *world) {
			w.fill(3, spec{})
			first, second := w.claim(), w.claim()
			is(w, "the answer", w.release(second, 0), settled{State: "ready", NextRunAt: second.CreatedAt})
			w.release(first, 0)
			again := w.claim()
			is(w, "the attempt", again.Attempt, 1)
			is(w, "the fence", again.Fence, 2)
			is(w, "the order", again.Type+" "+types(w.claims(from("default").most(3))), "1 2 3")
			is(w, "releases", w.get(first.ID).Releases, 1)
		}},
		{name: "a snoozed task is due at its time and uses no attempt", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			is(w, "the answer", w.release(c, minute), settled{State: "scheduled", NextRunAt: w.at(minute)})
			v := w.get(c.ID)
			is(w, "its log", v.Log, []attempt{{Attempt: 1, Fence: 1, Worker: "w1", StartedAt: w.now(), EndedAt: w.now(), Outcome: "snoozed",
				NextRunAt: w.at(minute)}})
			is(w, "snoozes", v.Snoozes, 1)
			w.pass(minute - millisecond)
			w.nothing()
			w.pass(millisecond)
			again := w.claim()
			is(w, "the attempt", again.Attempt, 1)
			is(w, "the fence", again.Fence, 2)
		}},
		{name: "a repeated release returns the first answer", tell: func(w *world) {
			for _, delay := range []span{0, minute} {
				w.enqueue(spec{})
				c := w.claim()
				first := w.release(c, delay)
				w.pass(second)
				is(w, "the repeat", w.release(c, delay), first)
				ok[view](w)(w.api.Cancel(w.ctx(), c.ID))
			}
		}},
	})
}

func TestExtend(t *testing.T) {
	tellAll(t, []story{
		{name: "an extended lease ends later", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.pass(20 * second)
			is(w, "as long as the claim's", w.extend(c, extension{}), w.at(30*second))
			is(w, "longer", w.extend(c, extension{Lease: minute}), w.at(minute))
			is(w, "never earlier", w.extend(c, extension{Lease: second}), w.at(minute))
			is(w, "the task", w.get(c.ID).LeaseExpiresAt, w.at(minute))
			w.pass(minute - millisecond)
			is(w, "before its end", w.state(c.ID), "claimed")
			w.pass(millisecond)
			is(w, "at its end", w.state(c.ID), "ready")
		}},
		{name: "progress is visible immediately, and starts over with each attempt", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.extend(c, extension{Progress: &progress{40, "four of ten"}})
			is(w, "the progress", w.get(c.ID).Progress, progress{40, "four of ten"})
			w.extend(c, extension{})
			is(w, "after an extension without", w.get(c.ID).Progress, progress{40, "four of ten"})
			w.release(c, 0)
			w.claim()
			is(w, "of the next attempt", w.get(c.ID).Progress, progress{})
		}},
		{name: "a checkpoint is passed to the next attempt, however this one ends", tell: func(w *world) {
			w.enqueue(spec{})
			first := w.claim()
			is(w, "at first", len(first.Checkpoint), 0)
			w.extend(first, extension{Checkpoint: []byte(`{"page":1}`)})
			is(w, "the task", string(w.get(first.ID).Checkpoint), `{"page":1}`)
			w.fail(first, failing{RetryIn: second})
			w.pass(second)
			second := w.claim()
			is(w, "after a failure", string(second.Checkpoint), `{"page":1}`)
			w.extend(second, extension{Checkpoint: []byte(`{"page":2}`)})
			w.pass(second.Lease) // it ends
			third := w.claim()
			is(w, "after a lost lease", string(third.Checkpoint), `{"page":2}`)
			w.fail(third, failing{Outcome: "dead"})
			ok[view](w)(w.api.Retry(w.ctx(), third.ID))
			fourth := w.claim()
			is(w, "after a replay", string(fourth.Checkpoint), `{"page":2}`)
			w.ack(fourth)
			is(w, "after success", len(w.get(fourth.ID).Checkpoint), 0)
		}},
	})
}

func TestLostLease(t *testing.T) {
	vanished := failure{"the worker vanished: its lease ended", "lease_lost"}
	tellAll(t, []story{
		{name: "a task whose lease expires can be claimed again, at its old place", tell: func(w *world) {
			w.fill(2, spec{})
			c := w.claim()
			w.pass(30*second - millisecond)
			is(w, "before the end", w.state(c.ID), "claimed")
			w.pass(millisecond)
			v := w.get(c.ID)
			is(w, "the state", v.State, "ready")
			is(w, "crashes", v.Crashes, 1)
			is(w, "its log", v.Log, []attempt{{Attempt: 1, Fence: 1, Worker: "w1", StartedAt: w.at(-30 * second), EndedAt: w.now(),
				Outcome: "lease_lost", Error: vanished, NextRunAt: c.CreatedAt}})
			again := w.claim()
			is(w, "the claim", again.ID, c.ID)
			is(w, "its attempt", again.Attempt, 2)
		}},
		{name: "lost leases use up attempts", tell: func(w *world) {
			id := w.id(spec{MaxAttempts: 2})
			w.claim()
			w.pass(30 * second)
			w.claim()
			w.pass(30*second - millisecond)
			is(w, "before the end", w.state(id), "claimed")
			w.pass(millisecond)
			v := w.get(id)
			is(w, "the end", v.State+" "+v.Reason, "dead lease_lost")
			is(w, "crashes", v.Crashes, 2)
			w.nothing()
		}},
		{name: "failures and lost leases are counted together, and the last one determines the reason", tell: func(w *world) {
			id := w.id(spec{MaxAttempts: 2})
			w.claim()
			w.pass(30 * second)
			w.fail(w.claim(), failing{Message: "broken"})
			v := w.get(id)
			is(w, "the end", v.State+" "+v.Reason, "dead attempts_exhausted")
			is(w, "crashes and failures", []int{v.Crashes, v.Failures}, []int{1, 1})
		}},
		{name: "a run is bounded by its timeout, whatever its extensions", tell: func(w *world) {
			id := w.id(spec{Timeout: minute, Retry: retry{Initial: 10 * second, Jitter: noJitter}})
			c := w.one(claimCall{Queues: []string{"default"}, Lease: hour})
			is(w, "the timeout", c.Timeout, minute)
			end := w.at(70 * second) // ten seconds for the worker to report
			is(w, "the lease", c.LeaseExpiresAt, end)
			w.pass(69 * second)
			is(w, "an extension", w.extend(c, extension{Lease: hour}), end)
			w.pass(second)
			v := w.get(id)
			is(w, "the state", v.State, "retrying")
			is(w, "failures", v.Failures, 1)
			is(w, "its log", v.Log, []attempt{{Attempt: 1, Fence: 1, Worker: "w1", StartedAt: w.at(-70 * second), EndedAt: w.now(),
				Outcome: "timed_out", Error: failure{"the run exceeded its timeout", "timeout"}, NextRunAt: w.at(10 * second)}})
		}},
	})
}

func TestCancel(t *testing.T) {
	tellAll(t, []story{
		{name: "a waiting task is cancelled", tell: func(w *world) {
			retrying := w.id(spec{})
			w.fail(w.claim(), failing{RetryIn: minute})
			for _, id := range []string{retrying, w.id(spec{}), w.id(spec{Delay: minute})} {
				v := ok[view](w)(w.api.Cancel(w.ctx(), id))
				is(w, "the answer", v, w.get(id))
				is(w, "the state", v.State+" "+v.Reason+" "+v.Status, "cancelled caller cancelled")
				is(w, "its end", v.EndedAt, w.now())
			}
			w.pass(minute)
			w.nothing()
		}},
		{name: "a running task is cancelled, and its worker loses the claim", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.pass(second)
			v := ok[view](w)(w.api.Cancel(w.ctx(), c.ID))
			is(w, "the state", v.State+" "+v.Reason, "cancelled caller")
			is(w, "its log", v.Log, []attempt{{Attempt: 1, Fence: 1, Worker: "w1", StartedAt: w.at(-second), EndedAt: w.now(),
				Outcome: "cancelled"}})
			_, err := w.api.Extend(w.ctx(), c.hold(), extension{})
			w.refused("extend", err, refusal{Code: "stale_claim", Reason: "cancelled", State: "cancelled"})
		}},
		{name: "a repeated cancel returns the first answer", tell: func(w *world) {
			id := w.id(spec{})
			first := ok[view](w)(w.api.Cancel(w.ctx(), id))
			w.pass(second)
			is(w, "the repeat", ok[view](w)(w.api.Cancel(w.ctx(), id)), first)
		}},
	})
}
