package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

func helloOf(name string, queues ...string) Hello {
	h := Hello{Namespace: "default", Name: name, Address: "10.0.0.1"}
	for _, q := range queues {
		h.Queues = append(h.Queues, Share{Queue: q})
	}
	return h
}

// names lists the workers of a page, with what they run.
func names(p Page) string {
	var all []string
	for i := range p.Workers {
		w := &p.Workers[i]
		s := fmt.Sprintf("%s %d/%d", w.Name, w.RunningNow, w.Slots)
		if w.Quiet != nil {
			s += " quiet"
		}
		if w.Draining {
			s += " draining"
		}
		all = append(all, s)
	}
	if p.More {
		all = append(all, "…")
	}
	return strings.Join(all, ", ")
}

func everybody() Query { return Query{Namespace: "default", Limit: 100} }

func run(n uint64, lease time.Duration) Run {
	return Run{Task: task.NewID(1, 1, n), Token: task.Token{Fence: n}, Type: "a", Queue: "mail", Attempt: 1, Since: time.Now(),
		LeaseUntil: time.Now().Add(lease)}
}

func is(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		a := r.Join(helloOf("a", "mail"), "A", 0, nil)
		b := r.Join(helloOf("b", "sms"), "", 0, nil)
		other := helloOf("c", "mail")
		other.Namespace = "other"
		r.Join(other, "A", 0, nil)
		a.Slots(3)
		one, two := run(1, time.Minute), run(2, time.Minute)
		a.Took([]Run{one, two}, time.Now())
		b.Drains()
		is(t, "all", names(r.List(everybody())), "a 2/5, b 0/0 draining")
		is(t, "of a queue", names(r.List(Query{Namespace: "default", Queue: "mail", Limit: 9})), "a 2/5")
		is(t, "of another namespace", names(r.List(Query{Namespace: "other", Limit: 9})), "c 0/0")
		is(t, "a page", names(r.List(Query{Namespace: "default", Limit: 1})), "a 2/5, …")
		is(t, "behind it", names(r.List(Query{Namespace: "default", Limit: 1, After: Place{"a", "A"}})), "b 0/0 draining")
		is(t, "by id", names(r.List(Query{Namespace: "default", ID: b.ID(), Limit: 1})), "b 0/0 draining")
		if a.Ended(one.Task, two.Token) || !a.Ended(one.Task, one.Token) {
			t.Error("Ended accepted another claim's token, or refused its own")
		}
		a.Extended(two.Task, two.Token, time.Now().Add(time.Hour))
		got := r.List(Query{Namespace: "default", ID: "A", Limit: 1}).Workers[0]
		if len(got.Running) != 1 || !got.Running[0].LeaseUntil.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("the worker runs %+v", got.Running)
		}
		again := r.Join(helloOf("a", "mail"), "A", 0, nil) // before the node noticed that it had gone
		a.Leave(true)
		is(t, "one that came back", names(r.List(everybody())), "a 0/0, b 0/0 draining")
		again.Leave(true)
		b.Leave(true)
		is(t, "when all have gone", names(r.List(everybody())), "")
	})
}

func TestScope(t *testing.T) {
	r := New()
	both := r.Join(helloOf("both", "mail", "sms"), "", 0, nil)
	r.Join(helloOf("sms", "sms"), "", 0, nil)
	other := run(2, time.Minute)
	other.Queue = "sms"
	both.Took([]Run{run(1, time.Minute), other}, time.Now())
	q := everybody()
	q.Scope = task.Scope{Queues: []string{"ma*"}}
	page := r.List(q)
	is(t, "in the scope", names(page), "both 2/2")
	if w := page.Workers[0]; len(w.Queues) != 1 || !w.Hidden || len(w.Running) != 1 || w.Running[0].Queue != "mail" {
		t.Errorf("in a scope of one queue the worker is %+v", w)
	}
	q.Queue = "sms"
	is(t, "a queue outside of it", names(r.List(q)), "")
}

func TestClaimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		a := r.Begin(helloOf("a", "mail"))
		time.Sleep(10 * time.Minute)
		r.sweep()
		is(t, "in a long call", names(r.List(everybody())), "a 0/0")
		one, two := run(1, time.Minute), run(2, time.Minute)
		a.Took([]Run{one, two}, time.Now())
		a.Done()
		elsewhere := helloOf("a", "mail")
		elsewhere.Address = "10.0.0.2"
		r.Begin(elsewhere).Done()
		if b := r.Begin(helloOf("a", "sms")); b != a {
			t.Error("a second call from the same address created another worker")
		}
		a.Done()
		is(t, "what it takes by its last call", names(r.List(Query{Namespace: "default", Queue: "sms", Limit: 9})), "a 2/2")
		if got, ok := r.Holding(one.Task, one.Token); !ok || got.Queue != "mail" {
			t.Errorf("Holding = %+v, %v", got, ok)
		}
		if _, ok := r.Holding(one.Task, two.Token); ok {
			t.Error("Holding accepted the token of another claim")
		}
		r.Ended(one.Task, one.Token)
		if _, ok := r.Holding(one.Task, one.Token); ok {
			t.Error("Holding returns a claim that has ended")
		}
		r.Extended(two.Task, two.Token, time.Now().Add(2*time.Minute))
		time.Sleep(90 * time.Second)
		is(t, "one ended, one was extended", names(r.List(Query{Namespace: "default", Queue: "sms", Limit: 9})), "a 1/1")
		time.Sleep(time.Minute)
		is(t, "behind its lease", names(r.List(Query{Namespace: "default", Queue: "sms", Limit: 9})), "a 0/0")
		time.Sleep(KeptFor)
		is(t, "long after", names(r.List(everybody())), "")
		r.sweep()
		if r.claimers.size != 0 || len(r.heldBy) != 0 {
			t.Errorf("%d claimers and %d tasks are still kept", r.claimers.size, len(r.heldBy))
		}
	})
}

// Names come from callers. They must neither fill the memory nor be rejected.
func TestClaimersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		for i := range maxClaimers + 100 {
			r.Begin(helloOf(fmt.Sprint(i), "mail")).Done()
		}
		if r.claimers.size != maxClaimers {
			t.Errorf("%d claimers are kept", r.claimers.size)
		}
		runs := make([]Run, maxHeld+100)
		for i := range runs {
			runs[i] = run(uint64(i), time.Minute)
		}
		w := r.Begin(helloOf("1", "mail"))
		w.Took(runs, time.Now())
		if len(r.heldBy) != maxHeldOf {
			t.Errorf("%d tasks are known", len(r.heldBy))
		}
		time.Sleep(KeptFor + time.Second)
		r.Begin(helloOf("new", "mail"))
		if r.claimers.size != 2 { // and the one in a call
			t.Errorf("%d claimers are kept after most have left, want 2", r.claimers.size)
		}
	})
}

func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var told []string
		hear := func(name string) func() { return func() { told = append(told, name) } }
		heard := func(what string, want ...string) {
			t.Helper()
			slices.Sort(told)
			if !slices.Equal(told, want) {
				t.Errorf("%s: %v were notified, want %v", what, told, want)
			}
			told = nil
		}
		a := r.Join(helloOf("a", "mail"), "A", 0, hear("a"))
		r.Join(helloOf("b", "mail"), "B", 0, hear("b"))
		word := func(id string, version uint64) QuietChange {
			return QuietChange{"default", id, &Quiet{Reason: "deploy", Until: time.Now().Add(time.Hour), Version: version}}
		}
		r.SetQuiet(5, true, []QuietChange{word("A", 4)})
		heard("a word", "a")
		r.SetQuiet(6, false, []QuietChange{word("A", 4)})
		heard("the same again")
		is(t, "one of two", names(r.List(everybody())), "a 0/0 quiet, b 0/0")
		_, changes := a.Quiet()
		_, again := a.Quiet()
		if a.setQuiet(&Quiet{Version: 4}); changes.Err() != nil {
			t.Error("setting the same quiet again woke a waiting caller")
		}
		r.SetQuiet(6, false, []QuietChange{{"default", "A", &Quiet{Reason: "repair", Until: time.Now().Add(time.Hour), Version: 6}}})
		heard("another word", "a")
		if q, _ := a.Quiet(); q.Reason != "repair" || changes.Err() == nil || again.Err() == nil {
			t.Errorf("the quiet to report is %+v; the two waiting callers were woken: %v and %v", q, changes.Err() != nil,
				again.Err() != nil)
		}
		r.SetQuiet(6, false, []QuietChange{word("B", 6)})
		heard("another worker", "b")
		r.sweep()
		is(t, "both", names(r.List(everybody())), "a 0/0 quiet, b 0/0 quiet")
		r.SetQuiet(7, true, []QuietChange{word("A", 4)})
		heard("all words", "a", "b")
		is(t, "one that is named", names(r.List(everybody())), "a 0/0 quiet, b 0/0")
		a.setQuiet(nil)
		heard("it may take tasks", "a")
		a.setQuiet(nil)
		heard("as before")
		a.Leave(true)
		a = r.Join(helloOf("a", "mail"), "A", 4, hear("a"))
		heard("one that comes back knowing")
		q, changed := a.Quiet()
		if q == nil || q.Version != 4 {
			t.Errorf("the quiet to report is %+v, want version 4", q)
		}
		r.SetQuiet(7, false, []QuietChange{{"default", "A", nil}})
		heard("a resume", "a")
		if q, _ := a.Quiet(); q != nil || changed.Err() == nil {
			t.Error("the caller that waited for a change was not woken")
		}

		// A claimer is quiet by the id that it has on every node.
		c := r.Begin(helloOf("c", "mail"))
		r.SetQuiet(8, false, []QuietChange{word(c.ID(), 8)})
		if q, _ := c.Quiet(); q == nil {
			t.Error("the claimer is not quiet")
		}
		c.Done()
		other := New()
		other.SetQuiet(8, true, []QuietChange{word(c.ID(), 8)})
		if q, _ := other.Begin(helloOf("c", "mail")).Quiet(); q == nil {
			t.Error("the claimer is not quiet on another node")
		}

		r.SetQuiet(8, true, nil)
		if q, _ := c.Quiet(); q != nil {
			t.Error("the claimer is still quiet after all quiet was removed")
		}

		// Expired quiet has no effect any more, without further notice.
		r.SetQuiet(9, true, []QuietChange{word("A", 9)})
		heard("all", "a")
		time.Sleep(2 * time.Hour)
		r.sweep()
		heard("when it is over", "a")
		is(t, "then", names(r.List(everybody())), "a 0/0, b 0/0")
	})
}

