package quotas

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// A namespace is watched while it has quotas, or its shards may know of some.
func TestWatchedNamespaces(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("a-quota", task.Quotas{Running: 5})
		w.setQuotas("both", task.Quotas{Running: 5})
		w.setRow("both", divisionPart{Shard: 2, Version: 7, Most: task.Amounts{Running: 3}}, divisionPart{Shard: 1, Version: 6,
			Most: task.Amounts{Running: 2}})
		w.setQuotas("lifted", task.Quotas{})
		w.setRow("lifted", divisionPart{Shard: 1, Version: 7, Most: task.Unlimited})
		w.setQuotas("none", task.Quotas{Queues: 5})
		w.remove("removed", task.Quotas{Running: 5})
		w.setRow("removed", divisionPart{Shard: 1, Version: 7, Most: task.Unlimited})
		all, err := w.divider.divisions(bg)
		must(t, err)
		var names []string
		for _, d := range all {
			names = append(names, d.name.Namespace)
		}
		if got := fmt.Sprint(names); got != "[a-quota both lifted]" {
			t.Fatalf("the watched namespaces are %s", got)
		}
		both := all[1]
		if len(both.parts) != 2 || both.parts[0].Version != 6 || both.parts[1].Version != 7 || both.quotas.Running != 5 ||
			both.parts[1].Most.Running != 3 {
			t.Errorf("a division was read as %+v", both)
		}
		if p := all[2].parts[1]; p.Shard != 2 || p.Version != 0 || p.Most != task.Unlimited {
			t.Errorf("a shard that the row does not mention was read as %+v", p)
		}

		w.use(1, "a-quota", func(s *task.Space) { s.Use.Running = 1 })
		w.use(1, "both", func(s *task.Space) { s.Use.Running = 2 })
		w.use(2, "both", func(s *task.Space) { s.Use.Running = 3 })
		w.fail(w.silent, 2, errCut)
		var asking asking
		w.divider.askAll(bg, &asking, all)
		for i, want := range []int64{1, 2, 0} {
			if p := all[i].parts[0]; !p.known || p.space.Use.Running != want {
				t.Errorf("namespace %s: shard 1 answered %+v", all[i].name.Namespace, p)
			}
			if p := all[i].parts[1]; p.known || p.space.Use.Running != 0 {
				t.Errorf("namespace %s: silent shard 2 answered %+v", all[i].name.Namespace, p)
			}
		}
		if asked, _ := w.traffic(); asked != 2 {
			t.Errorf("asking two shards about three namespaces took %d calls", asked)
		}
		w.divider.askAll(bg, &asking, all[1:2])
		if asked, _ := w.traffic(); asked != 2 || !both.parts[0].known {
			t.Errorf("asking two shards about one namespace took %d calls", asked)
		}
	})
}

// pass lets fake time pass, and what is due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// watch runs the divider's watch until the test ends.
func (w *world) watch(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() { w.divider.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// Without quotas nothing is read or asked. From the first quota on, each shard is asked once a second, and shares are divided again only if
// that helps a shard.
func TestWatch(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.watch(t)
		pass(time.Hour)
		if asked, _ := w.traffic(); asked != 0 || w.replica.views != 1 {
			t.Errorf("in an hour without quotas, shards were asked %d times, and rows read %d times, want 0 and 1", asked, w.replica.views)
		}
		w.setQuotas("team", task.Quotas{Backlog: 100})
		w.setQuotas("other", task.Quotas{Backlog: 50})
		w.hold("team", 0, 0)
		w.hold("other", 0, 0)
		must(t, w.divider.Divide(bg, "team"))
		must(t, w.divider.Divide(bg, "other"))
		pass(dividePause + time.Millisecond)
		w.traffic()
		updates := w.Updates
		pass(10 * dividePause)
		if asked, put := w.traffic(); asked != 20 || len(put) > 0 || w.Updates != updates {
			t.Errorf("in ten seconds in which nothing happens, shards were asked %d times and %v got shares, want 20 and none", asked, put)
		}
		w.use(1, "other", func(s *task.Space) { s.Use.Backlog = 25; s.Refused[0]++ })
		pass(dividePause)
		if got := w.backlogs("other", 2); got[0] <= 25 || got[0]+got[1] != 50 || fmt.Sprint(w.backlogs("team", 2)) != "[50 50]" {
			t.Errorf("a second after a refusal in shard 1, shares are %v, and %v of another namespace", got, w.backlogs("team", 2))
		}
		if said := w.log.Take(); said != "" {
			t.Errorf("the log says %q", said)
		}
	})
}

