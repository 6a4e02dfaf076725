package registry

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// The memory that a node uses for its workers does not grow unnoticed.
func TestLimitsAreStable(t *testing.T) {
	for name, c := range map[string]struct{ is, was int }{
		"claimers": {maxClaimers, 10_000}, "counted queues": {maxCountedQueues, 1000}, "tasks in a list": {listRuns, 10},
		"tasks of one": {oneRuns, 1000}, "lost workers": {maxLost, 1000}, "tasks of a lost one": {maxLostRuns, 100},
		"types of a lost one": {maxLostTypes, 100}, "who ended": {maxLeft, 10_000}, "claims": {maxHeld, 100_000},
		"callers in a tally": {maxTallied, 20_000}, "sets of types": {maxTypeSets, 1000}, "types in sets": {maxTypesOfSets, 20_000},
		"groups": {maxGroups, 20_000},
	} {
		if c.is != c.was {
			t.Errorf("the limit of %s is %d, want %d", name, c.is, c.was)
		}
	}
}

// A namespace takes a place from another only if the other then still has no fewer.
func TestRoomForClaimers(t *testing.T) {
	for _, c := range []struct {
		most, ours int
		room       bool
	}{{4, 2, true}, {3, 2, false}, {3, 3, false}, {2, 0, true}, {1, 0, false}} {
		all := newClaimers()
		for ns, n := range map[string]int{"most": c.most, "ours": c.ours} {
			for i := range n {
				all.add(claimerKey{namespace: ns, name: fmt.Sprint(i)}, &Worker{key: key{namespace: ns}})
			}
		}
		out := all.makeRoom("ours")
		if (out != nil) != c.room || out != nil && (out.key.namespace != "most" || len(all.of["most"]) != c.most-1) {
			t.Errorf("from a namespace with %d claimers, one with %d takes a place: %v", c.most, c.ours, out != nil)
		}
		for by := range all.all() {
			all.remove(by)
		}
		if all.remove(claimerKey{namespace: "none"}); all.size != 0 || len(all.of) != 0 {
			t.Errorf("after all claimers were removed %d are counted in %d namespaces", all.size, len(all.of))
		}
	}
}

// When all places are taken and a namespace has its share, a new claimer is not listed, and none is removed.
func TestNoRoomForAnother(t *testing.T) {
	r := New()
	for i := range maxClaimers {
		r.Begin(helloOf(fmt.Sprint(i), "mail")).Done()
	}
	w := r.Begin(helloOf("new", "mail"))
	if got := r.List(Query{Namespace: "default", ID: w.ID(), Limit: 1}).Workers; len(got) != 0 {
		t.Errorf("a claimer without a place is listed: %+v", got)
	}
}

// What claimers hold is counted once per task, whichever holds it now.
func TestClaimsAreCountedOnce(t *testing.T) {
	r := New()
	a, b := r.Begin(helloOf("a", "mail")), r.Begin(helloOf("b", "mail"))
	one, two := run(1, time.Hour), run(2, time.Hour)
	count := func(what string, want, of int) {
		t.Helper()
		if n := r.heldOf["default"]; n != want || len(r.heldBy) != want || len(r.heldOf) != of {
			t.Errorf("%s: %d of %d tasks are counted for the namespace, want %d; tasks are counted for %d namespaces",
				what, n, len(r.heldBy), want, len(r.heldOf))
		}
	}
	a.Took([]Run{one, two}, a.since)
	b.Took([]Run{one}, b.since)
	count("taken twice", 2, 1)
	a.unlist()
	if count("the second has its own", 1, 1); r.holder(one.Task) != b {
		t.Error("the first claimer's end removed the task that the second one holds")
	}
	b.unlist()
	count("both have gone", 0, 0)
	r.Join(helloOf("s", "mail"), "S", 0, nil).Took([]Run{one}, b.since)
	count("of a stream", 0, 0)
}

