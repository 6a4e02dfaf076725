package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// types returns the types of claims, in order.
func types(claimed []claim) string {
	var out []string
	for _, c := range claimed {
		out = append(out, c.Type)
	}
	return strings.Join(out, " ")
}

// shares counts claims by a property.
func shares(claimed []claim, word func(claim) string) map[string]int {
	out := map[string]int{}
	for _, c := range claimed {
		out[word(c)]++
	}
	return out
}

func queueOf(c claim) string      { return c.Queue }
func prioOf(c claim) string       { return c.Priority }
func from(qs ...string) claimCall { return claimCall{Queues: qs} }

// large is a payload of 10,000 bytes, next to which the rest of a task is negligible.
var large = `"` + strings.Repeat("x", 9_998) + `"`

// most returns the call with a limit.
func (c claimCall) most(n int) claimCall {
	c.Max = n
	return c
}

// fill enqueues n tasks, of types 1 to n.
func (w *world) fill(n int, s spec) {
	w.Helper()
	specs := make([]spec, n)
	for i := range specs {
		specs[i] = s
		specs[i].Type = fmt.Sprint(i + 1)
	}
	for _, a := range w.batch(specs) {
		if a.Err != nil {
			w.Fatal(a.Err)
		}
	}
}

func TestClaimOrder(t *testing.T) {
	tellAll(t, []story{
		{name: "tasks of one priority are first in, first out", tell: func(w *world) {
			for i := range 6 {
				w.enqueue(spec{Type: fmt.Sprint(i)})
			}
			is(w, "one by one", w.claim().Type+w.claim().Type, "01")
			is(w, "many at once", types(w.claims(from("default").most(10))), "2 3 4 5")
		}},
		{name: "strict priorities are served in order", tell: func(w *world) {
			for _, p := range []string{"low", "high", "", "low", "high", "normal"} {
				w.enqueue(spec{Type: p + ".", Priority: p})
			}
			is(w, "the order", types(w.claims(from("default").most(10))), "high. high. . normal. low. low.")
		}},
		{name: "weighted priorities share exactly by weight", tell: func(w *world) {
			w.put("default", settings{Weights: weights{6, 3, 1}})
			for _, p := range []string{"high", "normal", "low"} {
				w.fill(30, spec{Priority: p})
			}
			for range 3 {
				is(w, "ten claims", shares(w.claims(from("default").most(10)), prioOf), map[string]int{"high": 6, "normal": 3, "low": 1})
			}
			var one []claim
			for range 10 {
				one = append(one, w.claim())
			}
			is(w, "ten claims of one", shares(one, prioOf), map[string]int{"high": 6, "normal": 3, "low": 1})
		}},
		{name: "a priority without tasks saves no credit", tell: func(w *world) {
			w.put("default", settings{Weights: weights{6, 3, 1}})
			w.fill(20, spec{Priority: "low"})
			is(w, "the low alone", len(w.claims(from("default").most(10))), 10)
			w.fill(20, spec{Priority: "high"})
			is(w, "seven claims", shares(w.claims(from("default").most(7)), prioOf), map[string]int{"high": 6, "low": 1})
		}},
		{name: "a claim can be limited to types", tell: func(w *world) {
			for _, name := range []string{"x", "y", "x", "z", "y"} {
				w.enqueue(spec{Type: name})
			}
			call := from("default").most(10)
			call.Types = []string{"z", "y"}
			is(w, "the types", types(w.claims(call)), "y z y")
			is(w, "nothing more of them", len(w.claims(call)), 0)
			is(w, "the rest", types(w.claims(from("default").most(10))), "x x")
		}},
		{name: "a claim is limited in number", tell: func(w *world) {
			w.fill(5, spec{})
			is(w, "by default", types(w.claims(from("default"))), "1")
			is(w, "to two", types(w.claims(from("default").most(2))), "2 3")
			is(w, "to the rest", types(w.claims(from("default").most(1000))), "4 5")
		}},
		{name: "a claim is limited in bytes, but returns at least one task", tell: func(w *world) {
			w.fill(5, spec{Payload: large})
			call := from("default").most(10)
			call.MaxBytes = 10
			is(w, "less than one", types(w.claims(call)), "1")
			call.MaxBytes = 29_999
			is(w, "less than three", types(w.claims(call)), "2 3")
		}},
		{name: "the lease comes from the claim, else from the queue", tell: func(w *world) {
			w.put("default", settings{Lease: 2 * minute})
			w.fill(2, spec{})
			c := w.claim()
			is(w, "the queue's", c.Lease, 2*minute)
			is(w, "its end", c.LeaseExpiresAt, w.at(2*minute))
			call := from("default")
			call.Lease = 10 * second
			is(w, "the claim's", w.one(call).LeaseExpiresAt, w.at(10*second))
		}},
		{name: "concurrent claims never get the same task", tell: func(w *world) {
			w.fill(200, spec{})
			got := make([][]claim, 10)
			w.together(10, func(i int) error {
				for {
					c, err := w.api.Claim(w.ctx(), from("default").most(i+1))
					if len(c) == 0 || err != nil {
						return err
					}
					got[i] = append(got[i], c...)
				}
			})
			claimed := shares(slices.Concat(got...), func(c claim) string { return c.ID })
			is(w, "the tasks", len(claimed), 200)
			is(w, "the claims", len(slices.Concat(got...)), 200)
		}},
		{name: "a repeated claim_key returns the same claims", tell: func(w *world) {
			w.fill(3, spec{})
			call := from("default").most(2)
			call.Key = "call-1"
			first := w.claims(call)
			w.pass(29 * second)
			is(w, "the repeat", w.claims(call), first)
			w.pass(second) // their leases end
			again := shares(w.claims(call), func(c claim) string { return fmt.Sprint("fence ", c.Fence) })
			is(w, "a repeat after the leases", again, map[string]int{"fence 2": 2})
		}},
	})
}

