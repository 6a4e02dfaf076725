package conformance

import (
	"fmt"
	"testing"
)

// makeDead creates dead letters in the queue mail, a second apart, newest last.
func (w *world) makeDead(messages ...string) (all []string) {
	w.Helper()
	for i, m := range messages {
		all = append(all, w.id(spec{Type: "send", Queue: "mail", Payload: fmt.Sprintf(`{"n":%d}`, i)}))
		w.kill("mail", m)
		w.pass(second)
	}
	return all
}

// justNow is the trend of n tasks that died in the last hour.
func justNow(n int64) []int64 {
	trend := make([]int64, 24)
	trend[23] = n
	return trend
}

func (w *world) dead(f filter) []string {
	w.Helper()
	return ids(ok[page](w)(w.api.Dead(w.ctx(), f, part{})).Items)
}

func reversed(all []string) (out []string) {
	for _, id := range all {
		out = append([]string{id}, out...)
	}
	return out
}

func TestDeadLetters(t *testing.T) {
	mail := filter{Queue: "mail"}
	tellAll(t, []story{
		{name: "dead letters are listed newest first, with payload and attempt log", tell: func(w *world) {
			w.put("mail", settings{MaxAttempts: 2, Retry: retry{Initial: second, Factor: 1, Jitter: noJitter}})
			id := w.id(spec{Type: "send", Queue: "mail", Payload: `{"to":1}`})
			for _, m := range []string{"first", "second"} {
				w.fail(w.one(from("mail")), failing{Message: m})
				w.pass(second)
			}
			other := w.id(spec{Queue: "mail"})
			w.kill("mail", "other")
			got := ok[page](w)(w.api.Dead(w.ctx(), mail, part{}))
			is(w, "the list", ids(got.Items), []string{other, id})
			v := got.Items[1]
			is(w, "the letter", v, w.get(id))
			is(w, "its payload", v.Payload, `{"to":1}`)
			is(w, "its log", v.Log, []attempt{
				{Attempt: 1, Fence: 1, Worker: "w1", StartedAt: w.at(-2 * second), EndedAt: w.at(-2 * second), Outcome: "failed",
					Error: failure{"first", failureType}, NextRunAt: w.at(-second)},
				{Attempt: 2, Fence: 2, Worker: "w1", StartedAt: w.at(-second), EndedAt: w.at(-second), Outcome: "failed",
					Error: failure{"second", failureType}}})
		}},
		{name: "pages of dead letters are ordered by time of death", tell: func(w *world) {
			all := w.makeDead("a", "b", "c", "d", "e")
			var got []string
			p := part{Limit: 2}
			for range 3 {
				a := ok[page](w)(w.api.Dead(w.ctx(), mail, p))
				got, p.Cursor = append(got, ids(a.Items)...), a.Next
			}
			is(w, "the list", got, reversed(all))
			is(w, "the last cursor", p.Cursor, "")
		}},
		{name: "a filter selects dead letters", tell: func(w *world) {
			all := w.makeDead("user 1 not found", "timeout", "user 2 not found")
			is(w, "by error", w.dead(filter{Queue: "mail", Error: "not found"}), []string{all[2], all[0]})
			is(w, "by payload", w.dead(filter{Queue: "mail", Text: "1"}), []string{all[1]})
			is(w, "by a field of the payload", w.dead(filter{Queue: "mail", Payload: []string{"n:1"}}), []string{all[1]})
			is(w, "by type", len(w.dead(filter{Queue: "mail", Type: "other"})), 0)
		}},
		{name: "dead letters with similar errors are one group", tell: func(w *world) {
			all := w.makeDead("user 17 not found", "timeout", "user 4711 not found")
			got := ok[[]group](w)(w.api.DeadGroups(w.ctx(), "mail"))
			if len(got) != 2 || got[0].Fingerprint == "" || got[0].Fingerprint == got[1].Fingerprint {
				w.Fatalf("the groups are %+v, want two with different fingerprints", got)
			}
			is(w, "those of the first", w.dead(filter{Queue: "mail", Fingerprint: got[0].Fingerprint}), []string{all[2], all[0]})
			is(w, "those of the second", w.dead(filter{Queue: "mail", Type: "send", Fingerprint: got[1].Fingerprint}), []string{all[1]})
			is(w, "those of neither", len(w.dead(filter{Queue: "mail", Type: "other", Fingerprint: got[1].Fingerprint})), 0)
			got[0].Fingerprint, got[1].Fingerprint = "", ""
			is(w, "the groups", got, []group{
				{Type: "send", Message: got[0].Message, Count: 2, FirstAt: w.at(-3 * second), LastAt: w.at(-second),
					Sample: all[2], Queues: 1, Queue: "mail", Trend: justNow(2)},
				{Type: "send", Message: "timeout", Count: 1, FirstAt: w.at(-2 * second), LastAt: w.at(-2 * second),
					Sample: all[1], Queues: 1, Queue: "mail", Trend: justNow(1)}})
		}},
		{name: "a replay keeps id, key and history, and resets the attempts", tell: func(w *world) {
			id := w.id(spec{Type: "send", Queue: "mail", Payload: `1`, IdempotencyKey: "k", MaxAttempts: 1})
			w.fail(w.one(from("mail")), failing{Message: "broken"})
			before := w.get(id)
			w.pass(second)
			is(w, "the counts", w.operate(operation{Action: "replay", Filter: mail}).counts(), "done: 1 of 1, 1 done")
			after := w.get(id)
			is(w, "the state", after.State+after.Reason, "ready")
			is(w, "its history", after.Log, before.Log)
			is(w, "its key", after.IdempotencyKey, "k")
			is(w, "a repeat of its key", w.enqueue(spec{Type: "send", Queue: "mail", Payload: `1`, IdempotencyKey: "k"}).Duplicate, true)
			c := w.one(from("mail"))
			is(w, "the attempt", []int{c.Attempt, c.MaxAttempts}, []int{2, 2})
			is(w, "the payload", c.Payload, `1`)
			w.fail(c, failing{Message: "again"})
			is(w, "the end", w.state(id), "dead attempts_exhausted")
			is(w, "its history", len(w.get(id).Log), 2)
		}},
		{name: "many dead letters are replayed by a filter, newest first", tell: func(w *world) {
			all := w.makeDead("gone", "kept", "gone", "gone")
			gone := operation{Action: "replay", Filter: filter{Queue: "mail", Error: "gone"}}
			n, _, err := w.operations().TryOperation(w.ctx(), gone)
			must(w.T, err)
			is(w, "a dry run", n, int64(3))
			is(w, "which did nothing", len(w.dead(mail)), 4)
			two := gone
			two.Max = 2
			is(w, "two of them", w.operate(two).counts(), "done: 2 of 2, 2 done")
			is(w, "those left", w.dead(mail), []string{all[1], all[0]})
			is(w, "the rest", w.operate(gone).counts(), "done: 1 of 1, 1 done")
			is(w, "all", w.operate(operation{Action: "replay", Filter: mail}).counts(), "done: 1 of 1, 1 done")
			is(w, "those left", len(w.dead(mail)), 0)
			is(w, "those ready", w.queue("mail").Depth, depth{Ready: 4})
		}},
		{name: "a discarded dead letter leaves the dead letters and ends as discarded", tell: func(w *world) {
			all := w.makeDead("gone", "kept", "gone")
			gone := operation{Action: "discard", Filter: filter{Queue: "mail", Error: "gone", States: []string{"dead"}}}
			is(w, "the counts", w.operate(gone).counts(), "done: 2 of 2, 2 done")
			is(w, "those left", w.dead(mail), []string{all[1]})
			is(w, "the discarded", w.state(all[0]), "discarded operator")
			is(w, "what is counted", w.queue("mail").Depth, depth{Dead: 1})
		}},
		{name: "poisoned tasks are listed separately", tell: func(w *world) {
			w.enqueue(spec{Queue: "mail"})
			c := w.one(from("mail"))
			w.fail(c, failing{Message: "no JSON", Outcome: "poison"})
			is(w, "the dead", len(w.dead(mail)), 0)
			got := ok[page](w)(w.api.Poisoned(w.ctx(), mail, part{}))
			is(w, "the poisoned", got.Items, []view{w.get(c.ID)})
			is(w, "a replay of the dead", w.operate(operation{Action: "replay", Filter: mail}).counts(), "done: 0 of 0, 0 done")
			poisoned := filter{Queue: "mail", States: []string{"poisoned"}}
			is(w, "a replay of the poisoned", w.operate(operation{Action: "replay", Filter: poisoned}).counts(), "done: 1 of 1, 1 done")
			is(w, "the state", w.state(c.ID), "ready")
		}},
		{name: "a single dead letter is retried or discarded", tell: func(w *world) {
			all := w.makeDead("a", "b")
			is(w, "the retried", ok[view](w)(w.api.Retry(w.ctx(), all[0])), w.get(all[0]))
			is(w, "its state", w.state(all[0]), "ready")
			is(w, "the discarded", ok[view](w)(w.api.Discard(w.ctx(), all[1])), w.get(all[1]))
			is(w, "its state", w.state(all[1]), "discarded operator")
		}},
	})
}