// A claim is identified by its id and token: an unknown id has no token, not even an empty one.
func TestUnknownClaims(t *testing.T) {
	r := New()
	w := r.Begin(helloOf("w", "mail"))
	w.Took([]Run{run(1, time.Hour)}, w.since)
	gone, unknown := run(1, 0), run(2, 0).Task
	if w.Ended(unknown, task.Token{}) {
		t.Error("Ended succeeded for a task that the worker never had")
	}
	w.Taken(unknown, task.Token{}, true)
	w.Extended(unknown, task.Token{}, time.Now().Add(time.Hour))
	if len(w.expired) != 0 || len(w.running) != 1 {
		t.Errorf("of unknown tasks %d expired, and the worker runs %d more", len(w.expired), len(w.running)-1)
	}
	w.Ended(gone.Task, gone.Token)
	if run, ok := r.Holding(gone.Task, task.Token{}); ok {
		t.Errorf("Holding still returns %+v, which has ended", run)
	}
	r.LeaseOver(unknown, task.Token{}, task.StaleExpired)
	if len(r.expired) != 0 {
		t.Errorf("LeaseOver of a lease that nobody watches was recorded: %+v", r.expired)
	}
}

// Claims of unknown outcome are bounded, in number and in time.
func TestUnknownOutcomesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		w := r.Begin(helloOf("w", "mail"))
		r.addUnclear(unclearClaim{w, run(0, 0), time.Now()})
		r.unwatched(time.Now())
		for i := range maxHeld + 10 {
			r.addUnclear(unclearClaim{w, run(uint64(i)+1, 0), time.Now()})
		}
		if n := len(r.unclear) + len(r.toWatch); n != maxHeld {
			t.Errorf("%d unclear claims are kept, want %d", n, maxHeld)
		}
		r.toWatch = nil
		r.LeaseOver(run(0, 0).Task, run(0, 0).Token, task.StaleCompleted)
		if len(r.unclear) != 0 {
			t.Error("a claim whose end was reported is still unclear")
		}
		r.addUnclear(unclearClaim{w, run(0, 0), time.Now()})
		for i, want := range []int{1, 0} {
			_, old := r.unwatched(time.Now().Add(unclearFor + time.Duration(i)))
			if len(r.unclear) != want || len(old) != 1-want {
				t.Errorf("%v and %dns after the lease %d unclear claims are kept and %d are old, want %d", unclearFor, i,
					len(r.unclear), len(old), want)
			}
		}
	})
}

// Lost workers are kept once each, and their total size is known.
func TestSizeOfLostWorkers(t *testing.T) {
	l := newLostWorkers()
	of := func(id string, weight int) *Worker { return &Worker{key: key{"default", id}, weight: weight} }
	l.add(of("a", maxLostBytes-1))
	if l.add(of("a", maxLostBytes)); len(l.byKey) != 1 || len(l.of["default"]) != 1 || l.size != maxLostBytes {
		t.Errorf("a worker that was lost twice is kept %d times, with a size of %d", len(l.of["default"]), l.size)
	}
	if l.add(of("b", 1)); len(l.byKey) != 1 || l.byKey[key{"default", "b"}] == nil || l.size != 1 {
		t.Errorf("%d lost workers are kept, with a size of %d", len(l.byKey), l.size)
	}
	w := &Worker{r: New(), hello: Hello{Name: "1", Host: "22", Version: "333", Queues: []Share{{Queue: "4444"}}, Types: []string{"55555"}},
		running: map[task.ID]Run{{}: {Type: "666666", Queue: "7777777"}}}
	if w.lose(Lost{}); w.weight != 300+1+2+3+40+4+16+5+250+6+7 {
		t.Errorf("the weight is %d", w.weight)
	}
}