// claimsOfManyQueues are stories about the queues a and b.
var claimsOfManyQueues = []story{
	{name: "a list of queues is served in strict order", tell: func(w *world) {
		w.fill(3, spec{Queue: "b"})
		w.fill(2, spec{Queue: "a"})
		got := w.claims(from("a", "b").most(4))
		is(w, "the types", types(got), "1 2 1 2")
		is(w, "the queues", shares(got, queueOf), map[string]int{"a": 2, "b": 2})
	}},
	{name: "weighted queues share exactly by weight", tell: func(w *world) {
		w.fill(60, spec{Queue: "a"})
		w.fill(60, spec{Queue: "b"})
		call := claimCall{Weights: map[string]int{"a": 5, "b": 1}}
		for _, n := range []int{6, 12, 18} {
			is(w, "the shares", shares(w.claims(call.most(n)), queueOf), map[string]int{"a": 5 * n / 6, "b": n / 6})
		}
		var one []claim
		for range 12 {
			one = append(one, w.claims(call)...)
		}
		is(w, "the shares of claims of one", shares(one, queueOf), map[string]int{"a": 10, "b": 2})
	}},
	{name: "an empty queue gives up its share and saves no credit", tell: func(w *world) {
		call := claimCall{Weights: map[string]int{"a": 5, "b": 1}}
		w.fill(20, spec{Queue: "b"})
		is(w, "b alone", len(w.claims(call.most(10))), 10)
		w.fill(20, spec{Queue: "a"})
		is(w, "six claims", shares(w.claims(call.most(6)), queueOf), map[string]int{"a": 5, "b": 1})
	}},
	{name: "the limits of a claim apply to all its queues together", tell: func(w *world) {
		w.fill(3, spec{Queue: "a", Payload: large})
		w.fill(3, spec{Queue: "b", Payload: large})
		call := from("a", "b").most(3)
		call.Types = []string{"2", "3"}
		is(w, "three of two types", types(w.claims(call)), "2 3 2")
		is(w, "the last of them", types(w.claims(call)), "3")
		for _, q := range []string{"a", "b"} {
			w.enqueue(spec{Type: "4", Queue: q, Payload: large})
		}
		few := claimCall{Weights: map[string]int{"a": 1, "b": 1}, Max: 10, MaxBytes: 1}
		is(w, "one task at least, and no more bytes", len(w.claims(few)), 1)
		some := from("a", "b").most(10)
		some.MaxBytes = 29_999
		is(w, "less than three", len(w.claims(some)), 2)
		is(w, "the rest", len(w.claims(some)), 1)
	}},
	{name: "a repeated claim of many queues returns the same claims", tell: func(w *world) {
		w.fill(3, spec{Queue: "a"})
		w.fill(3, spec{Queue: "b"})
		for i, call := range []claimCall{from("a", "b").most(4), {Weights: map[string]int{"a": 1, "b": 1}, Max: 2}} {
			call.Key = fmt.Sprint("call-", i)
			first := claimedIDs(w.claims(call))
			again := claimedIDs(w.claims(call))
			slices.Sort(first)
			slices.Sort(again)
			is(w, "the repeat", again, first)
		}
	}},
	{name: "a claim of many queues is woken by any of them", tell: func(w *world) {
		for _, call := range []claimCall{from("a", "b"), {Weights: map[string]int{"a": 5, "b": 1}}} {
			for _, q := range []string{"a", "b"} {
				call.Wait = 20 * second
				beside := w.claimBeside(call)
				w.pass(5 * second)
				id := w.id(spec{Queue: q})
				is(w, "the task", claimedIDs(beside.answer(5*second)), []string{id})
			}
		}
	}},
	{name: "a batch may contain tasks of many queues", tell: func(w *world) {
		var specs []spec
		for i := range 10 {
			specs = append(specs, spec{Type: fmt.Sprint(i), Queue: []string{"a", "b"}[i%2]})
		}
		for i, a := range w.batch(specs) {
			v := w.get(a.ID)
			is(w, "the task", v.Type+v.Queue, specs[i].Type+specs[i].Queue)
		}
		is(w, "the order in a", types(w.claims(from("a").most(10))), "0 2 4 6 8")
	}},
}

