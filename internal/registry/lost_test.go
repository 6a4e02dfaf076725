package registry

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// registries are the registries of a cluster's nodes, which ask each other.
type registries struct {
	t     *testing.T
	nodes []*Registry
	// ends is how claims whose leases are over ended, by task. Other claims are not reported.
	ends map[task.ID]string
	cut  bool // no node can reach another

	mu      sync.Mutex
	watched map[task.ClaimID]bool // and not reported
}

func linked(t *testing.T, n int) *registries {
	rs := &registries{t: t, ends: map[task.ID]string{}, watched: map[task.ClaimID]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	for range n {
		r := New()
		rs.nodes = append(rs.nodes, r)
		go r.Run(ctx, Links{
			Elsewhere: func(_ context.Context, missed []Absence) []bool {
				if len(missed) == 0 {
					t.Error("other nodes are asked about no workers")
				}
				return rs.elsewhere(r, missed)
			},
			Watch: func(_ string, id task.ID, t task.Token) {
				if reason := rs.ends[id]; reason != "" {
					r.LeaseOver(id, t, reason)
					return
				}
				rs.mu.Lock()
				defer rs.mu.Unlock()
				rs.watched[task.ClaimID{Task: id, Token: t}] = true
			},
			Unwatch: func(id task.ID, t task.Token) {
				rs.mu.Lock()
				defer rs.mu.Unlock()
				delete(rs.watched, task.ClaimID{Task: id, Token: t})
			},
		})
	}
	t.Cleanup(func() { stop(); synctest.Wait() })
	return rs
}

// inside evaluates look with the registry's lock held.
func inside[T any](r *Registry, look func() T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	return look()
}

func (rs *registries) elsewhere(of *Registry, missed []Absence) []bool {
	seen := make([]bool, len(missed))
	for _, r := range rs.nodes {
		if r == of || rs.cut {
			continue
		}
		for i, yes := range r.Seen(missed) {
			seen[i] = seen[i] || yes
		}
	}
	return seen
}

// list returns all workers of all nodes, including lost ones and what they held.
func (rs *registries) list() string {
	q := everybody()
	q.Lost = true
	var all []Info
	for _, r := range rs.nodes {
		all = append(all, r.List(q).Workers...)
	}
	var out []string
	for _, w := range Merge(all) {
		s := fmt.Sprintf("%s %d", w.Name, w.RunningNow)
		if w.Lost != nil {
			s += " lost " + w.Lost.Reason
			for i, run := range w.Running {
				if i < 5 {
					s += fmt.Sprintf(" #%d", run.Token.Fence)
				}
			}
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func (rs *registries) expect(what, want string) {
	rs.t.Helper()
	synctest.Wait()
	is(rs.t, what, rs.list(), want)
}

// A worker whose stream ends without notice is lost: not immediately, as most come back, and for an hour.
func TestLostStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		r := rs.nodes[0]
		began := time.Now()
		w := r.Join(helloOf("w", "mail"), "W", 0, nil)
		w.Slots(1)
		w.Took([]Run{run(1, time.Minute), run(2, time.Minute)}, time.Now())
		time.Sleep(time.Second)
		w.Leave(false)
		rs.expect("at once", "")
		time.Sleep(lostGrace - time.Second)
		rs.expect("before the grace is over", "")
		time.Sleep(sweepEvery + time.Second)
		rs.expect("then", "w 2 lost disconnected #1 #2")
		got := r.List(Query{Namespace: "default", ID: "W", Limit: 1, Lost: true}).Workers[0]
		if !got.Lost.At.Equal(began.Add(time.Second)) || !got.SeenAt.Equal(began) || got.Stream {
			t.Errorf("the worker was lost at %v, seen at %v, connected: %v", got.Lost.At, got.SeenAt, got.Stream)
		}
		is(t, "for who does not ask for lost ones", names(r.List(everybody())), "")
		is(t, "of another queue", names(r.List(Query{Namespace: "default", Queue: "sms", Limit: 9, Lost: true})), "")
		is(t, "of another namespace", names(r.List(Query{Namespace: "other", Limit: 9, Lost: true})), "")
		if c := r.Counts()["default"]; c != nil {
			t.Errorf("a lost worker is counted: %+v", c)
		}
		if sum := Sum([]Tally{r.Tally([]QueueName{{"default", "mail"}})}, 1)[0]; sum.Workers != 0 || len(sum.Groups) != 0 || sum.Held != 0 {
			t.Errorf("a lost worker counts as a worker of its queue: %+v", sum)
		}
		time.Sleep(LostFor - 30*time.Second)
		rs.expect("most of an hour later", "w 2 lost disconnected #1 #2")
		there := r.Join(helloOf("there", "mail"), "", 0, nil)
		is(t, "only those that are lost", names(r.List(Query{Namespace: "default", Limit: 9, Lost: true, OnlyLost: true})), "w 2/3")
		there.Leave(true)
		time.Sleep(30 * time.Second)
		rs.expect("an hour later", "")
		time.Sleep(2 * leftFor)
		synctest.Wait()
		if inside(r, func() int { return len(r.lost.byKey) + len(r.lost.of) + r.lost.size + len(r.heldBy) }) != 0 || r.hasTimed() {
			t.Error("the registry still keeps something of the lost worker")
		}
	})
}

// The grace period has its length, however often the registry is swept.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		rs.nodes[0].Begin(helloOf("c", "mail"))
		w := rs.nodes[0].Join(helloOf("w", "mail"), "W", 0, nil)
		time.Sleep(sweepEvery - time.Second)
		w.Leave(false)
		time.Sleep(lostGrace - time.Second)
		rs.expect("after one sweep", "c 0")
		time.Sleep(sweepEvery)
		rs.expect("after the next", "c 0, w 0 lost disconnected")
	})
}

