package conformance

import "testing"

var defaultSettings = settings{Retry: defaultRetry, MaxAttempts: 5, Lease: 30 * second, MaxWait: 5 * minute,
	Retention: retention{Succeeded: day, Discarded: day, Cancelled: day, Dead: 14 * day, Poisoned: 14 * day}}

func TestQueue(t *testing.T) {
	tellAll(t, []story{
		{name: "a queue is created by its first task, with default settings", tell: func(w *world) {
			_, err := w.api.Queue(w.ctx(), "mail")
			w.refused("before", err, refusal{Code: "not_found"})
			w.enqueue(spec{Queue: "mail"})
			is(w, "the queue", w.queue("mail"), queueInfo{Queue: "mail", Depth: depth{Ready: 1}, Ready: byPrio{Normal: 1},
				Settings: defaultSettings, Version: 1, CreatedAt: w.now()})
		}},
		{name: "settings are replaced as a whole", tell: func(w *world) {
			all := settings{Weights: weights{7, 2, 1}, Retry: retry{Initial: second, Factor: 3, Max: hour, Jitter: 0.5}, MaxAttempts: 7,
				Lease: minute, Timeout: hour, Retention: retention{hour, 2 * hour, 3 * hour, 4 * hour, 5 * hour},
				MaxLength: 1000, MaxWait: hour}
			made := w.put("mail", all)
			is(w, "the queue", made, queueInfo{Queue: "mail", Settings: all, Version: made.Version, CreatedAt: w.now()})
			is(w, "as it is read", w.queue("mail"), made)
			w.pass(second)
			less := settings{MaxAttempts: 2}
			is(w, "without them", w.put("mail", less).Settings, func() settings { s := defaultSettings; s.MaxAttempts = 2; return s }())
			changed := w.queue("mail")
			is(w, "when it was made", changed.CreatedAt, made.CreatedAt)
			is(w, "a later version", changed.Version > made.Version, true)
		}},
		{name: "changed settings apply to existing tasks", tell: func(w *world) {
			id := w.id(spec{})
			w.put("default", settings{MaxAttempts: 1})
			w.fail(w.claim(), failing{})
			is(w, "the end", w.state(id), "dead attempts_exhausted")
		}},
		{name: "tasks are counted by state and priority", tell: func(w *world) {
			w.fill(2, spec{Priority: "high"})
			w.fill(3, spec{Priority: "low"})
			w.enqueue(spec{Delay: hour})
			w.enqueue(spec{Delay: hour})
			for _, f := range []failing{{RetryIn: hour}, {Outcome: "dead"}, {Outcome: "poison"}, {Outcome: "discard"}} {
				w.enqueue(spec{Type: "bad", Priority: "high"})
				w.fail(w.one(claimCall{Queues: []string{"default"}, Types: []string{"bad"}}), f)
			}
			w.enqueue(spec{Type: "runs"})
			w.claims(claimCall{Queues: []string{"default"}, Types: []string{"runs"}})
			q := w.queue("default")
			is(w, "by state", q.Depth, depth{Scheduled: 2, Ready: 5, Claimed: 1, Retrying: 1, Dead: 1, Poisoned: 1})
			is(w, "by priority", q.Ready, byPrio{High: 2, Low: 3})
		}},
		{name: "the age of the oldest ready task counts from when it was ready", tell: func(w *world) {
			w.enqueue(spec{Delay: 10 * second})
			w.pass(5 * second)
			is(w, "while none is ready", w.queue("default").OldestReady, 0.0)
			w.pass(7 * second)
			w.enqueue(spec{Priority: "high"})
			w.pass(second)
			is(w, "the age", w.queue("default").OldestReady, 3.0)
			w.ack(w.claim())
			is(w, "without the newer one", w.queue("default").OldestReady, 3.0)
			w.ack(w.claim())
			is(w, "without any", w.queue("default").OldestReady, 0.0)
		}},
		{name: "nothing is claimed from a paused queue, and everything else works", tell: func(w *world) {
			w.fill(2, spec{})
			c := w.claim()
			q := ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Reason: "deploy"}))
			is(w, "the pause", []any{q.Paused, q.PausedReason, q.PausedBy, q.PausedAt}, []any{true, "deploy", actor, w.now()})
			is(w, "as it is read", w.queue("default"), q)
			w.nothing()
			w.enqueue(spec{})
			w.ack(c)
			is(w, "what waits is held", w.queue("default").Depth, depth{Ready: 2, Held: 2})
			q = ok[queueInfo](w)(w.api.Resume(w.ctx(), "default", pause{}))
			is(w, "no pause", []any{q.Paused, q.PausedReason, q.PausedAt.IsZero()}, []any{false, "", true})
			is(w, "the claims", len(w.claims(from("default").most(10))), 2)
		}},
		{name: "a paused queue gives up its share of a claim", tell: func(w *world) {
			w.fill(9, spec{Queue: "a"})
			w.fill(9, spec{Queue: "b"})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "a", pause{Reason: ""}))
			is(w, "strict", shares(w.claims(from("a", "b").most(3)), queueOf), map[string]int{"b": 3})
			is(w, "weighted", shares(w.claims(claimCall{Weights: map[string]int{"a": 5, "b": 1}, Max: 3}), queueOf), map[string]int{"b": 3})
		}},
		{name: "a purge discards waiting tasks", tell: func(w *world) {
			w.fill(3, spec{})
			running, dead := w.claim(), w.claim()
			w.fail(dead, failing{Outcome: "dead"})
			waits := []string{only(w, "ready tasks", w.list(filter{States: []string{"ready"}})).ID, w.id(spec{Delay: hour}),
				w.id(spec{Type: "again", Priority: "high"})}
			w.fail(w.claim(), failing{RetryIn: hour})
			is(w, "the answer", ok[int64](w)(w.api.Purge(w.ctx(), "default")), 3)
			for _, id := range waits {
				is(w, "what waited", w.state(id), "discarded purged")
			}
			is(w, "what runs", w.state(running.ID), "claimed")
			is(w, "the dead", w.state(dead.ID), "dead not_retryable")
			is(w, "what is counted", w.queue("default").Depth, depth{Claimed: 1, Dead: 1})
			is(w, "again", ok[int64](w)(w.api.Purge(w.ctx(), "default")), 0)
		}},
		{name: "a full queue accepts no tasks until some have left", tell: func(w *world) {
			full := refusal{Code: "queue_full", RetryAfter: second}
			w.put("default", settings{MaxLength: 2})
			w.enqueue(spec{Delay: hour})
			got := w.batch([]spec{{Type: "a"}, {Type: "b"}, {Type: "c", Queue: "mail"}})
			is(w, "the first", got[0].Err, nil)
			w.refused("the second", got[1].Err, full)
			is(w, "of another queue", got[2].Err, nil)
			_, err := w.api.Enqueue(w.ctx(), spec{Type: "d"})
			w.refused("one more", err, full)
			is(w, "what is stored", len(w.list(filter{Queue: "default"})), 2)
			w.claim()
			w.enqueue(spec{})
		}},
		{name: "a full queue still answers repeated keys", tell: func(w *world) {
			w.put("default", settings{MaxLength: 1})
			a := w.enqueue(spec{IdempotencyKey: "k"})
			is(w, "the repeat", w.enqueue(spec{IdempotencyKey: "k"}), accepted{ID: a.ID, State: "ready",
				CreatedAt: w.now(), Duplicate: true})
		}},
		{name: "an empty queue can be deleted", tell: func(w *world) {
			w.enqueue(spec{Queue: "mail"})
			w.refused("with a task", w.api.DeleteQueue(w.ctx(), "mail"), refusal{Code: "wrong_state"})
			w.ack(w.one(from("mail")))
			must(w.T, w.api.DeleteQueue(w.ctx(), "mail"))
			_, err := w.api.Queue(w.ctx(), "mail")
			w.refused("after", err, refusal{Code: "not_found"})
			w.refused("again", w.api.DeleteQueue(w.ctx(), "mail"), refusal{Code: "not_found"})
			w.enqueue(spec{Queue: "mail"})
			is(w, "made anew", w.queue("mail").Depth, depth{Ready: 1})
		}},
		{name: "queues are listed by name, in pages", tell: func(w *world) {
			for _, q := range []string{"c", "a", "e", "b", "d"} {
				w.enqueue(spec{Queue: q})
			}
			var all []string
			p := part{Limit: 2}
			for range 3 {
				names, next, err := w.api.Queues(w.ctx(), p)
				must(w.T, err)
				all, p.Cursor = append(all, names...), next
			}
			is(w, "the list", all, []string{"a", "b", "c", "d", "e"})
			is(w, "the last cursor", p.Cursor, "")
		}},
	})
}