func TestClaimsOfManyQueues(t *testing.T) {
	tellAll(t, append(claimsOfManyQueues, overTwoShards(claimsOfManyQueues)...))
}

// waiting is a call that runs in parallel to the story.
type waiting[T any] struct {
	w     *world
	began time.Time
	got   chan T
	took  span
}

// meanwhile starts a call that may wait, and returns when it waits or has been answered.
func meanwhile[T any](w *world, call func() (T, error)) *waiting[T] {
	a := &waiting[T]{w: w, began: time.Now(), got: make(chan T, 1)}
	go func() {
		got, err := call()
		if err != nil {
			w.Errorf("the waiting call was refused: %v", err)
		}
		a.took = span(time.Since(a.began))
		a.got <- got
	}()
	synctest.Wait()
	return a
}

// answer returns the call's answer, which must have taken that long.
func (a *waiting[T]) answer(after span) T {
	a.w.Helper()
	got := <-a.got
	is(a.w, "how long the answer took", a.took, after)
	return got
}

func (w *world) claimBeside(c claimCall) *waiting[[]claim] {
	return meanwhile(w, func() ([]claim, error) { return w.api.Claim(w.ctx(), c) })
}

// caller starts a waiting claim that can be cancelled.
func (w *world) caller(c claimCall) (got <-chan []claim, hangUp func()) {
	ctx, hangUp := context.WithCancel(w.ctx())
	out := make(chan []claim, 1)
	go func() {
		got, _ := w.api.Claim(ctx, c)
		out <- got
	}()
	synctest.Wait()
	return out, hangUp
}

