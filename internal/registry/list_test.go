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

// A page ends when its workers fill a message.
func TestPagesAreBounded(t *testing.T) {
	i := Info{Hello: Hello{Name: "1", Host: "22", Version: "333", Queues: []Share{{Queue: "4444"}}, Types: []string{"55555"}},
		Running: make([]Run, 2)}
	if got := i.size(); got != 300+1+2+3+4+8+5+2+400 {
		t.Errorf("the size is %d", got)
	}
	for size, want := range map[int]int{maxPageBytes / 3: 3, maxPageBytes/3 - 1: 4, maxPageBytes - 1: 2, maxPageBytes + 1: 1} {
		r := New()
		for n := range 6 {
			h := Hello{Namespace: "default", Name: fmt.Sprint(n)}
			h.Types = []string{strings.Repeat("t", size-(&Info{Hello: Hello{Name: "1", Types: []string{""}}}).size())}
			r.Join(h, "", 0, nil)
		}
		if page := r.List(everybody()); len(page.Workers) != want || !page.More {
			t.Errorf("a page has %d workers of %d bytes, want %d; more: %v", len(page.Workers), size, want, page.More)
		}
	}
}

func TestQueries(t *testing.T) {
	r := New()
	typed := func(name string, types ...string) *Worker {
		h := helloOf(name, "mail")
		h.Types = types
		return r.Join(h, strings.ToUpper(name), 0, nil)
	}
	a := typed("a")
	typed("b", "x")
	typed("c", "y", "z")
	r.Join(helloOf("idle"), "", 0, nil)
	for i := range uint64(listRuns + 2) {
		a.Took([]Run{run(i, time.Hour)}, a.since)
	}
	for want, q := range map[string]Query{
		"a 12/12, b 0/0, c 0/0, idle 0/0": {},
		"a 12/12, b 0/0, c 0/0":           {Queue: "mail"},
		"a 12/12, b 0/0":                  {Type: "x"},
		"a 12/12, c 0/0":                  {Type: "z", Queue: "mail"},
		"":                                {Type: "z", Queue: "sms"},
		"c 0/0, idle 0/0":                 {After: Place{"b", "B"}},
		"idle 0/0":                        {After: Place{"c", "C"}},
	} {
		q.Namespace, q.Limit = "default", 100
		is(t, fmt.Sprintf("%+v", q), names(r.List(q)), want)
	}
	for id, want := range map[string]int{"": listRuns, "A": listRuns + 2} {
		if got := r.List(Query{Namespace: "default", ID: id, Limit: 1}).Workers[0]; len(got.Running) != want {
			t.Errorf("List with id %q returns %d running tasks, want %d", id, len(got.Running), want)
		}
	}
	q := everybody()
	q.Scope = task.Scope{Queues: []string{"ma*"}}
	if got := r.List(q).Workers[0]; got.Hidden {
		t.Errorf("the worker has hidden tasks or queues: %+v", got)
	}
}

// With each call a claimer names the queues it takes from. It is present while a call runs, and gone when it has made none for long.
func TestClaimersInLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		h := helloOf("w", "mail")
		w := r.Begin(h)
		time.Sleep(time.Minute)
		if got := r.List(everybody()).Workers[0]; !got.SeenAt.Equal(time.Now()) {
			t.Errorf("a claimer in a call was last seen at %v, want now", got.SeenAt)
		}
		earlier := everybody()
		earlier.Began = time.Now().Add(time.Nanosecond)
		is(t, "in a call that began before the namespace", names(r.List(earlier)), "w 0/0")
		w.Done()
		is(t, "of an earlier namespace", names(r.List(earlier)), "")
		earlier.Began = time.Now()
		is(t, "of the namespace", names(r.List(earlier)), "w 0/0")
		h.Types = []string{"a"}
		r.Begin(h).Done()
		is(t, "what it takes now", names(r.List(Query{Namespace: "default", Type: "b", Limit: 1})), "")
		w.Took([]Run{run(1, KeptFor)}, time.Now())
		time.Sleep(KeptFor)
		there := func(what string, want int) {
			t.Helper()
			workers := 0
			if c := r.Counts()["default"]; c != nil {
				workers = c.Workers["mail"]
			}
			if n := len(r.List(everybody()).Workers); n != want || workers != want {
				t.Errorf("%s: %d workers are listed, and %d are counted, want %d", what, n, workers, want)
			}
		}
		there("at the end of its time", 1)
		time.Sleep(time.Nanosecond)
		there("behind it", 0)

		// A worker with a stream learns from its shards what became of its tasks.
		s := r.Join(helloOf("s", "mail"), "S", 0, nil)
		s.Took([]Run{run(2, time.Second)}, time.Now())
		time.Sleep(time.Hour)
		is(t, "long behind a lease", names(r.List(everybody())), "s 1/1")
		small := helloOf("t", "mail")
		small.Capacity = 1
		r.Join(small, "T", 0, nil).Took([]Run{run(3, time.Hour), run(4, time.Hour)}, time.Now())
		is(t, "with one slot", names(r.List(everybody())), "s 1/1, t 1/1")
	})
}

