package conformance

import (
	"fmt"
	"testing"
)

var defaultRetry = retry{Initial: 30 * second, Factor: 2, Max: 30 * minute, Jitter: 0.25}

func TestEnqueue(t *testing.T) {
	tellAll(t, []story{
		{name: "a task is kept as it was sent", tell: func(w *world) {
			keep := 48 * hour
			a := w.enqueue(spec{Type: "mail.welcome", Payload: `{"to":"a@example.com"}`, Queue: "mail", Priority: "high", Delay: minute,
				IdempotencyKey: "welcome-42", MaxAttempts: 3, Retry: retry{Initial: 10 * second, Factor: 3, Max: hour, Jitter: noJitter},
				Timeout: 5 * minute, ExpiresIn: hour, Retention: &keep, Key: "tenant-7", Tags: []string{"signup", "eu"},
				Headers: map[string]string{
					"traceparent": "00-1"}})
			is(w, "the answer", a, accepted{ID: a.ID, State: "scheduled", CreatedAt: w.now()})
			is(w, "the task", w.get(a.ID), view{ID: a.ID, Type: "mail.welcome", Queue: "mail", Status: "queued",
				State: "scheduled", Priority: "high", Payload: `{"to":"a@example.com"}`, MaxAttempts: 3, CreatedAt: w.now(),
				RunAt: w.at(minute), ExpiresAt: w.at(hour), IdempotencyKey: "welcome-42", Key: "tenant-7", Tags: []string{"signup", "eu"},
				Headers: map[string]string{
					"traceparent": "00-1"},
				Retry: retry{Initial: 10 * second, Factor: 3, Max: hour}, Timeout: 5 * minute, Retention: keep, ETag: w.get(a.ID).ETag})
		}},
		{name: "omitted fields have their defaults", tell: func(w *world) {
			a := w.enqueue(spec{Type: "job"})
			is(w, "the task", w.get(a.ID), view{ID: a.ID, Type: "job", Queue: "default", Status: "queued", State: "ready",
				Priority: "normal", MaxAttempts: 5, CreatedAt: w.now(), RunAt: w.now(), Retry: defaultRetry, ETag: w.get(a.ID).ETag})
		}},
		{name: "a payload may be any bytes", tell: func(w *world) {
			id := w.id(spec{Payload: "\x00\xff\"", ContentType: "application/octet-stream"})
			is(w, "the payload", w.get(id).Payload, "\x00\xff\"")
			c := w.claim()
			is(w, "the payload of the claim", c.Payload+" "+c.ContentType, "\x00\xff\" application/octet-stream")
		}},
		{name: "a worker gets what the producer sent", tell: func(w *world) {
			a := w.enqueue(spec{Type: "mail.welcome", Payload: `[1,2]`, Priority: "low", MaxAttempts: 3, Timeout: 5 * minute,
				IdempotencyKey: "k", Key: "tenant-7", Tags: []string{"eu"}, Headers: map[string]string{"traceparent": "00-1"}})
			w.pass(2 * second)
			c := w.claim()
			is(w, "the claim", c, claim{ID: a.ID, Type: "mail.welcome", Queue: "default", Payload: `[1,2]`, Priority: "low",
				Attempt: 1, MaxAttempts: 3, Token: c.Token, Fence: 1, LeaseExpiresAt: w.at(30 * second), Lease: 30 * second,
				Timeout: 5 * minute, Headers: map[string]string{"traceparent": "00-1"}, CreatedAt: a.CreatedAt, ReadyAt: a.CreatedAt,
				Key: "tenant-7", Tags: []string{"eu"}, IdempotencyKey: "k"})
			is(w, "a token", c.Token != "", true)
		}},
		{name: "an invalid task does not fail the rest of a batch", tell: func(w *world) {
			got := w.batch([]spec{{Type: "a"}, {Type: "b", Timeout: -second}, {Type: "c", Queue: "a/b"}, {Type: "d", Delay: minute}})
			w.refused("the second", got[1].Err, refusal{Code: "invalid_argument", Field: "timeout"})
			w.refused("the third", got[2].Err, refusal{Code: "invalid_argument", Field: "queue"})
			is(w, "the first", got[0], accepted{ID: got[0].ID, State: "ready", CreatedAt: w.now()})
			is(w, "the last", got[3], accepted{ID: got[3].ID, State: "scheduled", CreatedAt: w.now()})
			is(w, "their types", w.get(got[0].ID).Type+w.get(got[3].ID).Type, "ad")
			is(w, "what is stored", len(w.list(filter{})), 2)
		}},
		{name: "a thousand tasks of a batch are claimed in its order", tell: func(w *world) {
			specs := make([]spec, 1000)
			for i := range specs {
				specs[i] = spec{Type: "job", Payload: fmt.Sprint(i)}
			}
			var want []string
			for _, a := range w.batch(specs) {
				want = append(want, a.ID)
			}
			is(w, "the order", claimedIDs(w.claims(claimCall{Queues: []string{"default"}, Max: 1000})), want)
		}},
	})
}