// Quotas are divided although whoever set them left before dividing them.
func TestWatchNoticesQuotas(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.watch(t)
		pass(time.Hour)
		w.setQuotas("team", task.Quotas{Backlog: 100})
		w.hold("team", 0, 0)
		pass(2 * dividePause)
		if got := w.backlogs("team", 2); fmt.Sprint(got) != "[50 50]" {
			t.Errorf("two seconds after the quotas were set, the shares are %v", got)
		}
	})
}

// The watch goes on after rows could not be read or a shard did not answer. It logs once per attempt which division failed.
func TestWatchContinuesAfterErrors(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 100})
		w.hold("team", 0, 0)
		must(t, w.divider.Divide(bg, "team"))
		w.replica.failViews(errCut)
		stop := w.watch(t)
		pass(5*dividePause + time.Millisecond)
		w.replica.failViews(nil)
		w.fail(w.refuses, 2, errCut)
		w.use(1, "team", func(s *task.Space) { s.Use.Backlog = 50; s.Refused[0]++ })
		pass(dividePause)
		if said := w.log.Take(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "namespace=team") ||
			!strings.Contains(said, errCut.Error()) {
			t.Errorf("after a failed division the log says %q", said)
		}
		w.fail(w.refuses, 2, nil)
		pass(dividePause)
		if got := w.backlogs("team", 2); got[0] <= 50 || got[0]+got[1] != 100 {
			t.Errorf("after the shard has answered, shares are %v", got)
		}
		puts := 0
		w.setOnPut(func(ctx context.Context, _ uint32) error {
			w.mu.Lock()
			puts++
			w.mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		})
		w.use(2, "team", func(s *task.Space) { s.Use.Backlog = w.space(2, "team").Share.Backlog; s.Refused[0]++ })
		pass(dividePause)
		stop()
		if said := w.log.Take(); puts == 0 || said != "" {
			t.Errorf("stopped during a division, after %d shares, the log says %q", puts, said)
		}
	})
}

// One shard hangs, answers but takes no shares, or is slow. Ninety namespaces short of room in one shard get what another does not need, at
// the next check. Quotas that are changed meanwhile do not wait for a division of others.
func TestDivisionsBesideAFaultyShard(t *testing.T) {
	for _, fault := range []string{"hangs", "takes no shares", "is slow"} {
		for faulty := uint32(1); faulty <= 3; faulty++ {
			inBubble(t, 3, func(t *testing.T, w *world) {
				var names []string
				for i := range 90 {
					ns := fmt.Sprint("team", i)
					names = append(names, ns)
					w.setQuotas(ns, task.Quotas{Backlog: 100})
					w.hold(ns, 0, 0, 0)
					must(t, w.divider.Divide(bg, ns))
				}
				w.watch(t)
				pass(5 * dividePause)
				lag, limit := time.Hour, askTimeout
				if fault != "hangs" {
					limit *= 3 // it is asked, and then sent a share once or twice
				}
				if fault == "is slow" {
					lag = askTimeout - 10*time.Millisecond
				}
				wait := func(ctx context.Context, shard uint32) error {
					if shard == faulty {
						system.Sleep(ctx, lag)
					}
					return ctx.Err()
				}
				if fault != "takes no shares" {
					w.setOnAsk(wait)
				}
				var putting atomic.Int64
				w.setOnPut(func(ctx context.Context, shard uint32) error {
					if shard == faulty {
						defer putting.Add(-1)
						if n := putting.Add(1); n > parallel.Limit+2 { // those of Run, and of two callers
							t.Errorf("shard %d %s: it is sent %d shares at a time", faulty, fault, n)
						}
					}
					return wait(ctx, shard)
				})
				short := faulty%3 + 1
				for _, ns := range names {
					w.use(short, ns, func(s *task.Space) { s.Use.Backlog = s.Share.Backlog; s.Refused[0]++ })
				}
				pass(2*dividePause + dividePause/2)
				for _, ns := range names {
					if got := w.share(short, ns).Backlog; got <= 34 {
						t.Errorf("shard %d %s: shard %d has a share of %d of namespace %s", faulty, fault, short, got, ns)
					}
				}
				var waits sync.WaitGroup
				waits.Go(func() { _ = w.divider.Divide(bg, names[0]) }) // for the shard
				defer waits.Wait()
				synctest.Wait()
				began := time.Now()
				w.setQuotas(names[1], task.Quotas{Backlog: 80})
				_ = w.divider.Divide(bg, names[1])
				if took := time.Since(began); took > limit {
					t.Errorf("shard %d %s: a change of quotas took %v", faulty, fault, took)
				}
			})
		}
	}
}

