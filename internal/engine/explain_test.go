package engine_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// explainStep explains a task, or a queue, and checks that this changes nothing.
func (s *story) explainStep(d *datadriven.TestData) string {
	what := d.CmdArgs[0].Key
	if d.Cmd == "explain" {
		carried := func(task.ID) explain.Delivery {
			return explain.Delivery{Tries: int64(number(arg(d, "tried"))), Error: arg(d, "met")}
		} // what the sender has seen
		e, err := unchanged(s, func(r *engine.Round) (*explain.Explanation, error) {
			return explain.Task(r, "default", s.id(what), s.takers, carried)
		})
		if err != nil {
			return answer(err, "")
		}
		return fmt.Sprintf("%s %s\n%s", what, e.State, s.reasons(e.Reasons))
	}
	g, err := unchanged(s, func(r *engine.Round) (*explain.Memory, error) { return explain.MemoryOf(r, "default", what, s.takers) })
	if err != nil {
		return answer(err, "")
	}
	e, err := explain.Queue(s.Store, "default", what, g)
	if err != nil {
		return answer(err, "")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ready %d, claimable %d, claimed %d, waiting %d", e.Ready, e.Claimable, e.Claimed, e.Waiting)
	if e.NextDue != 0 {
		fmt.Fprintf(&b, ", next due in %s", e.NextDue.Sub(s.Now))
	}
	if e.OldestReady != 0 {
		fmt.Fprintf(&b, ", oldest ready for %s", s.Now.Sub(e.OldestReady))
	}
	fmt.Fprintf(&b, "\n%s", s.reasons(e.Reasons))
	for _, k := range e.Keys {
		fmt.Fprintf(&b, "key %s: %d, %s\n", k.Key, k.Tasks, k.Code)
	}
	for _, t := range e.Idle {
		fmt.Fprintf(&b, "nobody takes %s: %d\n", t.Type, t.Tasks)
	}
	if i, err := engine.Run(s.World, func(r *engine.Round) (engine.QueueInfo, error) {
		return engine.DescribeQueue(r, "default",
			what)
	}); err != nil || i.Held != e.Ready-e.Claimable {
		fmt.Fprintf(&b, "but the queue has %d held (%v)\n", i.Held, err)
	}
	return b.String()
}

// asksStep sets the claims that the leader has seen for a queue: the lines are "types waiting|ago worker [called]",
// called for single calls. No lines: there never was one. Without this command a claim for all types is waiting.
func (s *story) asksStep(d *datadriven.TestData) string {
	t := explain.Workers{Since: s.Now.Add(-duration(arg(d, "since"))), Draining: d.HasArg("draining")}
	for line := range strings.Lines(d.Input) {
		f := append(strings.Fields(line), "")
		a := explain.Poll{Last: s.Now, Waiting: f[1] == "waiting", Worker: f[2]}
		if f[0] != "any" {
			a.Types = strings.Split(f[0], ",")
		}
		if !a.Waiting {
			a.Last = s.Now.Add(-duration(f[1]))
		}
		if slices.Contains(f, "called") {
			a.Called, a.Caller = a.Last, f[2]
		}
		t.Polls = append(t.Polls, a)
	}
	s.asks = &t
	return fmt.Sprintf("%d asked", len(t.Polls))
}

// workersStep sets what the nodes know of the workers of a queue: the lines are "types connected=BUSY/SLOTS,BUSY/SLOTS callers=N quiet=NAME
// draining=N", with "untold" for unknown types.
func (s *story) workersStep(d *datadriven.TestData) string {
	w := task.QueueWorkers{Known: duration(arg(d, "known")), Held: int64(number(arg(d, "held")))}
	for of, to := range map[string]*[]string{"silent": &w.Silent, "away": &w.Away} {
		if d.HasArg(of) {
			*to = strings.Split(arg(d, of), "+")
		}
	}
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		g := task.WorkerGroup{Untold: f[0] == "untold"}
		if f[0] != "any" && !g.Untold {
			g.Types = strings.Split(f[0], ",")
		}
		for _, fact := range f[1:] {
			what, value, _ := strings.Cut(fact, "=")
			switch what {
			case "connected":
				for one := range strings.SplitSeq(value, ",") {
					busy, slots, _ := strings.Cut(one, "/")
					g.Connected, g.Busy, g.Slots = g.Connected+1, g.Busy+number(busy), g.Slots+number(slots)
				}
			case "callers":
				g.Callers = number(value)
			case "quiet":
				g.Quiet, g.QuietID, g.Named = 1, "ID-"+value, value
			case "draining":
				g.Draining = number(value)
			default:
				s.T.Fatalf("unknown fact about workers: %q", fact)
			}
		}
		w.Groups = append(w.Groups, g)
		w.Workers += g.Connected + g.Callers
	}
	s.workers = w
	return fmt.Sprintf("%d take tasks", w.Workers)
}

