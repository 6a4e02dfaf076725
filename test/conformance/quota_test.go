package conformance

import (
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// quota sets quotas of the namespace, which only an admin of the system shard can do.
func (w *world) quota(to task.QuotaChange) {
	w.Helper()
	_, err := w.testNode.control.Namespaces.SetQuotas(w.ctx(), task.Author{}, namespace, to)
	must(w.T, err)
}

// Quotas apply to every way in.
func TestQuotas(t *testing.T) {
	tellAll(t, []story{
		{name: "a full namespace accepts no tasks until some have ended, and fails no other task of a batch", tell: func(w *world) {
			full := refusal{Code: "queue_full", Reason: "max_backlog", RetryAfter: second}
			w.quota(task.QuotaChange{task.QuotaBacklog: 2})
			w.enqueue(spec{IdempotencyKey: "k"})
			got := w.batch([]spec{{Type: "a", Queue: "mail"}, {Type: "b"}, {Type: "c", IdempotencyKey: "c"}})
			is(w, "the first", got[0].Err, nil)
			w.refused("the second", got[1].Err, full)
			w.refused("the third", got[2].Err, full)
			is(w, "what is stored", len(w.list(filter{})), 2)
			is(w, "a repeat", w.enqueue(spec{IdempotencyKey: "k"}).Duplicate, true)
			c := w.claim()
			_, err := w.api.Enqueue(w.ctx(), spec{Type: "d"})
			w.refused("while one runs", err, full)
			w.ack(c)
			w.enqueue(spec{})
			w.quota(task.QuotaChange{task.QuotaBacklog: 1})
			w.ack(w.one(from("mail")))
			w.ack(w.claim())
			is(w, "what was accepted before the quota fell", len(w.list(filter{States: []string{"succeeded"}})), 3)
		}},
		{name: "the bytes of payloads are counted", tell: func(w *world) {
			w.quota(task.QuotaChange{task.QuotaBacklogBytes: 10})
			id := w.enqueue(spec{Payload: `"12345"`}).ID
			_, err := w.api.Enqueue(w.ctx(), spec{Type: "a", Payload: `"12"`})
			w.refused("four more", err, refusal{Code: "queue_full", Reason: "max_backlog_bytes", RetryAfter: second})
			w.enqueue(spec{Payload: `"1"`})
			is(w, "the first", w.state(id), "ready")
		}},
		{name: "no more tasks run than the namespace's quota, over all queues", tell: func(w *world) {
			w.quota(task.QuotaChange{task.QuotaRunning: 1})
			w.enqueue(spec{})
			w.enqueue(spec{Queue: "mail"})
			c := w.claim()
			is(w, "from another queue", len(w.claims(from("mail"))), 0)
			w.ack(c)
			w.ack(w.one(from("mail")))
		}},
		{name: "a waiting claim gets a task as soon as the namespace may run more", tell: func(w *world) {
			w.quota(task.QuotaChange{task.QuotaRunning: 1})
			w.fill(3, spec{})
			first := w.claim()
			call := from("default").most(9)
			call.Wait = minute
			beside := w.claimBeside(call)
			w.pass(second)
			w.quota(task.QuotaChange{task.QuotaRunning: 2})
			got := beside.answer(second)
			is(w, "what came when the quota was raised", len(got), 1)
			beside = w.claimBeside(call)
			w.pass(second)
			w.ack(first)
			is(w, "what came when one had ended", len(beside.answer(second)), 1)
		}},
		{name: "explain names the namespace's quota", tell: func(w *world) {
			w.quota(task.QuotaChange{task.QuotaRunning: 1})
			w.fill(1, spec{Queue: "mail"})
			w.claims(from("mail"))
			id := w.id(spec{})
			w.nothing()
			var codes []string
			for _, r := range w.explain(id).Reasons {
				codes = append(codes, r.Code)
			}
			is(w, "why it does not run", slices.Contains(codes, "namespace_max_running"), true)
		}},
		{name: "dead letters do not count, and are replayed even when the namespace is full, and an edit counts what it adds",
			tell: func(w *world) {
				full := refusal{Code: "queue_full", Reason: "max_backlog", RetryAfter: second}
				dead := w.id(spec{})
				w.kill("default", "broken")
				w.quota(task.QuotaChange{task.QuotaBacklog: 1, task.QuotaBacklogBytes: 20})
				long := w.id(spec{Payload: `"123456"`})
				_, err := w.api.Enqueue(w.ctx(), spec{Type: "a"})
				w.refused("another", err, full)
				ok[view](w)(w.api.Retry(w.ctx(), dead))
				is(w, "the dead letter", w.state(dead), "ready")
				ok[view](w)(w.api.Update(w.ctx(), long, edit{Payload: []byte(`"12345678"`)}))
				_, err = w.api.Update(w.ctx(), long, edit{Payload: []byte(`"1234567890123456789"`)})
				w.refused("an edit that is too long", err, refusal{Code: "queue_full", Reason: "max_backlog_bytes", RetryAfter: second})
				is(w, "its payload", w.get(long).Payload, `"12345678"`)
			}},
		{name: "a group is created completely or not at all", tell: func(w *world) {
			w.quota(task.QuotaChange{task.QuotaBacklog: 2})
			members := []spec{{Type: "a"}, {Type: "b"}, {Type: "c"}}
			_, _, err := w.api.MakeGroup(w.ctx(), groupSpec{Tasks: members})
			w.refused("a group of three", err, refusal{Code: "queue_full", Reason: "max_backlog", RetryAfter: second})
			is(w, "what is stored", len(w.list(filter{})), 0)
			_, _, err = w.api.MakeGroup(w.ctx(), groupSpec{Tasks: members[:2]})
			must(w.T, err)
			is(w, "of a group of two", len(w.list(filter{})), 2)
		}},
		{name: "the quota of schedules, and a tick without room for its task", tell: func(w *world) {
			w.quota(task.QuotaChange{task.QuotaSchedules: 1, task.QuotaBacklog: 1})
			w.schedule(schedule{Name: "one", Every: minute})
			_, err := w.api.PutSchedule(w.ctx(), schedule{Name: "two", Every: minute, Task: spec{Type: "job"}})
			w.refused("another", err, refusal{Code: "invalid_argument", Reason: "max_schedules", Field: "name"})
			w.schedule(schedule{Name: "one", Every: minute, Missed: "skip"}) // changing it is allowed
			w.pass(2*minute + second)
			is(w, "its history", historyText(w.history("one")), []string{"fired", "skipped: queue_full"})
			w.done(w.api.DeleteSchedule(w.ctx(), "one"))
			w.schedule(schedule{Name: "two", Every: hour})
		}},
		{name: "the quota of queues", tell: func(w *world) {
			w.quota(task.QuotaChange{task.QuotaQueues: 1})
			w.enqueue(spec{})
			_, err := w.api.Enqueue(w.ctx(), spec{Type: "a", Queue: "mail"})
			w.refused("another queue", err, refusal{Code: "invalid_argument", Reason: "max_queues", Field: "queue"})
			w.enqueue(spec{})
		}},
	})
}