// A worker that ends properly is not lost; one that does but still holds tasks is, until it reports how they ended.
func TestProperEnds(t *testing.T) {
	for name, c := range map[string]struct {
		drains, closes, holds, tells bool
		want                         string
	}{
		"closes":                               {closes: true},
		"drains, and the connection breaks":    {drains: true},
		"breaks":                               {want: "w 0 lost disconnected"},
		"closes, and holds a task":             {closes: true, holds: true, want: "w 1 lost disconnected #1"},
		"drains, and holds a task":             {drains: true, holds: true, want: "w 1 lost disconnected #1"},
		"breaks, and tells how its task ended": {holds: true, tells: true, want: "w 0 lost disconnected"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rs := linked(t, 1)
				w := rs.nodes[0].Join(helloOf("w", "mail"), "W", 0, nil)
				one := run(1, time.Minute)
				if c.holds {
					w.Took([]Run{one}, time.Now())
				}
				if c.drains {
					w.Drains()
				}
				w.Leave(c.closes)
				if c.tells {
					rs.nodes[0].Ended(one.Task, one.Token)
				}
				time.Sleep(lostGrace + sweepEvery)
				rs.expect("then", c.want)
				for range maxLeft + 1 {
					rs.nodes[0].Join(helloOf("other", "mail"), "", 0, nil).Leave(true)
				}
				r := rs.nodes[0]
				left := func() int { return len(r.left) }
				if n := inside(r, left); n != maxLeft {
					t.Errorf("%d workers that left properly are remembered, want at most %d", n, maxLeft)
				}
				time.Sleep(leftFor + 2*sweepEvery)
				if n := inside(r, left); n != 0 {
					t.Errorf("%d workers that left properly are still remembered", n)
				}
			})
		})
	}
}

// A worker that drains and reports the end of its last tasks by single calls has ended properly.
func TestEndsReportedByCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		w := rs.nodes[0].Join(helloOf("w", "mail"), "W", 0, nil)
		one, two := run(1, time.Minute), run(2, time.Minute)
		w.Took([]Run{one, two}, time.Now())
		w.Drains()
		w.Leave(true)
		many := rs.nodes[0].Join(helloOf("many", "mail"), "M", 0, nil)
		for i := range uint64(2 * maxLostRuns) {
			many.Took([]Run{run(100+i, time.Minute)}, time.Now())
		}
		many.Leave(true)
		rs.nodes[0].Ended(one.Task, one.Token)
		rs.nodes[0].Ended(two.Task, one.Token) // of another claim
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("with one task left", "many 200 lost disconnected #100 #101 #102 #103 #104, w 1 lost disconnected #2")
		rs.nodes[0].Ended(two.Task, two.Token)
		time.Sleep(sweepEvery)
		rs.expect("with none", "many 200 lost disconnected #100 #101 #102 #103 #104")
	})
}