func (s *story) takers(string) explain.Workers {
	t := explain.Workers{Polls: []explain.Poll{{Waiting: true, Last: s.Now}}}
	if s.asks != nil {
		t = *s.asks
	}
	t.Workers = s.workers
	return t
}

func (s *story) reasons(reasons []explain.Reason) string {
	var b strings.Builder
	for _, r := range reasons {
		fmt.Fprintf(&b, "%s: %s\n  -> %s\n", r.Code, r.Detail, r.Change)
		facts := map[string]string{"since": moment(r.Since), "until": moment(r.Until), "type": r.Type, "key": r.Key,
			"cause": r.Cause, "error": r.Error, "types": strings.Join(r.Types, ","), "count": positive(r.Count),
			"limit": positive(int64(r.Limit))}
		if r.Rate.IsSet() {
			facts["rate"] = explain.RateText(r.Rate)
		}
		if r.More {
			facts["more"] = "yes"
		}
		for _, t := range r.Running {
			facts["running"] += fmt.Sprintf("%s/%s ", s.name(t.ID), t.Worker)
		}
		maps.DeleteFunc(facts, func(_, fact string) bool { return fact == "" })
		if len(facts) > 0 {
			b.WriteString(" ")
		}
		for _, name := range slices.Sorted(maps.Keys(facts)) {
			fmt.Fprintf(&b, " %s=%s", name, strings.TrimSpace(facts[name]))
		}
		if len(facts) > 0 {
			b.WriteByte('\n')
		}
	}
	return uuids.ReplaceAllStringFunc(b.String(), func(id string) string {
		parsed, _ := task.ParseID(id)
		return s.name(parsed)
	})
}

func moment(t store.Time) string {
	if t == 0 {
		return ""
	}
	return explain.Clock(t)
}