func TestDelay(t *testing.T) {
	tellAll(t, []story{
		{name: "a delayed task is due at its time and never early", tell: func(w *world) {
			id := w.id(spec{Delay: minute})
			w.pass(minute - millisecond)
			w.nothing()
			is(w, "before its time", w.state(id), "scheduled")
			w.pass(millisecond)
			is(w, "the claim", w.claim().ID, id)
		}},
		{name: "a task with run_at is due at its time and never early", tell: func(w *world) {
			id := w.id(spec{RunAt: w.at(hour)})
			w.pass(hour - millisecond)
			w.nothing()
			w.pass(millisecond)
			is(w, "the claim", w.claim().ID, id)
		}},
		{name: "a run_at in the past means now", tell: func(w *world) {
			a := w.enqueue(spec{RunAt: w.at(-hour)})
			is(w, "the state", a.State, "ready")
			is(w, "the claim", w.claim().ID, a.ID)
		}},
		{name: "tasks become ready in the order in which they are due", tell: func(w *world) {
			later, sooner := w.id(spec{Delay: 20 * second}), w.id(spec{Delay: 10 * second})
			w.pass(20 * second)
			is(w, "the order", claimedIDs(w.claims(claimCall{Queues: []string{"default"}, Max: 2})), []string{sooner, later})
		}},
		{name: "a task that has not started before expires_in is discarded", tell: func(w *world) {
			late, claimed := w.id(spec{ExpiresIn: minute}), w.id(spec{Priority: "high", ExpiresIn: minute})
			c := w.claim()
			is(w, "the claim", c.ID, claimed)
			w.pass(minute - millisecond)
			is(w, "before its end", w.state(late), "ready")
			w.pass(millisecond)
			is(w, "at its end", w.state(late), "discarded expired")
			v := w.get(late)
			is(w, "ended at", v.EndedAt, w.now())
			is(w, "its attempts", len(v.Log), 0)
		}},
		{name: "a task that has started does not expire", tell: func(w *world) {
			w.id(spec{ExpiresIn: minute})
			c := w.claim()
			w.release(c, 2*minute)
			w.pass(2 * minute)
			w.ack(w.claim())
			is(w, "in the end", w.state(c.ID), "succeeded")
		}},
	})
}

const (
	requestV7 = "00dc6acf-ac00-7abc-8def-000000000001"
	requestV4 = "9b2e4d36-6a0f-4c87-a1c5-3f0e2d1b7a58"
)