// The id of a claimer is the same on every node of every release, so that quiet ones stay quiet.
func TestIDsOfClaimersStay(t *testing.T) {
	if got := (claimerKey{"default", "w", "10.0.0.1"}).id(); got != "32e96da034e8b0c430579b88" {
		t.Errorf("the id of a claimer is %s", got)
	}
	if got := (key{"default", "0123456789abcdef01234567"}).short(); got != 0x0123456789abcdef {
		t.Errorf("the short form of the id is %x", got)
	}
}

// Several nodes report one worker, in any order.
func TestMergeListsWorkersOnce(t *testing.T) {
	now := time.Now()
	quiet, other := &Quiet{Version: 1}, &Quiet{Version: 2}
	info := func(name string, seen time.Duration) Info {
		return Info{Hello: Hello{Name: name, Capacity: 1}, ID: name, SeenAt: now.Add(seen), ConnectedAt: now, Slots: 1, RunningNow: 1,
			Node: seen.String()}
	}
	with := func(i Info, say func(*Info)) Info { say(&i); return i }
	for what, c := range map[string]struct {
		infos []Info
		want  Info // of the first
	}{
		"as one of two says": {[]Info{info("w", 1), info("w", 0)}, info("w", 1)},
		"hidden at the first": {[]Info{with(info("w", 1), func(i *Info) { i.Hidden = true }), info("w", 0)},
			with(info("w", 1), func(i *Info) { i.Hidden = true })},
		"hidden at the second": {[]Info{info("w", 1), with(info("w", 0), func(i *Info) { i.Hidden = true })},
			with(info("w", 1), func(i *Info) { i.Hidden = true })},
		"quiet at the first": {[]Info{with(info("w", 1), func(i *Info) { i.Quiet = quiet }), with(info("w", 0), func(i *Info) {
			i.Quiet = other
		})},
			with(info("w", 1), func(i *Info) { i.Quiet = quiet })},
		"quiet at the second": {[]Info{info("w", 1), with(info("w", 0), func(i *Info) { i.Quiet = quiet })},
			with(info("w", 1), func(i *Info) { i.Quiet = quiet })},
		"it was known before": {[]Info{info("w", 1), with(info("w", 0), func(i *Info) { i.ConnectedAt = now.Add(-1) })},
			with(info("w", 1), func(i *Info) { i.ConnectedAt = now.Add(-1) })},
		"and later": {[]Info{info("w", 1), with(info("w", 0), func(i *Info) { i.ConnectedAt = now.Add(1) })}, info("w", 1)},
		"a stream came when it came": {[]Info{with(info("w", 1), func(i *Info) { i.Stream = true }), with(info("w", 0), func(i *Info) {
			i.ConnectedAt = now.Add(-1)
		})},
			with(info("w", 1), func(i *Info) { i.Stream = true })},
		"one that runs nothing": {[]Info{with(info("w", 1), func(i *Info) { i.RunningNow = 0 }), with(info("w", 0), func(i *Info) {
			i.RunningNow = 0
		})},
			with(info("w", 1), func(i *Info) { i.RunningNow = 0 })},
		"it says no slots": {[]Info{with(info("w", 1), func(i *Info) { i.Capacity = 0 }), info("w", 0)},
			with(info("w", 1), func(i *Info) { i.Capacity, i.Slots, i.RunningNow = 0, 2, 2 })},
		"seen there": {[]Info{info("w", 1), with(info("w", 2), func(i *Info) { i.Lost = &Lost{At: now} })}, info("w", 1)},
	} {
		for range 2 {
			slices.Reverse(c.infos)
			got := Merge(append(slices.Clone(c.infos), info("x", 0), info("x", 1), info("x", 2)))
			c.want.Running = got[0].Running
			if len(got) != 2 || got[0].Name != "w" || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", c.want) || got[1].Node != "2ns" {
				t.Errorf("%s: merged to %+v, want %+v", what, got, c.want)
			}
		}
	}
}