func TestOneTaskByHand(t *testing.T) {
	tellAll(t, []story{
		{name: "a scheduled task can be run now", tell: func(w *world) {
			id := w.id(spec{Delay: hour})
			v := ok[view](w)(w.api.RunNow(w.ctx(), id))
			is(w, "the answer", v, w.get(id))
			is(w, "the state", v.State, "ready")
			c := w.claim()
			w.fail(c, failing{RetryIn: hour})
			ok[view](w)(w.api.Retry(w.ctx(), id))
			is(w, "a retry", w.claim().Attempt, 2)
		}},
		{name: "a waiting task can be edited", tell: func(w *world) {
			id := w.id(spec{Delay: hour, Payload: `1`})
			w.id(spec{})
			v := ok[view](w)(w.api.Update(w.ctx(), id, edit{RunAt: w.at(minute), Priority: "high", Payload: []byte(`{"n":2}`),
				MaxAttempts: 9}))
			is(w, "the answer", v, w.get(id))
			is(w, "when it is due", v.RunAt, w.at(minute))
			w.pass(minute)
			c := w.claim()
			is(w, "the claim", c.ID+c.Payload+c.Priority, id+`{"n":2}`+"high")
			is(w, "attempts at most", c.MaxAttempts, 9)
		}},
		{name: "a waiting task can be discarded", tell: func(w *world) {
			id := w.id(spec{})
			is(w, "the answer", ok[view](w)(w.api.Discard(w.ctx(), id)), w.get(id))
			is(w, "the state", w.state(id), "discarded operator")
			w.nothing()
		}},
		{name: "a task that ended without success can be retried", tell: func(w *world) {
			for _, state := range []string{"discarded", "cancelled", "poisoned", "dead"} {
				id := w.id(spec{})
				w.end(state)
				is(w, "the state", ok[view](w)(w.api.Retry(w.ctx(), id)).State, "ready")
				w.ack(w.claim())
				is(w, "the end", w.state(id), "succeeded")
			}
		}},
	})
}
