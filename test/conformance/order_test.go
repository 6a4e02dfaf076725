package conformance

import "testing"

func TestKeyOrder(t *testing.T) {
	idsOf := func(all []claim) (ids []string) {
		for _, c := range all {
			ids = append(ids, c.ID)
		}
		return ids
	}
	tellAll(t, []story{
		{name: "a strict key order is returned as set", tell: func(w *world) {
			all := defaultSettings
			all.KeyOrder = "strict"
			is(w, "the settings", w.put("mail", all).Settings, all)
			is(w, "as they are read", w.queue("mail").Settings, all)
			is(w, "without it", w.put("mail", settings{}).Settings, defaultSettings)
		}},
		{name: "with a strict order the next task of a key waits for the retries of the previous one", tell: func(w *world) {
			w.put("default", settings{KeyOrder: "strict"})
			first, second := w.enqueue(spec{Type: "job", Key: "a"}), w.enqueue(spec{Type: "job", Key: "a", Priority: "high"})
			c := w.one(from("default").most(9))
			is(w, "the first", c.ID, first.ID)
			is(w, "the second waits for", w.get(second.ID).WaitsFor, first.ID)
			is(w, "the depth", w.queue("default").Depth, depth{Ready: 1, Held: 1, Claimed: 1})
			w.fail(c, failing{})
			w.nothing()
			why := w.explain(second.ID).Reasons[0]
			is(w, "why", [2]string{why.Code, why.Running[0].ID}, [2]string{"key_order", first.ID})
			w.pass(minute)
			c = w.one(from("default").most(9))
			is(w, "again the first", c.ID, first.ID)
			w.ack(c)
			is(w, "then", w.one(from("default")).ID, second.ID)
		}},
		{name: "a claim may take several tasks of a key, in order", tell: func(w *world) {
			w.put("default", settings{KeyOrder: "strict"})
			var a []string
			for range 3 {
				a = append(a, w.enqueue(spec{Type: "job", Key: "a"}).ID)
			}
			b := w.enqueue(spec{Type: "job", Key: "b"}).ID
			call := from("default").most(9)
			call.Runs = true
			got := w.claims(call)
			is(w, "the run, and another key", idsOf(got), append(a, b))
			next := w.enqueue(spec{Type: "job", Key: "a"}).ID
			w.nothing()
			for _, c := range got[1:] {
				w.ack(c)
			}
			w.nothing()
			w.ack(got[0])
			is(w, "when the run has ended", w.one(from("default")).ID, next)
		}},
	})
}