func TestOneTaskPerKeyAndRequest(t *testing.T) {
	tellAll(t, []story{
		{name: "a repeated idempotency key returns the first task", tell: func(w *world) {
			first := w.enqueue(spec{Payload: `1`, IdempotencyKey: "k"})
			w.pass(minute)
			is(w, "the repeat", w.enqueue(spec{Payload: `1`, IdempotencyKey: "k"}), accepted{ID: first.ID, State: "ready",
				CreatedAt: first.CreatedAt, Duplicate: true})
			w.ack(w.claim())
			again := w.enqueue(spec{Payload: `1`, IdempotencyKey: "k"})
			is(w, "a repeat after its end", again, accepted{ID: first.ID, State: "succeeded", CreatedAt: first.CreatedAt, Duplicate: true})
			w.nothing()
		}},
		{name: "idempotency keys are scoped to their queue", tell: func(w *world) {
			a, b := w.enqueue(spec{IdempotencyKey: "k"}), w.enqueue(spec{IdempotencyKey: "k", Queue: "mail"})
			is(w, "another task", b.Duplicate || a.ID == b.ID, false)
		}},
		{name: "other content with the same key is a conflict", tell: func(w *world) {
			w.enqueue(spec{Payload: `1`, IdempotencyKey: "k"})
			for _, other := range []spec{{Type: "job", Payload: `2`, IdempotencyKey: "k"}, {Type: "other", Payload: `1`,
				IdempotencyKey: "k"}} {
				_, err := w.api.Enqueue(w.ctx(), other)
				w.refused("other content", err, refusal{Code: "conflict", Field: "idempotency_key"})
			}
			is(w, "what is stored", len(w.list(filter{})), 1)
		}},
		{name: "a payload in another notation is the same content", tell: func(w *world) {
			first := w.enqueue(spec{Payload: `{"b":1.0,"a":"<"}`, IdempotencyKey: "k", RequestID: requestV7})
			is(w, "with the key", w.enqueue(spec{Payload: `{"a":"\u003c","b":1}`, IdempotencyKey: "k"}).ID, first.ID)
			is(w, "with the request id", w.enqueue(spec{Payload: `{"a":"<","b":10e-1}`, RequestID: requestV7}).ID, first.ID)
			w.ack(w.claim())
			is(w, "after its end", w.enqueue(spec{Payload: `{"a":"<","b":1}`, IdempotencyKey: "k"}).ID, first.ID)
			is(w, "what is stored", len(w.list(filter{})), 1)
		}},
		{name: "a key lives for its TTL", tell: func(w *world) {
			w.enqueue(spec{IdempotencyKey: "k", IdempotencyTTL: minute})
			w.pass(minute - millisecond)
			is(w, "before its end", w.enqueue(spec{IdempotencyKey: "k"}).Duplicate, true)
			w.pass(millisecond)
			is(w, "after its end", w.enqueue(spec{Payload: `2`, IdempotencyKey: "k"}).Duplicate, false)
		}},
		{name: "a key is checked within a batch", tell: func(w *world) {
			got := w.batch([]spec{{Type: "job", IdempotencyKey: "k"}, {Type: "job", IdempotencyKey: "k"},
				{Type: "other", IdempotencyKey: "k"}})
			is(w, "the second", got[1], accepted{ID: got[0].ID, State: "ready", CreatedAt: w.now(), Duplicate: true})
			w.refused("the third", got[2].Err, refusal{Code: "conflict", Field: "idempotency_key"})
		}},
		{name: "a repeated request id creates one task", tell: func(w *world) {
			for _, id := range []string{requestV7, requestV4} {
				first := w.enqueue(spec{Payload: `1`, RequestID: id})
				w.pass(10*minute - millisecond)
				is(w, "the repeat of "+id, w.enqueue(spec{Payload: `1`, RequestID: id}), accepted{ID: first.ID, State: "ready",
					CreatedAt: first.CreatedAt, Duplicate: true})
				_, err := w.api.Enqueue(w.ctx(), spec{Type: "job", Payload: `2`, RequestID: id})
				w.refused("other content of "+id, err, refusal{Code: "conflict", Field: "request_id"})
			}
			is(w, "what is stored", len(w.list(filter{})), 2)
		}},
		{name: "a request id is remembered for ten minutes after its task is deleted", tell: func(w *world) {
			none := span(0)
			for _, id := range []string{requestV7, requestV4} {
				a := w.enqueue(spec{RequestID: id, Retention: &none})
				w.ack(w.claim())
				w.pass(10*minute - millisecond)
				w.gone(a.ID)
				is(w, "the repeat of "+id, w.enqueue(spec{RequestID: id}), accepted{ID: a.ID, State: "succeeded", CreatedAt: a.CreatedAt,
					Duplicate: true})
				_, err := w.api.Enqueue(w.ctx(), spec{Type: "job", Payload: `2`, RequestID: id})
				w.refused("other content of "+id, err, refusal{Code: "conflict", Field: "request_id"})
				w.pass(millisecond)
				is(w, "the request "+id+" is forgotten, too", w.enqueue(spec{RequestID: id, Retention: &none}).Duplicate, false)
				w.ack(w.claim())
			}
		}},
		{name: "concurrent repeats create one task", tell: func(w *world) {
			got := make([]accepted, 20)
			w.together(20, func(i int) (err error) {
				got[i], err = w.api.Enqueue(w.ctx(), spec{Type: "job", Payload: `1`, IdempotencyKey: "k"})
				return err
			})
			first := 0
			for _, a := range got {
				is(w, "the task", a.ID, got[0].ID)
				if !a.Duplicate {
					first++
				}
			}
			is(w, "those that made it", first, 1)
		}},
	})
}