// A worker that comes back, to whichever node, is not lost, and has the tasks that it says it still holds.
func TestLostWorkerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 2)
		here, there := rs.nodes[0], rs.nodes[1]
		one, two := run(1, time.Hour), run(2, time.Hour)
		breaks := func() *Worker {
			w := here.Join(helloOf("w", "mail"), "W", 0, nil)
			w.Took([]Run{one, two}, time.Now())
			w.Leave(false)
			return w
		}

		breaks()
		time.Sleep(lostGrace / 2)
		again := here.Join(helloOf("w", "mail"), "W", 0, nil)
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("at the same node", "w 0")
		if n := inside(here, func() int { return len(here.heldBy) }); n != 0 {
			t.Errorf("%d tasks are still held by the lost worker", n)
		}
		again.Extended(one.Task, one.Token, time.Now().Add(time.Hour))
		again.Extended(two.Task, one.Token, time.Now().Add(time.Hour)) // of another claim
		rs.expect("with what it still holds", "w 1")
		again.Ended(one.Task, one.Token)
		rs.expect("until that ends", "w 0")
		again.Extended(one.Task, one.Token, time.Now().Add(time.Hour))
		rs.expect("and no longer", "w 0")
		again.Leave(true)

		breaks()
		time.Sleep(lostGrace / 2)
		again = there.Join(helloOf("w", "mail"), "W", 0, nil)
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("at another node", "w 0")
		kept := func(r *Registry) int { return inside(r, func() int { return len(r.lost.byKey) }) }
		if kept(here) != 0 {
			t.Error("the first node still keeps the worker as lost")
		}
		again.Leave(true)
		time.Sleep(LostFor / 2)
		rs.expect("when it has ended there", "")

		// It may have come and gone before the first node asks.
		breaks()
		there.Join(helloOf("w", "mail"), "W", 0, nil).Leave(true)
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("when it ended soon there", "")

		// It is listed once, by the node that lost it last.
		breaks()
		time.Sleep(time.Second)
		last := there.Join(helloOf("w", "mail"), "W", 0, nil)
		last.Took([]Run{run(7, time.Hour)}, time.Now())
		last.Leave(false)
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("lost there", "w 1 lost disconnected #7")
		if kept(here) != 0 || kept(there) != 1 {
			t.Errorf("the worker is kept as lost %d and %d times, want only on the node that lost it last", kept(here), kept(there))
		}

		// Later too, and also while the nodes can't reach each other: the list asks both.
		rs.cut = true
		here.Join(helloOf("w", "mail"), "W", 0, nil)
		rs.expect("when it comes back late", "w 0")
	})
}

// Tasks whose leases end while a worker is silent count as held; those whose leases end while it is alive do not.
func TestLeasesEndBeforeTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		one, two, three, four := run(1, time.Second), run(2, time.Second), run(3, time.Second), run(4, time.Second)
		w := rs.nodes[0].Join(helloOf("w", "mail"), "W", 0, nil)
		w.Took([]Run{one, two, three, four}, time.Now())
		seen := time.Now()
		w.Taken(one.Task, one.Token, true)
		w.Saw(time.Now())
		time.Sleep(time.Second)
		w.Taken(two.Task, one.Token, true) // of another claim
		w.Taken(three.Task, three.Token, true)
		w.Taken(four.Task, four.Token, false) // cancelled
		if got := rs.nodes[0].List(everybody()).Workers[0]; !got.SeenAt.Equal(seen) || got.RunningNow != 1 {
			t.Errorf("the worker was seen at %v and runs %d tasks, want %v and 1", got.SeenAt, got.RunningNow, seen)
		}
		w.Leave(false)
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("then", "w 2 lost disconnected #2 #3")

		v := rs.nodes[0].Join(helloOf("w", "mail"), "W", 0, nil)
		for i := range uint64(maxLostRuns + 50) {
			v.Took([]Run{run(i, time.Second)}, time.Now())
			v.Taken(run(i, 0).Task, run(i, 0).Token, true)
		}
		if len(v.expired) != maxLostRuns {
			t.Errorf("%d tasks with expired leases are kept, want at most %d", len(v.expired), maxLostRuns)
		}
		v.Leave(true)
		u := rs.nodes[0].Join(helloOf("u", "mail"), "U", 0, nil)
		u.Took([]Run{run(1, time.Second), run(2, time.Hour)}, time.Now())
		u.Taken(one.Task, one.Token, true)
		u.Leave(true)
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("it closes, and has told of none", "u 2 lost disconnected #1 #2, w 100 lost disconnected #0 #1 #2 #3 #4")
	})
}

