package conformance

import "testing"

var endStates = []string{"succeeded", "discarded", "cancelled", "dead", "poisoned"}

func TestRetention(t *testing.T) {
	tellAll(t, []story{
		{name: "a finished task is kept for the queue's retention of its state", tell: func(w *world) {
			w.put("default", settings{Retention: retention{Succeeded: hour, Discarded: 2 * hour, Cancelled: 3 * hour, Dead: 4 * hour,
				Poisoned: 5 * hour}})
			var all []string
			for i, state := range endStates {
				id := w.id(spec{})
				w.end(state)
				keep := span(i+1) * hour
				v := w.get(id)
				is(w, "how long the "+state+" is kept", v.Retention, keep)
				is(w, "until when", v.KeptUntil, w.at(keep))
				all = append(all, id)
			}
			w.pass(hour - millisecond)
			for i, id := range all {
				is(w, "before its end", w.get(id).State, endStates[i])
				w.pass(millisecond)
				w.gone(id)
				w.pass(hour - millisecond)
			}
			is(w, "what is left", len(w.list(filter{})), 0)
			is(w, "what is counted", w.queue("default").Depth, depth{})
		}},
		{name: "a task's own retention overrides the queue's", tell: func(w *world) {
			keep := 20 * minute
			for _, state := range endStates {
				id := w.id(spec{Retention: &keep})
				w.end(state)
				is(w, "until when the "+state+" is kept", w.get(id).KeptUntil, w.at(keep))
				w.pass(keep)
				w.gone(id)
			}
		}},
		{name: "a short retention is kept, to the end of its second", tell: func(w *world) {
			for keep, kept := range map[span]span{millisecond: second, second: second, second + millisecond: 2 * second,
				10*minute - second: 10*minute - second} {
				id := w.id(spec{Retention: &keep})
				w.end("succeeded")
				is(w, "until when", w.get(id).KeptUntil, w.at(kept))
				w.pass(kept - millisecond)
				is(w, "before", w.get(id).State, "succeeded")
				w.pass(millisecond)
				w.gone(id)
			}
		}},
		{name: "a task with zero retention is deleted when it ends", tell: func(w *world) {
			none := span(0)
			id := w.id(spec{Retention: &none})
			w.ack(w.claim())
			w.pass(millisecond)
			w.gone(id)
			is(w, "what is left", len(w.list(filter{})), 0)
		}},
		// One story for everything that takes a day: even fake time has a cost.
		{name: "by default keys and finished tasks are kept for a day, dead and poisoned tasks for two weeks", tell: func(w *world) {
			var all []string
			for _, state := range endStates {
				all = append(all, w.id(spec{}))
				w.end(state)
			}
			keyed := w.enqueue(spec{IdempotencyKey: "k"})
			w.pass(day - millisecond)
			is(w, "the key before its end", w.enqueue(spec{IdempotencyKey: "k"}), accepted{ID: keyed.ID, State: "ready",
				CreatedAt: keyed.CreatedAt, Duplicate: true})
			for i, id := range all {
				is(w, "before its end", w.get(id).State, endStates[i])
			}
			w.pass(millisecond)
			again := w.enqueue(spec{IdempotencyKey: "k"})
			is(w, "the key after its end", again, accepted{ID: again.ID, State: "ready", CreatedAt: w.now()})
			is(w, "another task", again.ID != keyed.ID, true)
			for i, id := range all {
				if state := endStates[i]; state == "dead" || state == "poisoned" {
					is(w, "until when the "+state+" is kept", w.get(id).KeptUntil, w.at(13*day))
					continue
				}
				w.gone(id)
			}
		}},
	})
}
