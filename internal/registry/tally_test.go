package registry

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

func queueNames(namespace string, names ...string) (queues []QueueName) {
	for _, name := range names {
		queues = append(queues, QueueName{namespace, name})
	}
	return queues
}

// workersText renders what is known of the workers of a queue.
func workersText(w task.QueueWorkers) string {
	groups := []string{fmt.Sprint(w.Workers)}
	for _, g := range w.Groups {
		types := strings.Join(g.Types, "+")
		if g.Untold {
			types = "?"
		}
		s := fmt.Sprintf("%s: %d (%d/%d) and %d", types, g.Connected, g.Busy, g.Slots, g.Callers)
		if g.Quiet > 0 {
			s += fmt.Sprintf(", %d quiet, as %s/%s", g.Quiet, g.QuietID, g.Named)
		}
		if g.Draining > 0 {
			s += fmt.Sprintf(", %d draining", g.Draining)
		}
		groups = append(groups, s)
	}
	if w.Held > 0 {
		groups = append(groups, fmt.Sprintf("%d held", w.Held))
	}
	return strings.Join(groups, "; ")
}

// Workers are counted by the types that they take. One that claims through two nodes counts once; one that is quiet, drains, or belongs to
// another namespace takes nothing, and is reported as such.
func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n1, n2 := New(), New()
		typed := func(name string, types []string, queues ...string) Hello {
			h := helloOf(name, queues...)
			h.Types, h.Capacity = types, 4
			return h
		}
		a := n1.Join(typed("a", nil, "mail", "sms"), "A", 0, nil)
		a.Took([]Run{run(1, time.Hour), run(2, time.Hour)}, time.Now())
		n2.Join(typed("b", []string{"y", "x"}, "mail"), "B", 0, nil)
		n1.Join(typed("bb", []string{"x", "y"}, "mail"), "BB", 0, nil)
		c := n2.Join(typed("c", []string{"x", "y"}, "mail"), "C", 0, nil)
		c.Took([]Run{run(9, time.Hour)}, time.Now())
		c.Drains()
		for _, name := range []string{"e", "d"} {
			quiet := n2.Join(typed(name, nil, "mail"), strings.ToUpper(name), 0, nil)
			quiet.setQuiet(&Quiet{Version: 1})
			quiet.Took([]Run{run(3, time.Hour)}, time.Now())
		}
		other := helloOf("f", "mail")
		other.Namespace = "other"
		n1.Join(other, "F", 0, nil)
		for _, n := range []*Registry{n1, n2} {
			n.Begin(helloOf("g", "mail")).Done()
		}
		n2.Begin(helloOf("h", "video")).Done()
		queues := append(queueNames("default", "mail", "none", "sms", "video"), QueueName{"other", "mail"})
		all := func(nodes ...*Registry) (out string) {
			tallies := make([]Tally, len(nodes))
			for i, n := range nodes {
				tallies[i] = n.Tally(queues)
			}
			for i, w := range Sum(tallies, len(queues)) {
				out += "\n" + queues[i].Namespace + " " + queues[i].Name + " " + workersText(w)
			}
			return out
		}
		is(t, "both nodes", all(n1, n2), `
default mail 4; : 1 (2/4) and 1, 2 quiet, as D/d; x+y: 2 (0/8) and 0, 1 draining; 3 held
default none 0
default sms 1; : 1 (2/4) and 0
default video 1; : 0 (0/0) and 1
other mail 1; : 1 (0/0) and 0`)
		is(t, "one", all(n1), `
default mail 3; : 1 (2/4) and 1; x+y: 1 (0/4) and 0
default none 0
default sms 1; : 1 (2/4) and 0
default video 0
other mail 1; : 1 (0/0) and 0`)
		is(t, "none", fmt.Sprint(Sum(nil, 1)), fmt.Sprint([]task.QueueWorkers{{}}))

		n1.Begin(helloOf("i", "sms")) // keeps waiting
		time.Sleep(KeptFor + time.Second)
		queues = queueNames("default", "mail", "sms", "video")
		is(t, "when those who claimed by single calls have gone, and nobody has swept", all(n1, n2), `
default mail 3; : 1 (2/4) and 0, 2 quiet, as D/d; x+y: 2 (0/8) and 0, 1 draining; 3 held
default sms 2; : 1 (2/4) and 1
default video 0`)
	})
}

// A quiet worker that claims by single calls may call any node, and still counts once.
func TestQuietCallersAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := []*Registry{New(), New(), New()}
		for i, n := range nodes {
			for _, name := range []string{"a", "b", "c"}[:i+1] { // a comes to all, c to the last only
				w := n.Begin(helloOf(name, "mail"))
				w.setQuiet(&Quiet{Version: 1})
				w.Done()
			}
			n.Join(helloOf("s", "mail"), fmt.Sprint("S", i), 0, nil).setQuiet(&Quiet{Version: 1})
		}
		var tallies []Tally
		for _, n := range nodes {
			tallies = append(tallies, n.Tally(queueNames("default", "mail")))
		}
		sum := Sum(tallies, 1)[0]
		if len(sum.Groups) != 1 || sum.Groups[0].Quiet != 6 || sum.Workers != 0 {
			t.Errorf("the sum is %s; want 6 quiet: three callers and a stream on each of three nodes", workersText(sum))
		}
	})
}