// A shard that always answers late takes part all the same.
func TestLateAnswersCount(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 100})
		w.hold("team", 0, 0)
		must(t, w.divider.Divide(bg, "team"))
		late := func(_ context.Context, shard uint32) error {
			if shard == 2 {
				time.Sleep(askTimeout - 1)
			}
			return nil
		}
		w.setOnAsk(late)
		w.setOnPut(late)
		w.watch(t)
		w.use(2, "team", func(s *task.Space) { s.Use.Backlog = 50; s.Refused[0]++ })
		pass(2 * (askTimeout + 3*dividePause))
		if got := w.backlogs("team", 2); got[1] <= 50 {
			t.Errorf("the shares are %v, with 50 in use in a shard that answers late", got)
		}
	})
}

// After a recovery, a shard may have a share from a later round than any of the system shard, or one that is on its way to it. The next
// ones are newer.
func TestSharesAreNewerAfterARecovery(t *testing.T) {
	for name, newest := range map[string]func(w *world){
		"a shard has it":   func(w *world) { w.use(2, "default", func(s *task.Space) { s.Share.Version = 1 << 60 }) },
		"it is on its way": func(w *world) { w.setRow("default", divisionPart{Shard: 1, Version: 1 << 60}, divisionPart{Shard: 2}) },
	} {
		inBubble(t, 2, func(t *testing.T, w *world) {
			w.setQuotas("default", task.Quotas{Running: 4})
			w.hold("default", 1, 1)
			newest(w)
			must(t, w.divider.Divide(bg, "default"))
			for shard := range uint32(2) {
				if share := w.share(shard+1, "default"); share.Version <= 1<<60 || share.Running != 2 {
					t.Errorf("%s: shard %d has %+v, want two tasks in a version after %d", name, shard+1, share, 1<<60)
				}
			}
		})
	}
}

// What a shard has is enough unless it is short of room: work was refused since the last look, or little of what it should get is left.
func TestShortOfBacklog(t *testing.T) {
	type shard struct{ has, use int64 }
	for _, c := range []struct {
		name    string
		shards  []shard // they want 85 and 15 of 100, with 40 and 0 in use
		refused [2]uint64
		want    bool
	}{
		{"half of what it needs", []shard{{50, 40}, {50, 0}}, [2]uint64{}, true},
		{"just enough left", []shard{{51, 40}, {49, 0}}, [2]uint64{}, false},
		{"enough left", []shard{{60, 40}, {40, 0}}, [2]uint64{}, false},
		{"more than it should have", []shard{{90, 40}, {10, 0}}, [2]uint64{}, false},
		{"it refused work", []shard{{60, 40}, {40, 0}}, [2]uint64{1, 0}, true},
		{"the other, with more than it should have, refused work", []shard{{60, 40}, {40, 0}}, [2]uint64{0, 1}, false},
		{"it refused work, and has what it should", []shard{{85, 40}, {15, 0}}, [2]uint64{1, 1}, false},
		{"nothing left, and nothing to get", []shard{{40, 40}, {60, 0}}, [2]uint64{}, true},
	} {
		d := parting(0, [2]int64{0, 9}, [2]int64{0, 9})
		d.quotas.Backlog = 100
		for i, s := range c.shards {
			p := &d.parts[i]
			p.space.Share.Backlog, p.space.Use.Backlog, p.space.Refused[0] = s.has, s.use, c.refused[i]
		}
		seen := map[spaceName][3]uint64{}
		if got := d.needsDivision(seen); got != c.want {
			t.Errorf("%s: needsDivision = %t", c.name, got)
		}
		if c.refused != [2]uint64{} && d.needsDivision(seen) {
			t.Errorf("%s: an earlier refusal has shares divided again", c.name)
		}
	}
	synctest.Test(t, func(t *testing.T) { // waiting tasks take slots only
		d := parting(0, [2]int64{0, 9}, [2]int64{0, 9})
		d.quotas.Backlog = 42
		d.parts[0].space.Use.Backlog, d.parts[0].space.Share.Backlog, d.parts[1].space.Share.Backlog = 40, 40, 2
		if d.needsDivision(map[spaceName][3]uint64{}) {
			t.Error("a backlog that is one or two short, without refusals, has shares divided again")
		}
	})
}