// list returns all tasks that a filter selects.
func (w *world) list(f filter) []view {
	w.Helper()
	got := ok[page](w)(w.api.List(w.ctx(), f, part{Limit: 1000}))
	is(w, "the next cursor", got.Next, "")
	return got.Items
}

func TestList(t *testing.T) {
	tellAll(t, []story{
		{name: "a list is newest first, in pages", tell: func(w *world) {
			var want []string
			for i := range 5 {
				// A task's position in a list comes from the time in its request id, which the SDK would take from a
				// clock that all bubbles share.
				request := fmt.Sprintf("00dc6acf-ac%02x-7abc-8def-000000000001", i)
				want = append([]string{w.id(spec{RequestID: request})}, want...)
			}
			var got []string
			p := part{Limit: 2}
			for range 3 {
				a := ok[page](w)(w.api.List(w.ctx(), filter{}, p))
				got = append(got, ids(a.Items)...)
				p.Cursor = a.Next
			}
			is(w, "the list", got, want)
			is(w, "the last cursor", p.Cursor, "")
		}},
		{name: "a list has payloads on request", tell: func(w *world) {
			w.enqueue(spec{Payload: `{"a":1}`})
			is(w, "without", only(w, "tasks listed", w.list(filter{})).Payload, "")
			is(w, "with", only(w, "tasks listed", ok[page](w)(w.api.List(w.ctx(), filter{}, part{WithPayload: true})).Items).Payload,
				`{"a":1}`)
		}},
		{name: "every field of a filter selects", tell: func(w *world) {
			before := w.now()
			w.pass(second)
			w.id(spec{Type: "other"}) // which no filter selects
			w.pass(second)
			id := w.id(spec{Type: "mail", Queue: "mail", Payload: `{"to":"needle","n":[1]}`, Key: "tenant-7",
				Tags: []string{"eu", "signup"}})
			w.fail(w.one(claimCall{Queues: []string{"mail"}, Worker: "w7"}), failing{Message: "no such mailbox"})
			for _, f := range []filter{{Queue: "mail"}, {States: []string{"dead", "retrying"}}, {Type: "mail"},
				{Tag: "signup"}, {Key: "tenant-7"}, {Worker: "w7"}, {Error: "such mail"}, {CreatedAfter: w.at(-millisecond)},
				{Text: "needle"}, {Payload: []string{"to:needle"}}, {Queue: "mail", States: []string{"retrying"}, Type: "mail", Tag: "eu",
					Key: "tenant-7", Worker: "w7", Error: "no", CreatedAfter: before, CreatedBefore: w.at(second), Text: "to",
					Payload: []string{"to:needle", "n.0:1"}}} {
				is(w, fmt.Sprintf("what %+v selects", f), ids(w.list(f)), []string{id})
			}
			for _, f := range []filter{{Queue: "nowhere"}, {States: []string{"ready"}, Queue: "mail"}, {Type: "Mail"}, {Tag: "sign"},
				{CreatedBefore: before}, {Text: "Needle"}, {Payload: []string{"to:needl"}}, {Payload: []string{"to:needle", "n.1:1"}}} {
				is(w, fmt.Sprintf("what %+v selects", f), len(w.list(f)), 0)
			}
		}},
	})
}