// A worker that claims by single calls is lost when one of its leases ends and it has made no call since.
func TestLostClaimer(t *testing.T) {
	type act func(rs *registries, w *Worker, one, two Run)
	sleep := func(d time.Duration) act { return func(*registries, *Worker, Run, Run) { time.Sleep(d) } }
	again := func(node int) act {
		return func(rs *registries, _ *Worker, _, _ Run) { rs.nodes[node].Begin(helloOf("w", "mail")).Done() }
	}
	for name, c := range map[string]struct {
		acts []act
		ends [2]string
		want string
	}{
		"both leases end":    {ends: [2]string{task.StaleExpired, task.StaleExpired}, want: "w 2 lost lease_lost #1 #2"},
		"one lease ends":     {ends: [2]string{task.StaleExpired, ""}, want: "w 1 lost lease_lost #1"},
		"both end elsewhere": {ends: [2]string{task.StaleCompleted, ""}, want: "w 0"},
		"one is cancelled":   {ends: [2]string{task.StaleCancelled, ""}, want: "w 0"},
		"it calls in time": {acts: []act{sleep(20 * time.Second), again(0)}, ends: [2]string{task.StaleExpired, ""},
			want: "w 1 lost lease_lost #1"},
		"it calls afterwards":  {acts: []act{sleep(31 * time.Second), again(0)}, ends: [2]string{task.StaleExpired, ""}, want: "w 0"},
		"it calls another one": {acts: []act{sleep(40 * time.Second), again(1)}, ends: [2]string{task.StaleExpired, ""}, want: "w 0"},
		"it calls late": {acts: []act{sleep(80 * time.Second), again(0)}, ends: [2]string{task.StaleExpired, task.StaleExpired},
			want: "w 0"},
		"it waits elsewhere": {acts: []act{sleep(20 * time.Second), func(rs *registries, _ *Worker, _, _ Run) {
			rs.nodes[1].Begin(helloOf("w", "mail"))
		}},
			ends: [2]string{task.StaleExpired, ""}, want: "w 0"},
		"it had called another one": {acts: []act{again(1)}, ends: [2]string{task.StaleExpired, ""}, want: "w 1 lost lease_lost #1"},
		"it tells in time": {acts: []act{func(rs *registries, _ *Worker, one, two Run) {
			rs.nodes[0].Ended(one.Task, one.Token)
			rs.nodes[0].Ended(two.Task, two.Token)
		}}, ends: [2]string{task.StaleExpired, task.StaleExpired}, want: "w 0"},
		"it waits in a call": {acts: []act{func(rs *registries, _ *Worker, _, _ Run) { rs.nodes[0].Begin(helloOf("w", "mail")) }},
			ends: [2]string{task.StaleExpired, task.StaleExpired}, want: "w 0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rs := linked(t, 2)
				one, two := run(1, 30*time.Second), run(2, 30*time.Second)
				for i, id := range []task.ID{one.Task, two.Task} {
					rs.ends[id] = c.ends[i]
				}
				began := time.Now()
				w := rs.nodes[0].Begin(helloOf("w", "mail"))
				w.Took([]Run{one, two}, time.Now())
				w.Done()
				for _, act := range c.acts {
					act(rs, w, one, two)
				}
				time.Sleep(100*time.Second - time.Since(began))
				rs.expect("then", c.want)
				r := rs.nodes[0]
				if n := inside(r, func() int { return len(r.lost.byKey) }); n != strings.Count(c.want, "lost lease_lost") {
					t.Errorf("%d lost workers are kept", n)
				}
				if _, ok := r.Holding(one.Task, one.Token); ok {
					t.Error("Holding returns a task whose lease is over")
				}
				q := everybody()
				q.Lost = true
				for _, i := range rs.nodes[0].List(q).Workers {
					if i.Lost != nil && !i.Lost.At.Equal(began.Add(30*time.Second)) {
						t.Errorf("the worker was lost after %v, want the end of its lease", i.Lost.At.Sub(began))
					}
				}
				if sum := Sum([]Tally{rs.nodes[0].Tally([]QueueName{{"default", "mail"}})}, 1)[0]; strings.Contains(c.want, "lost") &&
					sum.Workers != 0 {
					t.Errorf("a lost worker counts as a worker of its queue: %+v", sum)
				}
				time.Sleep(LostFor + KeptFor)
				if strings.Contains(name, "waits") {
					return
				}
				rs.expect("long after", "")
				if n := inside(r, func() int {
					return len(r.unclear) + len(r.heldBy) + len(r.expired) + len(r.toWatch) +
						r.claimers.size
				}); n != 0 {
					t.Errorf("%d unclear claims, tasks and claimers are still kept", n)
				}
				if n := len(rs.watched); n != 0 {
					t.Errorf("%d claims are still watched", n)
				}
			})
		})
	}
}