// A shard without a free slot is short of slots as soon as a task waits.
func TestShortOfSlots(t *testing.T) {
	for _, c := range []struct {
		name string
		use  [2]int64 // running and ready tasks in the first of two shards; it has 4 slots of 10
		want bool
	}{
		{"one waits for a slot", [2]int64{4, 1}, true}, {"none waits", [2]int64{4, 0}, false},
		{"one waits, and a slot is free", [2]int64{3, 1}, false}, {"more run than there are slots", [2]int64{5, 1}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			awaitTurn(2, 1) // the remainder is the other's
			d := parting(10, c.use, [2]int64{})
			for i, n := range []int64{4, 6} {
				d.parts[i].space.Share.Running = n
			}
			if got := d.needsDivision(map[spaceName][3]uint64{}); got != c.want {
				t.Errorf("%s: needsDivision = %t, where it should have %v", c.name, got, d.shareOut())
			}
		})
	}
}

// What was seen of a queue is forgotten when it is gone, and of a shard that is silent is not.
func TestSeenOfQueuesThatAreGone(t *testing.T) {
	a, b := task.SpaceName{Namespace: "default", Queue: "a"}, task.SpaceName{Namespace: "default", Queue: "b"}
	seen := map[spaceName][3]uint64{{a, 1}: {1}, {a, 2}: {2}, {b, 1}: {3}}
	forgetGone(seen, []*division{{name: a, parts: make([]shardPart, 2)}})
	if want := map[spaceName][3]uint64{{a, 1}: {1}, {a, 2}: {2}}; !maps.Equal(seen, want) {
		t.Errorf("without queue b, %v is seen, want %v", seen, want)
	}
}

// Shares are sent again to a shard that does not use the last one, and not to one that is silent. What it had refused
// before no longer counts when it answers again.
func TestUnsettledShards(t *testing.T) {
	for unsettled := range 3 {
		d := parting(9, [2]int64{}, [2]int64{}, [2]int64{})
		for i := range d.parts {
			p := &d.parts[i]
			p.space.Share.Running, p.Most.Running = 3, 3
		}
		p := &d.parts[unsettled]
		p.space.Share.Version, p.Version = 1, 2
		seen := map[spaceName][3]uint64{}
		if !d.needsDivision(seen) {
			t.Errorf("shard %d of 3 does not use its share, and nothing is sent to it", unsettled+1)
		}
		p.space.Share.Version = 2
		if d.needsDivision(seen) {
			t.Errorf("shard %d of 3 uses its share, and is sent another", unsettled+1)
		}
		answer := p.space
		p.known, p.space = false, task.Space{}
		if d.needsDivision(seen) {
			t.Errorf("shard %d of 3 is silent, and is sent a share", unsettled+1)
		}
		p.known, p.space = true, answer
		p.space.Refused[2], p.space.Share.Running = 5, 2
		if !d.needsDivision(seen) {
			t.Error("a refusal is no reason to divide again")
		}
		answer = p.space
		p.known, p.space = false, task.Space{}
		_ = d.needsDivision(seen)
		p.known, p.space = true, answer
		if d.needsDivision(seen) {
			t.Error("a shard that was silent has shares divided again because of a refusal that was seen before")
		}
	}
}