func TestWaitForATask(t *testing.T) {
	long := claimCall{Queues: []string{"default"}, Wait: 20 * second, Worker: "w2"}
	// woken checks that a waiting claim gets the task when do makes it available, 5 s after the claim began.
	woken := func(name string, prepare func(w *world) func()) story {
		return story{name: name, tell: func(w *world) {
			do := prepare(w)
			beside := w.claimBeside(long)
			w.pass(5 * second)
			do()
			is(w, "the tasks", len(beside.answer(5*second)), 1)
		}}
	}
	tellAll(t, []story{
		woken("a task that ends in a full namespace wakes a waiting claim", func(w *world) func() {
			w.quota(task.QuotaChange{task.QuotaRunning: 1})
			w.enqueue(spec{})
			w.enqueue(spec{Queue: "mail"})
			c := w.one(from("mail"))
			return func() { w.ack(c) }
		}),
		woken("a raised namespace quota wakes a waiting claim", func(w *world) func() {
			w.quota(task.QuotaChange{task.QuotaRunning: 1})
			w.enqueue(spec{})
			w.enqueue(spec{Queue: "mail"})
			w.one(from("mail"))
			return func() { w.quota(task.QuotaChange{task.QuotaRunning: 2}) }
		}),
		woken("an enqueue wakes a waiting claim", func(w *world) func() { return func() { w.enqueue(spec{}) } }),
		woken("a batch wakes a waiting claim", func(w *world) func() { return func() { w.fill(3, spec{}) } }),
		woken("a delayed task that becomes due wakes a waiting claim", func(w *world) func() {
			w.enqueue(spec{Delay: 5 * second})
			return func() {}
		}),
		woken("a release wakes a waiting claim", func(w *world) func() {
			w.enqueue(spec{})
			c := w.claim()
			return func() { w.release(c, 0) }
		}),
		woken("a retry that becomes due wakes a waiting claim", func(w *world) func() {
			w.enqueue(spec{})
			w.fail(w.claim(), failing{RetryIn: 5 * second})
			return func() {}
		}),
		woken("the end of a lease wakes a waiting claim", func(w *world) func() {
			w.enqueue(spec{})
			w.claims(claimCall{Queues: []string{"default"}, Lease: 5 * second})
			return func() {}
		}),
		woken("resuming a queue wakes a waiting claim", func(w *world) func() {
			w.enqueue(spec{})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Reason: "deploy"}))
			return func() { ok[queueInfo](w)(w.api.Resume(w.ctx(), "default", pause{})) }
		}),
		woken("resuming a type wakes a waiting claim", func(w *world) func() {
			w.enqueue(spec{Type: "report"})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Type: "report"}))
			return func() { ok[queueInfo](w)(w.api.Resume(w.ctx(), "default", pause{Type: "report"})) }
		}),
		woken("a free slot under the queue's limit wakes a waiting claim", func(w *world) func() {
			w.put("default", settings{limits: limits{MaxRunning: 1}})
			w.fill(2, spec{})
			c := w.claim()
			return func() { w.ack(c) }
		}),
		woken("a free slot under the key's limit wakes a waiting claim", func(w *world) func() {
			w.put("default", settings{PerKey: &limits{MaxRunning: 1}})
			w.fill(2, spec{Key: "acme"})
			c := w.claim()
			return func() { w.fail(c, failing{Outcome: "dead"}) }
		}),
		woken("a rate limit token of the queue wakes a waiting claim", func(w *world) func() {
			w.put("default", settings{limits: limits{Rate: &rate{Limit: 2, Period: 10 * second, Burst: 1}}})
			w.fill(2, spec{})
			w.ack(w.claim())
			return func() {}
		}),
		woken("a rate limit token of the key wakes a waiting claim", func(w *world) func() {
			w.put("default", settings{PerKey: &limits{Rate: &rate{Limit: 1, Period: 5 * second, Burst: 1}}})
			w.fill(2, spec{Key: "acme"})
			w.ack(w.claim())
			return func() {}
		}),
		woken("a removed limit wakes a waiting claim", func(w *world) func() {
			w.put("default", settings{PerKey: &limits{MaxRunning: 1}})
			w.fill(2, spec{Key: "acme"})
			w.claim()
			return func() { w.put("default", settings{}) }
		}),
		woken("a retry of a dead letter wakes a waiting claim", func(w *world) func() {
			id := w.id(spec{})
			w.kill("default", "broken")
			return func() { ok[view](w)(w.api.Retry(w.ctx(), id)) }
		}),
		{name: "a claim whose wait ends without a task is empty", tell: func(w *world) {
			beside := w.claimBeside(long)
			is(w, "the tasks", len(beside.answer(20*second)), 0)
		}},
		{name: "a claim does not wait if there is a task", tell: func(w *world) {
			w.enqueue(spec{})
			is(w, "the tasks", len(w.claimBeside(long).answer(0)), 1)
			is(w, "without a wait", len(w.claimBeside(from("default")).answer(0)), 0)
		}},
		{name: "waiting claims are served in order of arrival, by the types that they take", tell: func(w *world) {
			other := long
			other.Types = []string{"other"}
			strange, first, second := w.claimBeside(other), w.claimBeside(long), w.claimBeside(long)
			for _, name := range []string{"a", "b", "other"} {
				w.enqueue(spec{Type: name})
			}
			is(w, "the order", types(first.answer(0))+" "+types(second.answer(0))+" "+types(strange.answer(0)), "a b other")
		}},
		{name: "a caller that disconnected gets no task", tell: func(w *world) {
			_, hangUp := w.caller(long)
			hangUp()
			synctest.Wait()
			id := w.id(spec{})
			c := w.claim()
			is(w, "the task and its attempt", fmt.Sprint(c.ID, c.Attempt), fmt.Sprint(id, 1))
		}},
		{name: "a caller that disconnects as a task arrives can get it with the same claim_key, or it is released", tell: func(w *world) {
			for i := range 20 { // the two race in many ways
				call := long
				call.Key = fmt.Sprint("call-", i)
				got, hangUp := w.caller(call)
				go hangUp()
				id := w.id(spec{})
				mine := <-got // if the task was faster
				if i%2 == 0 {
					synctest.Wait() // the node may or may not notice the hang-up before the repeat
				}
				if len(mine) == 0 {
					call.Wait = 0
					mine = w.claims(call) // if the answer was lost
				}
				if len(mine) == 0 {
					mine = w.claimBeside(long).answer(0)
				}
				c := only(w, "tasks after the hang-up", mine)
				is(w, "the task and its attempt", fmt.Sprint(c.ID, c.Attempt), fmt.Sprint(id, 1))
				w.ack(c)
			}
		}},
	})
}