// Workers that have left or were lost are forgotten when their time is over, and not before.
func TestGoneWorkersAreForgotten(t *testing.T) {
	r := New()
	now := time.Now()
	ended, lost := r.Join(helloOf("a", "mail"), "A", 0, nil), r.Join(helloOf("b", "mail"), "B", 0, nil)
	ended.Leave(true)
	lost.Leave(false)
	r.left[ended.key], lost.lost.At = now, now
	for _, after := range []time.Duration{time.Second, leftFor} {
		if r.missed(now.Add(after)); len(r.left) != 1 {
			t.Errorf("a worker that left properly is forgotten after %v", after)
		}
	}
	if r.missed(now.Add(leftFor + 1)); len(r.left) != 0 {
		t.Error("a worker that left properly is remembered too long")
	}
	a := Absence{Namespace: "default", ID: "B", Since: now}
	for i, shown := range []bool{false, true} {
		if r.judge(&a, false, now.Add(lostGrace-1+time.Duration(i))); lost.shown != shown {
			t.Errorf("%v after it was lost the worker is shown: %v", lostGrace-1+time.Duration(i), lost.shown)
		}
	}
	if r.judge(&a, false, now); !lost.shown { // one of its leases has ended since
		t.Error("a lost worker is no longer shown")
	}
	if n := len(r.missed(now.Add(LostFor - 1))); n != 1 {
		t.Errorf("%d workers are missed, want 1", n)
	}
	if n := len(r.missed(now.Add(LostFor))); n != 0 {
		t.Errorf("%d workers are missed after their time is over, want none", n)
	}
	r.judge(&a, true, now) // it has left in the meantime
	late := r.Join(helloOf("b", "mail"), "B", 0, nil)
	late.Leave(false)
	if n := len(r.missed(late.lost.At.Add(LostFor + 1))); n != 0 {
		t.Errorf("%d workers are missed after their time is over, want none", n)
	}
}

// Run sleeps as long as nothing can expire.
func TestRunSleeps(t *testing.T) {
	one := key{"default", "A"}
	for what, c := range map[string]struct {
		say    func(*Registry)
		passes bool
	}{
		"nothing":             {func(*Registry) {}, false},
		"a stream":            {func(r *Registry) { r.Join(helloOf("a"), "A", 0, nil) }, false},
		"a stream with words": {func(r *Registry) { r.Join(helloOf("a"), "A", 1, nil) }, true},
		"a claimer":           {func(r *Registry) { r.Begin(helloOf("a")) }, true},
		"a word":              {func(r *Registry) { r.quiet[one] = Quiet{} }, true},
		"who has left":        {func(r *Registry) { r.left[one] = time.Now() }, true},
		"who is lost":         {func(r *Registry) { r.lost.add(&Worker{key: one}) }, true},
		"new doubts":          {func(r *Registry) { r.toWatch = make([]unclearClaim, 1) }, true},
		"doubts":              {func(r *Registry) { r.unclear[task.ClaimID{}] = unclearClaim{} }, true},
		"old and new doubts":  {func(r *Registry) { r.unclear[task.ClaimID{}], r.toWatch = unclearClaim{}, make([]unclearClaim, 1) }, true},
		"doubts and verdicts": {func(r *Registry) { r.unclear[task.ClaimID{}], r.expired = unclearClaim{}, make([]unclearClaim, 1) }, true},
	} {
		r := New()
		if c.say(r); r.hasTimed() != c.passes {
			t.Errorf("%s: hasTimed = %v", what, !c.passes)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := linked(t, 1).nodes[0]
		time.Sleep(time.Hour)
		if swept := inside(r, func() bool { return !r.swept.IsZero() }); swept {
			t.Error("the registry swept although it has nothing that expires")
		}
	})
}

// However many claimers come, a sweep runs at most once a second.
func TestSweepsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		r.Begin(helloOf("w", "mail")).Done()
		time.Sleep(KeptFor)
		if r.sweep(); r.claimers.size != 1 {
			t.Errorf("the claimer is forgotten after only %v", KeptFor)
		}
		time.Sleep(time.Second - 1)
		if r.sweep(); r.claimers.size != 1 {
			t.Error("the registry swept twice in a second")
		}
		time.Sleep(time.Nanosecond)
		if r.sweep(); r.claimers.size != 0 {
			t.Error("the registry did not sweep after a second")
		}
	})
}
