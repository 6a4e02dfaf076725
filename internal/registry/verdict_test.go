package registry

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A verdict about a claimer that was forgotten, came back and was lost again applies to the one that is lost now.
func TestLateReportAboutReturnedClaimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		one, two := run(1, time.Second), run(2, time.Minute)
		first := r.Begin(helloOf("w", "mail"))
		first.Done()
		r.claimers.remove(claimerKey{"default", "w", "10.0.0.1"})
		second := r.Begin(helloOf("w", "mail"))
		second.Done()
		time.Sleep(time.Hour)
		r.leaseExpired(unclearClaim{second, two, time.Now()})
		r.leaseExpired(unclearClaim{first, one, time.Now()})
		if w := r.lost.byKey[first.key]; w != second || len(w.running) != 2 {
			t.Errorf("the earlier worker is the one recorded as lost: %v, with %d tasks", w == first, len(w.running))
		}
	})
}

// Workers that are lost again and again, with much to report, don't fill the memory, and those of one namespace leave room for those of
// others.
func TestLostWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := linked(t, 1)
		r := rs.nodes[0]
		lose := func(ns, name string, runs, types int) {
			h := helloOf(name, "mail")
			h.Namespace = ns
			for i := range types {
				h.Types = append(h.Types, fmt.Sprint(strings.Repeat("t", 200), i))
			}
			w := r.Join(h, name, 0, nil)
			all := make([]Run, runs)
			for i := range all {
				all[i] = run(uint64(i), time.Minute)
				all[i].Since = time.Now().Add(time.Duration(i))
			}
			w.Took(all, time.Now())
			w.Leave(false)
			time.Sleep(time.Millisecond)
		}
		lose("small", "s", 1, 0)
		for i := range maxLost + 50 {
			lose("default", fmt.Sprint(i), 0, 0)
		}
		kept := func(ns, name string) bool {
			return inside(r, func() bool { return r.lost.byKey[key{ns, name}] != nil })
		}
		all := func() int { return len(r.lost.byKey) }
		if n := inside(r, all); n != maxLost || !kept("small", "s") || kept("default", "50") || !kept("default", "51") {
			t.Errorf("%d lost workers are kept; in the small namespace: %v, 50: %v, 51: %v", n, kept("small", "s"), kept("default", "50"),
				kept("default", "51"))
		}

		lose("default", "much", 3*maxLostRuns, 3*maxLostTypes)
		time.Sleep(lostGrace + sweepEvery)
		got := r.List(Query{Namespace: "default", ID: "much", Limit: 1, Lost: true}).Workers[0]
		if got.RunningNow != 3*maxLostRuns || len(got.Running) != maxLostRuns || got.Running[0].Token.Fence != 0 ||
			len(got.Types) != maxLostTypes {
			t.Errorf("the worker held %d tasks, %d of them are listed from fence %d on, and %d types", got.RunningNow, len(got.Running),
				got.Running[0].Token.Fence, len(got.Types))
		}
		for i := range 900 {
			lose("default", fmt.Sprint("much", i), maxLostRuns, maxLostTypes)
		}
		size := inside(r, func() (size int) {
			for _, w := range r.lost.byKey {
				size += w.weight
			}
			return size
		})
		if counted := inside(r, func() int { return r.lost.size }); size != counted || size > maxLostBytes || size < maxLostBytes/2 ||
			!kept("small", "s") {
			t.Errorf("the lost workers have a size of %d, but %d is counted", size, counted)
		}
	})
}

// A worker lost by one node is listed as present if another has seen it since.
func TestMergeOfLostWorkers(t *testing.T) {
	now := time.Now()
	there := func(stream bool, seen time.Duration) Info {
		return Info{Hello: Hello{Name: "w"}, ID: "w", Stream: stream, SeenAt: now.Add(seen), RunningNow: 1}
	}
	lost := func(at time.Duration, running int) Info {
		return Info{Hello: Hello{Name: "w"}, ID: "w", SeenAt: now.Add(at), RunningNow: running, Lost: &Lost{At: now.Add(at)}}
	}
	for name, c := range map[string]struct {
		infos []Info
		lost  bool
		runs  int
	}{
		"a stream elsewhere":       {[]Info{lost(0, 2), there(true, -time.Hour)}, false, 1},
		"a call elsewhere, later":  {[]Info{lost(0, 2), there(false, 1)}, false, 1},
		"a call elsewhere, before": {[]Info{there(false, -1), lost(0, 2)}, true, 2},
		"two nodes lost it":        {[]Info{lost(0, 2), lost(time.Second, 3)}, true, 5},
	} {
		got := Merge(c.infos)
		if len(got) != 1 || (got[0].Lost != nil) != c.lost || got[0].RunningNow != c.runs {
			t.Errorf("%s: Merge = %+v", name, got)
		}
		if c.runs == 5 && !got[0].Lost.At.Equal(now.Add(time.Second)) {
			t.Errorf("%s: lost at %v, want the later time", name, got[0].Lost.At)
		}
	}
}

// While other nodes are asked, a worker may come back and be lost again: their answers are about its earlier absence.
func TestAnswersAboutEarlierAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		r.Join(helloOf("w", "mail"), "W", 0, nil).Leave(false)
		before := r.missed(time.Now())[0]
		time.Sleep(lostGrace)
		w := r.Join(helloOf("w", "mail"), "W", 0, nil)
		w.Leave(false)
		for _, seen := range []bool{true, false} {
			r.judge(&before, seen, time.Now())
			if w.shown || r.lost.byKey[w.key] != w {
				t.Errorf("seen %v: the worker is shown: %v", seen, w.shown)
			}
		}
	})
}
