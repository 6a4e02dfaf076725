package conformance

import "testing"

func keyOf(c claim) string { return c.Key }

func TestLimits(t *testing.T) {
	tellAll(t, []story{
		{name: "limits are returned as set", tell: func(w *world) {
			all := defaultSettings
			all.limits = limits{MaxRunning: 50, Rate: &rate{Limit: 100, Period: minute, Burst: 10}}
			all.PerKey = &limits{MaxRunning: 2, Rate: &rate{Limit: 5, Period: second, Burst: 5}}
			all.Keys = map[string]keyRules{"vip": {limits{MaxRunning: 9}, 3},
				"slow": {limits{Rate: &rate{Limit: 1, Period: hour, Burst: 1}}, 1}}
			made := w.put("mail", all)
			is(w, "the settings", made.Settings, all)
			is(w, "as they are read", w.queue("mail"), made)
			is(w, "without them", w.put("mail", settings{}).Settings, defaultSettings)
		}},
		{name: "no more tasks of a queue run than allowed, and the others are held", tell: func(w *world) {
			w.put("default", settings{limits: limits{MaxRunning: 2}})
			w.fill(4, spec{})
			first := w.claims(from("default").most(9))
			is(w, "the claims", len(first), 2)
			is(w, "the depth", w.queue("default").Depth, depth{Ready: 2, Held: 2, Claimed: 2})
			w.nothing()
			w.ack(first[0])
			is(w, "when one has ended", len(w.claims(from("default").most(9))), 1)
		}},
		{name: "no more tasks of a key run than allowed, and other keys are not blocked", tell: func(w *world) {
			w.put("default", settings{PerKey: &limits{MaxRunning: 1}, Keys: map[string]keyRules{"vip": {limits: limits{MaxRunning: 2}}}})
			w.fill(3, spec{Key: "a"})
			w.fill(3, spec{Key: "vip"})
			w.fill(2, spec{})
			is(w, "the claims", shares(w.claims(from("default").most(20)), keyOf), map[string]int{"a": 1, "vip": 2, "": 2})
			is(w, "the depth", w.queue("default").Depth, depth{Ready: 3, Held: 3, Claimed: 5})
		}},
		{name: "the rate limit counts the cost of tasks", tell: func(w *world) {
			w.put("default", settings{limits: limits{Rate: &rate{Limit: 4, Period: 10 * second, Burst: 4}}})
			w.fill(9, spec{Cost: 2})
			is(w, "at once", len(w.claims(from("default").most(9))), 2)
			w.pass(4 * second)
			is(w, "in four seconds", len(w.claims(from("default").most(9))), 1)
			w.nothing()
		}},
		{name: "a type or a key is paused on its own", tell: func(w *world) {
			w.batch([]spec{{Type: "report"}, {Type: "report"}, {Type: "job", Key: "acme"}, {Type: "job", Key: "acme"}})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Type: "report", Reason: "no paper"}))
			q := ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Key: "acme"}))
			is(w, "the pauses", q.Holds, []held{{pause{"no paper", "report", ""}, actor, w.now()}, {pause{"", "", "acme"}, actor, w.now()}})
			is(w, "what waits", q.Depth, depth{Ready: 4, Held: 4})
			w.nothing()
			ok[queueInfo](w)(w.api.Resume(w.ctx(), "default", pause{Key: "acme"}))
			is(w, "the claims", shares(w.claims(from("default").most(9)), keyOf), map[string]int{"acme": 2})
			q = ok[queueInfo](w)(w.api.Resume(w.ctx(), "default", pause{Type: "report"}))
			is(w, "no pause", len(q.Holds), 0)
			is(w, "the rest", len(w.claims(from("default").most(9))), 2)
		}},
		{name: "keys take turns by weight", tell: func(w *world) {
			w.put("default", settings{Keys: map[string]keyRules{"vip": {Weight: 3}}})
			w.fill(20, spec{Key: "a"})
			w.fill(20, spec{Key: "vip"})
			is(w, "the claims", shares(w.claims(from("default").most(8)), keyOf), map[string]int{"a": 2, "vip": 6})
		}},
	})
}