// A task that runs longer than a claimer is listed is not forgotten.
func TestLostClaimerOfALongTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		one := run(1, time.Hour)
		rs.ends[one.Task] = task.StaleExpired
		w := rs.nodes[0].Begin(helloOf("w", "mail"))
		w.Took([]Run{one}, time.Now())
		w.Done()
		time.Sleep(KeptFor + time.Minute)
		rs.expect("while the lease lasts", "")
		time.Sleep(time.Hour)
		rs.expect("then", "w 1 lost lease_lost #1")
	})
}

// A late report about a claim is weighed against what is known by then.
func TestLateReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		r := rs.nodes[0]
		short, long, other := run(1, 30*time.Second), run(2, 40*time.Second), run(3, time.Second)
		w := r.Begin(helloOf("w", "mail"))
		w.Took([]Run{short, long}, time.Now())
		w.Done()
		time.Sleep(time.Minute)
		r.LeaseOver(long.Task, other.Token, task.StaleExpired)
		time.Sleep(sweepEvery)
		rs.expect("by the token of another claim", "w 0")
		r.LeaseOver(long.Task, long.Token, task.StaleExpired)
		time.Sleep(sweepEvery)
		r.LeaseOver(short.Task, short.Token, task.StaleExpired)
		time.Sleep(sweepEvery)
		rs.expect("in any order", "w 2 lost lease_lost #1 #2")
		if got := inside(r, func() time.Time { return r.lost.byKey[w.key].lost.At }); !got.Equal(long.LeaseUntil) {
			t.Errorf("the worker was lost at %v, want the end of the last lease, %v", got, long.LeaseUntil)
		}
		if size := inside(r, func() int { return r.lost.size - w.weight }); size != 0 {
			t.Errorf("the total size is off by %d bytes", size)
		}
		again := r.Begin(helloOf("w", "mail"))
		again.Done()
		if again != w {
			t.Error("the worker came back as another one")
		}
		if inside(r, func() bool { return w.shown || w.lost != nil }) {
			t.Error("the worker came back, but is still shown as lost")
		}

		// It is lost again, with what it holds now. The later lease is reported last.
		short, long = run(5, 20*time.Second), run(6, 40*time.Second)
		w.Took([]Run{short, long}, time.Now())
		if _, ok := r.Holding(short.Task, short.Token); !ok {
			t.Error("Holding does not find a task claimed since the worker came back")
		}
		time.Sleep(time.Minute)
		r.LeaseOver(short.Task, short.Token, task.StaleExpired)
		time.Sleep(sweepEvery)
		r.LeaseOver(long.Task, long.Token, task.StaleExpired)
		time.Sleep(sweepEvery)
		rs.expect("lost again", "w 2 lost lease_lost #5 #6")
		if got := inside(r, func() time.Time { return w.lost.At }); !got.Equal(long.LeaseUntil) {
			t.Errorf("the worker was lost at %v, want the end of the last lease, %v", got, long.LeaseUntil)
		}
		r.Begin(helloOf("w", "mail")).Done()

		// It was forgotten when its lease ended, and came back before that was reported.
		time.Sleep(LostFor)
		hour := run(4, time.Hour)
		old := r.Begin(helloOf("w", "mail"))
		old.Took([]Run{hour}, time.Now())
		old.Done()
		time.Sleep(time.Hour + sweepEvery + leaseGrace)
		if again := r.Begin(helloOf("w", "mail")); again == old {
			t.Fatal("the claimer was not forgotten")
		} else {
			again.Done()
		}
		r.LeaseOver(hour.Task, hour.Token, task.StaleExpired)
		time.Sleep(2 * sweepEvery)
		rs.expect("one that came back", "w 0")
	})
}

// A worker with a stream may have chosen the id of one without, and is not mistaken for it.
func TestIDsOfStreamsAndClaimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		r := rs.nodes[0]
		id := claimerKey{"default", "c", "10.0.0.1"}.id()
		r.Join(helloOf("w", "mail"), id, 0, nil).Leave(false)
		r.Begin(helloOf("c", "mail")).Done()
		time.Sleep(lostGrace + sweepEvery)
		rs.expect("both", "c 0, w 0 lost disconnected")
	})
}
