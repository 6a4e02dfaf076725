package conformance

import "testing"

// verbs are the calls that need a claim token.
var verbs = []struct {
	name string
	call func(w *world, h hold) error
}{
	{"ack", func(w *world, h hold) error { return w.api.Ack(w.ctx(), h, result{Data: `"stale"`}) }},
	{"fail", func(w *world, h hold) error {
		_, err := w.api.Fail(w.ctx(), h, failing{Message: "stale", Outcome: "dead"})
		return err
	}},
	{"release", func(w *world, h hold) error { _, err := w.api.Release(w.ctx(), h, 0); return err }},
	{"snooze", func(w *world, h hold) error { _, err := w.api.Release(w.ctx(), h, minute); return err }},
	{"extend", func(w *world, h hold) error {
		_, err := w.api.Extend(w.ctx(), h, extension{Lease: hour, Progress: &progress{99, "stale"}, Checkpoint: []byte(`"stale"`)})
		return err
	}},
}

// refusedAll checks that all verbs but some are refused alike, and change nothing.
func (w *world) refusedAll(h hold, want refusal, but ...string) {
	w.Helper()
	before := w.get(h.ID)
	for _, v := range verbs {
		skip := false
		for _, name := range but {
			skip = skip || name == v.name
		}
		if !skip {
			w.refused(v.name, v.call(w, h), want)
		}
	}
	is(w, "the task", w.get(h.ID), before)
}

func TestStaleClaim(t *testing.T) {
	stale := func(reason, state string) refusal {
		return refusal{Code: "stale_claim", Reason: reason, State: state}
	}
	tellAll(t, []story{
		{name: "the lease expired, and nobody has claimed the task", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.pass(30 * second)
			w.refusedAll(c.hold(), stale("expired", "ready"))
		}},
		{name: "the lease expired, and another worker has claimed the task", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.pass(30 * second)
			again := w.claimBy("w2")
			held := stale("reclaimed", "claimed")
			held.Holder = "w2"
			w.refusedAll(c.hold(), held)
			w.ack(again)
			w.refusedAll(c.hold(), stale("reclaimed", "succeeded"))
		}},
		{name: "the lease of the last attempt expired", tell: func(w *world) {
			w.enqueue(spec{MaxAttempts: 1})
			c := w.claim()
			w.pass(30 * second)
			w.refusedAll(c.hold(), stale("expired", "dead"))
		}},
		{name: "the run exceeded its timeout", tell: func(w *world) {
			w.enqueue(spec{Timeout: second})
			c := w.claim()
			w.pass(11 * second)
			w.refusedAll(c.hold(), stale("expired", "retrying"))
		}},
		{name: "the task was cancelled", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			ok[view](w)(w.api.Cancel(w.ctx(), c.ID))
			w.refusedAll(c.hold(), stale("cancelled", "cancelled"))
		}},
		{name: "the lease expired, and the task was cancelled", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.pass(30 * second)
			ok[view](w)(w.api.Cancel(w.ctx(), c.ID))
			w.refusedAll(c.hold(), stale("cancelled", "cancelled"))
		}},
		{name: "the claim was acked", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.ack(c)
			w.refusedAll(c.hold(), stale("completed", "succeeded"), "ack")
		}},
		{name: "the claim was failed", tell: func(w *world) {
			for state, f := range map[string]failing{"retrying": {RetryIn: hour}, "dead": {Outcome: "dead"},
				"discarded": {Outcome: "discard"}, "poisoned": {Outcome: "poison"}} {
				w.enqueue(spec{})
				c := w.claim()
				w.fail(c, f)
				w.refusedAll(c.hold(), stale("completed", state), "fail")
			}
		}},
		{name: "the claim was released", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.release(c, 0)
			w.refusedAll(c.hold(), stale("completed", "ready"), "release", "snooze")
		}},
		{name: "the claim was snoozed, and the task runs again", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.release(c, minute)
			w.refusedAll(c.hold(), stale("completed", "scheduled"), "release", "snooze")
			w.pass(minute)
			w.claimBy("w2")
			w.refusedAll(c.hold(), stale("completed", "claimed"), "release", "snooze")
		}},
		{name: "the task was replayed", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			w.fail(c, failing{Outcome: "dead"})
			ok[view](w)(w.api.Retry(w.ctx(), c.ID))
			w.refusedAll(c.hold(), stale("completed", "ready"), "fail")
		}},
		{name: "the token belongs to another task, and nothing is revealed", tell: func(w *world) {
			w.fill(2, spec{})
			a, b := w.claim(), w.claim()
			foreign := hold{a.ID, b.Token}
			w.refusedAll(foreign, refusal{Code: "not_found"})
			w.fail(a, failing{RetryIn: second})
			w.refusedAll(foreign, refusal{Code: "not_found"})
			w.pass(second)
			w.ack(w.claim())
			w.refusedAll(foreign, refusal{Code: "not_found"})
		}},
		{name: "the token is invalid", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			for _, token := range []string{"", "x", c.Token + "x", c.Token[1:]} {
				w.refusedAll(hold{c.ID, token}, refusal{Code: "invalid_argument", Field: "claim_token"})
			}
			w.ack(c)
		}},
	})
}