// A caller that extends a lease or ends a task counts as present, however long ago it claimed.
func TestActiveCallersArePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		w := r.Begin(helloOf("w", "mail"))
		long := run(1, time.Hour)
		w.Took([]Run{long, run(2, time.Hour)}, time.Now())
		w.Done()
		there := func(what string, want int) {
			t.Helper()
			if n := Sum([]Tally{r.Tally(queueNames("default", "mail"))}, 1)[0].Workers; n != want {
				t.Errorf("%s: %d workers are present, want %d", what, n, want)
			}
		}
		time.Sleep(KeptFor - time.Second)
		r.Extended(long.Task, long.Token, time.Now().Add(time.Hour))
		time.Sleep(KeptFor - time.Second)
		there("it has extended a lease", 1)
		r.Ended(long.Task, long.Token)
		time.Sleep(KeptFor - time.Second)
		there("it has ended a task", 1)
		r.Ended(long.Task, long.Token)                               // that is over
		r.Extended(long.Task, long.Token, time.Now().Add(time.Hour)) // so is this
		time.Sleep(2 * time.Second)
		there("it has gone", 0)
	})
}

// A node reports how far back it remembers callers that claim by single calls: since its start, or since it had to forget one.
func TestTallyReportsSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := New()
		time.Sleep(time.Hour)
		young := New()
		time.Sleep(time.Minute)
		known := func(what string, want time.Duration, of ...*Registry) {
			t.Helper()
			var tallies []Tally
			for _, r := range of {
				tallies = append(tallies, r.Tally(queueNames("default", "q")))
			}
			if got := Sum(tallies, 1)[0].Known; got != want {
				t.Errorf("%s: callers are known for %s, want %s", what, got, want)
			}
		}
		known("an old one", time.Hour+time.Minute, old)
		known("a young one, and an old one", time.Minute, young, old)
		known("an old one, and a young one", time.Minute, old, young)
		for i := range maxClaimers {
			old.Begin(helloOf(fmt.Sprint("w", i), "q")).Done()
		}
		known("one that is full", time.Hour+time.Minute, old)
		time.Sleep(time.Second)
		old.Begin(helloOf("one too many", "q")).Done()
		known("one that has forgotten somebody", 0, old)
		time.Sleep(time.Second)
		known("a moment later", time.Second, old)
	})
}

// Workers may name any queues and types, and a tally stays small: beyond its bounds they are still counted.
func TestTallyOfMany(t *testing.T) {
	r := New()
	var queues []string
	for i := range maxTallied/1000 + 5 {
		queues = append(queues, fmt.Sprint("q", i))
	}
	for i := range 1000 {
		h := helloOf(fmt.Sprint("w", i), queues...)
		h.Types = []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}
		r.Begin(h).Done()
		r.Join(helloOf("s", queues...), fmt.Sprint("s", i), 0, nil)
	}
	many := helloOf("many", queues...)
	for i := range maxTypesOfSets {
		many.Types = append(many.Types, fmt.Sprint("type", i))
	}
	r.Join(many, "many", 0, nil)
	tally := r.Tally(queueNames("default", queues...))
	callers, groups := 0, 0
	for _, of := range tally.Queues {
		groups += len(of)
		for i := range of {
			callers += len(of[i].Callers)
		}
	}
	if callers != maxTallied || len(tally.Types) > maxTypeSets || groups > maxGroups+len(queues) {
		t.Errorf("the tally has %d callers, in %d groups with %d sets of types", callers, groups, len(tally.Types))
	}
	for i, w := range Sum([]Tally{tally}, len(queues)) {
		untold := 0
		for _, g := range w.Groups {
			if g.Untold {
				untold += g.Connected + g.Callers
			}
		}
		if w.Workers != 2001 || untold == 0 {
			t.Errorf("queue %d: %d workers, want 2001; %d of them without their types", i, w.Workers, untold)
		}
	}
	for i := range maxTypeSets + 1 {
		h := helloOf("t", "sets")
		h.Types = []string{fmt.Sprint(i)}
		r.Join(h, fmt.Sprint("t", i), 0, nil)
	}
	tally = r.Tally(queueNames("default", "sets"))
	if w := Sum([]Tally{tally}, 1)[0]; len(tally.Types) != maxTypeSets || w.Workers != maxTypeSets+1 || !w.Groups[0].Untold ||
		w.Groups[0].Connected != 1 {
		t.Errorf("%d sets of types for %d workers, the first group is %+v", len(tally.Types), w.Workers, w.Groups[0])
	}
}