// Shard 1 uses 6 of a share of 1, since the quota was lowered to 6. Its tasks end, and shard 2 gets the room, while shard 1 keeps its
// share. What shard 1 answered before, however late the answer comes, must not raise its share.
func TestAnswersFromBeforeADivisionDoNotCount(t *testing.T) {
	for _, late := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, w *world) {
			w.setQuotas("team", task.Quotas{Running: 6})
			var row []divisionPart
			for i, running := range []int64{1, 0, 1} {
				to := task.Unlimited
				to.Running = running
				row = append(row, divisionPart{Shard: uint32(i) + 1, Version: 7, Most: to}) // #nosec G115 -- a few
				w.use(row[i].Shard, "team", func(s *task.Space) { s.Queues, s.Share = 1, task.Share{Version: 7, Amounts: to} })
			}
			row[0].Most.Running = 6
			w.setRow("team", row...)
			w.use(1, "team", func(s *task.Space) { s.Use.Running, s.Ready = 6, 9 })
			w.use(2, "team", func(s *task.Space) { s.Ready = 9 })
			w.fail(w.silent, 2, errCut)
			all, err := w.divider.divisions(bg)
			must(t, err)
			var asking asking
			w.divider.askAll(bg, &asking, all)
			if late {
				for i, p := range all[0].parts {
					asking.answers[all[0].question(i)] = p.space
					asking.pending[p.Shard] = true // or it would be asked again
				}
			}
			w.fail(w.silent, 2, nil)
			w.use(1, "team", func(s *task.Space) { s.Use.Running, s.Ready = 1, 0 })
			w.use(3, "team", func(s *task.Space) { s.Use.Running = 1 })
			must(t, w.divider.Divide(bg, "team"))
			if got := w.running("team", 3); fmt.Sprint(got) != "[1 4 1]" {
				t.Fatalf("after the tasks of shard 1 have ended, the shares are %v", got)
			}
			w.fail(w.refuses, 3, errCut)
			if late {
				all, err = w.divider.divisions(bg)
				must(t, err)
				w.divider.askAll(bg, &asking, all)
			}
			_ = w.divider.divide(bg, task.SpaceName{Namespace: "team"}, 0, all[0].answers)
			if got := w.running("team", 3); got[0]+got[1]+got[2] > 6 {
				t.Errorf("after a division by old answers, late: %t, the shares of 6 are %v", late, got)
			}
		})
	}
}

// What a shard answered before it was sent another share, however late the answer comes, decides no division: since then, it may have got
// its first queue, and its tasks would be refused.
func TestAnswersFromBeforeAShareDoNotCount(t *testing.T) {
	for _, late := range []bool{false, true} {
		inBubble(t, 2, func(t *testing.T, w *world) {
			w.setQuotas("team", task.Quotas{Backlog: 100})
			w.hold("team", 0)
			must(t, w.divider.Divide(bg, "team"))
			all, err := w.divider.divisions(bg)
			must(t, err)
			var asking asking
			w.divider.askAll(bg, &asking, all)
			if late {
				asking.answers[all[0].question(1)] = all[0].parts[1].space
				asking.pending[2] = true // or it would be asked again
			}
			must(t, w.divider.EnsureShare(bg, "team", 2))
			w.use(2, "team", func(s *task.Space) { s.Queues = 1 })
			if late {
				all, err = w.divider.divisions(bg)
				must(t, err)
				w.divider.askAll(bg, &asking, all)
			}
			must(t, w.divider.divide(bg, task.SpaceName{Namespace: "team"}, 0, all[0].answers))
			if got := w.backlogs("team", 2); got[1] == 0 || got[0]+got[1] > 100 {
				t.Errorf("after a division by old answers, late: %t, the shares are %v", late, got)
			}
		})
	}
}