// Expired quiet takes no space.
func TestExpiredQuietIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		for i, d := range []time.Duration{time.Minute, time.Hour} {
			r.SetQuiet(uint64(i), false, []QuietChange{{"default", fmt.Sprint(i), &Quiet{Until: time.Now().Add(d)}}})
		}
		time.Sleep(2 * time.Minute)
		r.sweep()
		if len(r.quiet) != 1 {
			t.Errorf("%d quiet entries are kept, want only the one that has not expired", len(r.quiet))
		}
		time.Sleep(time.Hour)
		if q, _ := r.Join(helloOf("a", "mail"), "1", 0, nil).Quiet(); q != nil {
			t.Errorf("a worker that joins after the quiet expired got %+v", q)
		}

		// Quiet workers take tasks again when the time is over, even if nothing else happens.
		r = linked(t, 1).nodes[0]
		synctest.Wait()
		knows := r.Join(helloOf("a", "mail"), "A", 12, nil)
		time.Sleep(KeptFor + 2*sweepEvery)
		if q, _ := knows.Quiet(); q != nil {
			t.Error("a worker that joined with a quiet version never resumes")
		}
		told := r.Join(helloOf("b", "mail"), "B", 0, nil)
		time.Sleep(sweepEvery)
		synctest.Wait()
		r.SetQuiet(20, true, []QuietChange{{"default", "B", &Quiet{Until: time.Now().Add(time.Minute)}}})
		time.Sleep(time.Minute + 2*sweepEvery)
		if q, _ := told.Quiet(); q != nil {
			t.Error("a worker that was notified of a quiet never resumes")
		}
	})
}

// A worker that was told to be quiet and connects to a node that has not applied that yet stays quiet until the node has.
func TestQuietOfUnknownWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet := func(w *Worker) bool { q, _ := w.Quiet(); return q != nil }
		r := New()
		r.SetQuiet(10, true, nil)
		if !quiet(r.Join(helloOf("a", "mail"), "A", 12, nil)) || quiet(r.Join(helloOf("b", "mail"), "B", 9, nil)) {
			t.Error("a node behind the worker's version ignored it, or a node ahead of it did not")
		}
		a, c := r.Join(helloOf("a", "mail"), "A", 12, nil), r.Join(helloOf("c", "mail"), "C", 12, nil)
		r.SetQuiet(11, false, nil)
		r.SetQuiet(11, true, nil)
		if !quiet(a) {
			t.Error("the worker takes tasks before the node has applied the change")
		}
		r.SetQuiet(12, false, []QuietChange{{"default", "A", &Quiet{Until: time.Now().Add(time.Hour), Version: 12}}})
		r.sweep()
		if !quiet(a) || quiet(c) {
			t.Errorf("after the node applied the change a is quiet: %v, c is quiet: %v", quiet(a), quiet(c))
		}

		// Quiet from a cluster that no longer exists does not last for good.
		d := r.Join(helloOf("d", "mail"), "D", 1000, nil)
		e := r.Join(helloOf("e", "mail"), "E", 1000, nil)
		r.SetQuiet(13, false, []QuietChange{{"default", "E", nil}})
		if quiet(e) || !quiet(d) {
			t.Error("the resume did not reach worker e, or also ended the quiet of d")
		}
		time.Sleep(KeptFor)
		r.sweep()
		if quiet(d) {
			t.Error("the worker is quiet forever")
		}
	})
}