// What quiet workers hold counts for the queue of the task, as long as its lease lasts.
func TestHeldByQuietWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := func(what string, want int64, hello Hello, stream bool, runs ...Run) {
			t.Helper()
			r := New()
			w := r.Begin(hello)
			if stream {
				w = r.Join(hello, "W", 0, nil)
			}
			w.Took(runs, time.Now())
			w.setQuiet(&Quiet{Version: 1})
			time.Sleep(time.Minute)
			tally := r.Tally(queueNames("default", "mail", "sms"))
			got := Sum([]Tally{tally}, 2)
			if got[0].Held != want || got[1].Held != 0 || hello.Queues[0].Queue != "mail" && got[0].Groups != nil {
				t.Errorf("%s: %+v, want %d tasks held by quiet workers", what, got, want)
			}
		}
		many := helloOf("w", "mail")
		for i := range maxTypesOfSets + 1 {
			many.Types = append(many.Types, fmt.Sprint(i))
		}
		elsewhere := run(2, time.Hour)
		elsewhere.Queue = "video"
		held("its own", 1, helloOf("w", "mail"), true, run(1, time.Hour))
		held("of another queue", 1, helloOf("w", "mail"), true, run(1, time.Hour), elsewhere)
		held("of more types than are told", 1, many, true, run(1, time.Hour))
		held("of one that takes others now", 0, helloOf("w", "video"), true, run(1, time.Hour))
		held("of a caller whose lease is over", 1, helloOf("w", "mail"), false, run(1, time.Hour), run(2, time.Second))
	})
}

// The bounds of a tally, one by one.
func TestBoundsOfTally(t *testing.T) {
	types := func(n, from int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("t", from+i))
		}
		return all
	}
	for _, c := range []struct{ first, second, third, at int }{{maxTypesOfSets, 1, 0, 0}, {maxTypesOfSets - 1, 1, 1, 2},
		{maxTypesOfSets + 1, 1, 1, 1}} {
		tl := &tallier{sets: map[string]int{}}
		one := tl.set(types(c.first, 0))
		if again := tl.set(types(c.first, 0)); again != one {
			t.Errorf("the same types have the indexes %d and %d", one, again)
		}
		if at := tl.set(types(c.second, c.first)); at != c.at {
			t.Errorf("after %d types the index of the next set is %d, want %d", c.first, at, c.at)
		}
		if c.at == 2 && tl.set(types(c.third, c.first+1)) != 0 {
			t.Error("a set of types over the limit got an index")
		}
	}

	tl := &tallier{groups: map[[2]int]*Group{}}
	for i := range maxGroups {
		tl.group(i, 1)
	}
	for i := range 3 {
		if g := tl.group(i, 2); g.Types != 0 || tl.groups[[2]int{i, 0}] != g {
			t.Errorf("a group over the limit is %+v", g)
		}
	}
	if tl.group(3, 1).Types != 1 || len(tl.groups) != maxGroups+3 {
		t.Errorf("the tally has %d groups", len(tl.groups))
	}

	tl.listed = maxTallied - 1
	g := &Group{}
	for _, id := range []string{"b", "a", "c"} {
		tl.add(g, &Worker{key: key{"default", strings.Repeat(id, 24)}, hello: Hello{Name: id}, quiet: &Quiet{}})
	}
	if len(g.QuietCallers) != 1 || g.Quiet != 2 || g.Named != "a" || g.QuietID != strings.Repeat("a", 24) {
		t.Errorf("three quiet callers are reported as %+v", g)
	}
}

// Nodes of other releases may report less, and refer to groups that this one does not know.
func TestSumsOfForeignTallies(t *testing.T) {
	quiet := func(id string) Tally { return Tally{Queues: [][]Group{{{QuietID: id, Named: id, MoreCallers: 1}}}} }
	sum := Sum([]Tally{quiet("b"), quiet("a"), quiet("c"), quiet(""), {}}, 2)
	if g := sum[0].Groups; len(g) != 1 || g[0].QuietID != "a" || g[0].Named != "a" || g[0].Callers != 4 || sum[0].Workers != 4 ||
		sum[1].Groups != nil {
		t.Errorf("got %+v", sum)
	}
	sum = Sum([]Tally{{Queues: [][]Group{{{Types: 2}}}, Types: [][]string{{"x"}}}}, 1)
	if !sum[0].Groups[0].Untold {
		t.Errorf("a missing set of types is reported as %+v", sum[0].Groups[0])
	}
}

func BenchmarkTally(b *testing.B) {
	r := New()
	var queues []string
	for i := range 1000 {
		queues = append(queues, fmt.Sprint("q", i))
	}
	for i := range 10_000 {
		h := helloOf(fmt.Sprint("w", i), queues[i%995:i%995+5]...)
		h.Types = []string{"mail", "sms", "push", "report", "invoice"}
		r.Join(h, fmt.Sprint(i), 0, nil)
	}
	names := queueNames("default", queues...)
	b.ReportAllocs()
	for b.Loop() {
		Sum([]Tally{r.Tally(names)}, len(names))
	}
}