func positive(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// unchanged runs a call that must not write, or change the leader's memory.
func unchanged[T any](s *story, call func(r *engine.Round) (T, error)) (out T, err error) {
	tx := s.Store.Begin(s.Now, s.Index+1)
	defer tx.Close()
	queues, err := engine.CopiedQueues(s.Store)
	if err != nil {
		return out, err
	}
	for _, q := range queues { // reading it into memory is not a change
		s.Leader.Begin(tx).Queue(q.Namespace, q.Name)
	}
	before := s.Leader.Dump()
	r := s.Leader.Begin(tx)
	out, err = call(r)
	if after := s.Leader.Dump(); after != before {
		s.T.Errorf("an explanation changed the leader's memory from\n%s\nto\n%s", before, after)
	}
	if r.Seal(); !tx.Empty() || len(r.Woken) > 0 {
		s.T.Errorf("an explanation wrote %d bytes and woke %v", tx.Size(), r.Woken)
	}
	return out, err
}

// explainAll explains the waiting tasks of a queue, and the queue, and compares the result with the model. It returns
// the task that the next claim of some types (none: any) gets according to the explanations.
func (d *duel) explainAll(queue string, types []string) (next task.ID) {
	takers := func(string) explain.Workers {
		return explain.Workers{Polls: []explain.Poll{{Types: types, Waiting: true, Last: d.Now}}}
	}
	explain := func(r *engine.Round) (struct{}, error) {
		claimable, trials := int64(0), map[string]*trialSeen{}
		oldest, behind := &schema.Exec{Seq: math.MaxUint64}, store.Time(0)
		for _, t := range d.m.tasks {
			if t.queue != queue || !t.state.Waiting() {
				continue
			}
			e, err := explain.Task(r, "default", t.id, takers, nil)
			if err != nil {
				d.T.Fatal(err)
			}
			switch x, _ := schema.Read(d.Store, schema.IDKey("default", schema.TableExec, t.id), schema.DecodeExec); {
			case x == nil || x.State != task.Ready || x.Role == schema.RoleNext:
			case x.Behind:
				behind = query.EarlierOf(behind, x.ReadyAt)
			case x.Seq < oldest.Seq:
				oldest = x
			}
			held := slices.ContainsFunc(e.Reasons, func(r explain.Reason) bool { return r.Code.Holds() })
			switch {
			case t.state != task.Ready:
				if e.Reasons[0].Code != task.WhyNotDue || e.Reasons[0].Until != t.runAt {
					d.T.Fatalf("%+v is not due, but the reasons are %+v", t, e.Reasons)
				}
				continue
			case d.m.onTrial(t):
				if d.judgeTrial(trials, t, held); held {
					continue
				}
				claimable++
			case held != d.m.held(t):
				d.T.Fatalf("%+v has the reasons %+v, but the model holds it: %t", t, e.Reasons, d.m.held(t))
			case !held:
				claimable++
			}
			if e.Reasons[0].Code == task.WhyNext {
				if next != (task.ID{}) {
					d.T.Fatalf("both %s and %s are explained as next", next, t.id)
				}
				next = t.id
			}
		}
		for typ, seen := range trials {
			if seen.mayRun != (seen.probes == 1) {
				d.T.Fatalf("%d tasks of type %q on trial are explained as the probe, one may run: %t", seen.probes, typ, seen.mayRun)
			}
		}
		g, err := explain.MemoryOf(r, "default", queue, takers)
		if err != nil {
			d.T.Fatal(err)
		}
		e, err := explain.Queue(d.Store, "default", queue, g)
		if err != nil || e.Claimable != claimable {
			d.T.Fatalf("queue %q is explained by %+v, %v, but in the model %d tasks are claimable", queue, e, err, claimable)
		}
		want := query.EarlierOf(oldest.ReadyAt, behind)
		if got := query.OldestReady(d.Store, "default", queue); got != want || got != e.OldestReady {
			d.T.Fatalf("queue %q: its oldest task has been ready since %d, and according to its explanation since %d, want %d", queue, got,
				e.OldestReady, want)
		}
		return struct{}{}, nil
	}
	if _, err := engine.Run(d.World, explain); err != nil {
		d.T.Fatal(err)
	}
	return next
}

// BenchmarkExplain explains a task, describes a queue, and explains it, among a million ready tasks of 100,000 keys
// with limits. The first two are within a round; the oldest task and the explanation of a queue are read concurrently
// with rounds, except for a brief read of memory.
func BenchmarkExplain(b *testing.B) {
	keys, tasks := engine.Size(100_000), engine.Size(1_000_000)
	w := engine.BenchWorld(b)
	s := task.DefaultSettings()
	s.PerKey.Rules = task.Rules{MaxRunning: 1, Rate: task.Rate{Limit: 100, Period: time.Second}}
	w.PutQueue("default", s, false)
	var last task.ID
	for n := 0; n < tasks; {
		w.Now += 1000
		w.Round(func(r *engine.Round) {
			engine.Tick(r)
			for range 1000 {
				n++
				last = w.NewID()
				key := "tenant-" + strconv.Itoa(n*7919%keys)
				if n%10 == 0 || n == tasks { // and a long lane
					key = "large"
				}
				if _, err := engine.Enqueue(r, &engine.NewTask{Namespace: "default", ID: last,
					Spec: task.Spec{Type: "job", Queue: "default",
						Priority: task.Normal, Payload: []byte("1"), Key: key}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	claimed := 0 // each key runs one
	for claimed < keys/2 {
		claimed += len(w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Max: min(1000, keys/2-claimed),
			Lease: time.Hour}))
	}
	takers := func(string) explain.Workers {
		return explain.Workers{Polls: []explain.Poll{{Waiting: true, Last: w.Now}}}
	}
	in := func(fn func(r *engine.Round)) {
		tx := w.Store.Begin(w.Now, w.Index+1)
		defer tx.Close()
		fn(w.Leader.Begin(tx))
	}
	b.Run("task", func(b *testing.B) {
		for b.Loop() {
			in(func(r *engine.Round) {
				e, err := explain.Task(r, "default", last, takers, nil)
				if err != nil || len(e.Reasons) == 0 {
					b.Fatal(e, err)
				}
			})
		}
	})
	b.Run("describe", func(b *testing.B) {
		for b.Loop() {
			in(func(r *engine.Round) {
				if i, err := engine.DescribeQueue(r, "default", "default"); err != nil || i.Held == 0 {
					b.Fatal(i, err)
				}
			})
		}
	})
	b.Run("oldest", func(b *testing.B) {
		for b.Loop() {
			snap := w.Store.Snapshot()
			if query.OldestReady(snap, "default", "default") == 0 {
				b.Fatal("there is no oldest task")
			}
			snap.Close()
		}
	})
	var g *explain.Memory
	b.Run("glance", func(b *testing.B) {
		for b.Loop() {
			in(func(r *engine.Round) { g, _ = explain.MemoryOf(r, "default", "default", takers) })
		}
	})
	b.Run("queue", func(b *testing.B) {
		for b.Loop() {
			snap := w.Store.Snapshot()
			e, err := explain.Queue(snap, "default", "default", g)
			if err != nil || e.Ready != int64(tasks-claimed) || e.Partial {
				b.Fatalf("%+v %v", e, err)
			}
			snap.Close()
		}
	})
}