func TestMerge(t *testing.T) {
	now := time.Now()
	info := func(name string, seen time.Duration, node string, running int) Info {
		return Info{Hello: Hello{Name: name}, ID: name, Node: node, SeenAt: now.Add(seen), RunningNow: running, Slots: running}
	}
	got := Merge([]Info{info("b", 0, "n1", 1), info("a", 0, "n1", 1), info("a", time.Second, "n2", 2)})
	if len(got) != 2 || got[0].Node != "n2" || got[0].RunningNow != 3 || got[1].Name != "b" {
		t.Errorf("Merge = %+v", got)
	}
}

// The cost of a task that a worker with a stream gets and ends, and of one that a claimer does.
func BenchmarkClaims(b *testing.B) {
	runs := make([]Run, 10)
	for i := range runs {
		runs[i] = run(uint64(i), time.Hour)
	}
	now := time.Now()
	b.Run("stream", func(b *testing.B) {
		w := New().Join(helloOf("a", "mail"), "", 0, nil)
		b.ReportAllocs()
		for b.Loop() {
			w.Took(runs, now)
			for i := range runs {
				w.Ended(runs[i].Task, runs[i].Token)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(runs)), "ns/task")
	})
	b.Run("claimer", func(b *testing.B) {
		r := New()
		hello := helloOf("a", "mail")
		b.ReportAllocs()
		for b.Loop() {
			w := r.Begin(hello)
			w.Took(runs, now)
			w.Done()
			for i := range runs {
				r.Ended(runs[i].Task, runs[i].Token)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(runs)), "ns/task")
	})
}

// A page of 1,000 out of 10,000 workers, each of which runs ten tasks; and a sweep over all.
func BenchmarkTenThousand(b *testing.B) {
	r := New()
	for i := range 10_000 {
		w := r.Join(helloOf(fmt.Sprintf("host-%d/%d", i%500, i), "mail", "default"), "", 0, nil)
		for n := range uint64(10) {
			w.Took([]Run{run(uint64(i)*10+n, time.Hour)}, time.Now())
		}
	}
	b.Run("page", func(b *testing.B) {
		q := Query{Namespace: "default", Limit: 1000, After: Place{Name: "host-25"}}
		b.ReportAllocs()
		for b.Loop() {
			if got := len(r.List(q).Workers); got != 1000 {
				b.Fatal(got)
			}
		}
	})
	b.Run("sweep", func(b *testing.B) {
		for b.Loop() {
			r.sweep()
		}
	})
}

// TestSlotsOfAWorker: a worker that reports its capacity has that many slots, while its tasks end and new ones come, and while it moves
// from one node to another.
func TestSlotsOfAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		h := helloOf("a", "mail")
		h.Capacity = 2
		w := r.Join(h, "A", 0, nil)
		list := func() string { return names(r.List(everybody())) }
		is(t, "before it grants any", list(), "a 0/2")
		w.Slots(2)
		one, two, three := run(1, time.Minute), run(2, time.Minute), run(3, time.Minute)
		w.Took([]Run{one, two}, time.Now())
		is(t, "its slots are in use, and the grant is not yet less", list(), "a 2/2")
		w.Slots(1)
		w.Took([]Run{three}, time.Now())
		is(t, "the end of a task is on its way, the next is there", list(), "a 2/2")
		if c := r.Counts()["default"]; c.Busy != 2 || c.Free != 0 {
			t.Errorf("%d slots are busy and %d are free, want 2 and 0", c.Busy, c.Free)
		}
		w.Ended(one.Task, one.Token)
		w.Ended(two.Task, two.Token)
		is(t, "one runs", list(), "a 1/2")
		if c := r.Counts()["default"]; c.Busy != 1 || c.Free != 1 {
			t.Errorf("%d slots are busy and %d are free, want 1 and 1", c.Busy, c.Free)
		}
		other := New()
		there := other.Join(h, "A", 0, nil)
		there.Took([]Run{run(4, time.Minute), run(5, time.Minute)}, time.Now())
		both := Merge(append(r.List(everybody()).Workers, other.List(everybody()).Workers...))
		is(t, "through two nodes", names(Page{Workers: both}), "a 2/2")
	})
}
