package stats

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func event(queue, typ string, counts ...Counter) Event {
	e := Event{Namespace: "default", Queue: queue, Type: typ, Ran: -1}
	for _, c := range counts {
		e.Counts = e.Counts.With(c)
	}
	return e
}

// life counts n tasks of a queue that wait and run for the given times, and succeed.
func (r *Recorder) life(now time.Time, queue string, n int, wait, run time.Duration) {
	for range n {
		claimed, acked := event(queue, "job", Claimed), event(queue, "job", Succeeded)
		claimed.Waited, acked.Ran = wait, run
		r.Record(now, []Event{event(queue, "job", Enqueued), claimed, acked})
	}
}

func TestReport(t *testing.T) {
	b := New(dawn)
	b.life(dawn, "mail", 3, 40*time.Millisecond, time.Second)
	b.life(dawn.Add(time.Minute), "mail", 2, 40*time.Millisecond, time.Second)
	b.life(dawn.Add(time.Minute), "video", 5, time.Hour, time.Minute)
	now := dawn.Add(time.Minute + time.Second)
	for _, c := range []struct {
		queue  string
		window Window
		steps  int
		total  uint32
	}{{"mail", Minutes2, 120, 5}, {"mail", Minutes5, 30, 5}, {"mail", Hour, 360, 5}, {"mail", Day, 288, 5}, {"video", Hour, 360, 5},
		{"", Hour, 360, 10}, {"none", Hour, 360, 0}} {
		r := b.Report(now, Queue{"default", c.queue}, c.window)
		if sum := r.Total(); len(r.Rates) != c.steps || sum.Enqueued != c.total || sum.Succeeded != c.total ||
			r.Wait.Count() != uint64(c.total) {
			t.Errorf("%q over %v: %d steps, %+v, %d waits; want %d steps and %d tasks", c.queue, time.Duration(c.window), len(r.Rates), sum,
				r.Wait.Count(), c.steps, c.total)
		}
	}
	r := b.Report(now, Queue{"default", "mail"}, Minutes2)
	if first, last := r.Rates[119-61].Enqueued, r.Rates[119-1].Enqueued; first != 3 || last != 2 || r.Last != now.Unix() {
		t.Errorf("steps a minute apart have %d and %d tasks, last step %d", first, last, r.Last)
	}
	if p := r.Wait.Quantile(0.5); p < 25*time.Millisecond || p > 50*time.Millisecond {
		t.Errorf("the median wait is %v, want about 40ms", p)
	}
	if other := b.Report(now, Queue{"other", ""}, Hour); other.Total() != (Rates{}) {
		t.Errorf("another namespace reports %+v", other.Total())
	}
	if old := b.Report(dawn.Add(2*time.Hour), Queue{"default", ""}, Hour); old.Total() != (Rates{}) || old.Wait.Count() != 0 {
		t.Errorf("two hours later the last hour still has %+v", old.Total())
	}
}

// Whatever happens when, the steps of all levels add up to what was counted, as far back as they go.
func TestLevelsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b, now := New(dawn), dawn
	type at struct {
		when time.Time
		n    uint32
	}
	var all []at
	for range 3000 {
		now = now.Add(time.Duration(rng.Int64N(int64(40 * time.Second))))
		n := 1 + rng.Uint32N(5)
		b.life(now, fmt.Sprintf("q%d", rng.IntN(3)), int(n), 0, 0)
		all = append(all, at{now, n})
		for _, w := range []Window{Minutes2, Minutes5, Hour, Day} {
			r := b.Report(now, Queue{"default", ""}, w)
			step := w.Step()
			first := time.Unix(0, (r.Last-int64(len(r.Rates))+1)*int64(step))
			want := uint32(0)
			for i := len(all) - 1; i >= 0 && !all[i].when.Before(first); i-- {
				want += all[i].n
			}
			if got := r.Total().Claimed; got != want {
				t.Fatalf("over %v: got %d, want %d", time.Duration(w), got, want)
			}
		}
	}
	if most := len(b.spaces["default"].rates[0].slots); most > 300 {
		t.Errorf("%d steps of 1s are kept, want at most 300", most)
	}
}

func TestNodesAddUp(t *testing.T) {
	one, two, both := New(dawn), New(dawn), New(dawn)
	now := dawn
	for i := range 500 {
		now = now.Add(7 * time.Second)
		b := one
		if i%3 == 0 {
			b = two
		}
		failed := event("q", fmt.Sprintf("t%d", i%4), Failed)
		failed.Ran = time.Duration(i) * time.Millisecond
		for _, b := range []*Recorder{b, both} {
			b.life(now, "q", 1, time.Duration(i)*time.Second, time.Second)
			b.Record(now, []Event{failed})
		}
	}
	for _, w := range []Window{Minutes2, Minutes5, Hour, Day} {
		got, other, want := one.Report(now, Queue{"default", "q"}, w), two.Report(now, Queue{"default", "q"}, w),
			both.Report(now, Queue{"default", "q"}, w)
		got.Add(other)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("over %v: got %+v, want %+v", time.Duration(w), got, want)
		}
	}
	late := two.Report(now.Add(20*time.Second), Queue{"default", "q"}, Minutes5)
	sum := one.Report(now, Queue{"default", "q"}, Minutes5)
	sum.Add(late)
	if sum.Last != late.Last || len(sum.Rates) != 30 {
		t.Errorf("with clocks apart the last step is %d of %d steps, want %d", sum.Last, len(sum.Rates), late.Last)
	}
}

func TestBrief(t *testing.T) {
	b := New(dawn)
	now := dawn.Add(10 * time.Second)
	b.life(now, "q", 6, time.Second, time.Second)
	got := b.Briefs(now, "default", []string{"none", "q"})
	if got[1].Rates.In() != 6 || got[1].Rates.Out() != 6 || got[1].Span != 10*time.Second || got[1].Wait.Count() != 6 ||
		got[0].Rates.In() != 0 {
		t.Errorf("10s after the start the briefs are %+v", got)
	}
	got = b.Briefs(now.Add(61*time.Second), "default", []string{"q"})
	if got[0].Rates.In() != 0 || got[0].Span != time.Minute || got[0].Wait.Count() != 6 {
		t.Errorf("a minute later the brief is %+v", got[0])
	}
}

func TestRoom(t *testing.T) {
	b := New(dawn)
	now := dawn
	for i := range maxQueues + 10 {
		b.Record(now, []Event{event(fmt.Sprintf("q%d", i), "t", Enqueued)})
	}
	if n := len(b.queues); n != maxQueues+1 || b.Report(now, Queue{"default", Other}, Hour).Rates[359].Enqueued != 10 {
		t.Errorf("%d queues have figures, and the other queues have %+v", n, b.Report(now, Queue{"default", Other}, Hour).Total())
	}
	now = now.Add(idleTime)
	b.Record(now, []Event{event("q1", "t", Enqueued)})
	now = now.Add(time.Second)
	b.Record(now, []Event{event("new", "t", Enqueued)})
	if b.queues[Queue{"default", "new"}] == nil || b.queues[Queue{"default", "q1"}] == nil || len(b.queues) != maxQueues+1 {
		t.Errorf("a new queue did not replace an idle one: %d queues", len(b.queues))
	}
	if got := b.Report(now, Queue{"default", ""}, Hour).Total().Enqueued; got != maxQueues+12 {
		t.Errorf("the namespace has %d enqueues, want %d", got, maxQueues+12)
	}
	for i := range maxTypes + 5 {
		b.Record(now, []Event{event("new", fmt.Sprintf("t%d", i), Failed)})
	}
	if n := len(b.queues[Queue{"default", "new"}].types); n != maxTypes+1 {
		t.Errorf("%d types have figures, want the maximum and one for the others", n)
	}
	types := 0
	for _, f := range b.queues {
		types += len(f.types)
	}
	if types != b.types {
		t.Errorf("there are %d types, but %d are counted", types, b.types)
	}
}

// An attempt that found poison is a failed one, with its error.
func TestPoisonFails(t *testing.T) {
	b := New(dawn)
	e := event("q", "t", Poisoned)
	e.Error = "unexpected end of JSON"
	b.Record(dawn, []Event{e, event("q", "t", Failed, Dead), event("q", "t", Succeeded)})
	r := b.Report(dawn, Queue{"default", "q"}, Hour)
	if got, want := r.Total(), (Rates{Failed: 2, Poisoned: 1, Dead: 1, Succeeded: 1}); got != want || got.Bad() != 2 || got.Out() != 3 {
		t.Errorf("the totals are %+v, %d failed attempts and %d ended tasks, want %+v, 2 and 3", got, got.Bad(), got.Out(), want)
	}
	if len(r.Failing) != 1 || r.Failing[0].Failures != 2 {
		t.Errorf("the failing types are %+v, want 2 failures of t", r.Failing)
	}
}

func TestFailing(t *testing.T) {
	b := New(dawn)
	for i := range 30 {
		e := event("q", fmt.Sprintf("t%d", i%3), Crashed)
		e.Error, e.ErrorType = fmt.Sprintf("error %d", i), "io"
		b.Record(dawn.Add(time.Duration(i)*time.Minute), []Event{e, event("p", "t0", Failed)})
	}
	r := b.Report(dawn.Add(30*time.Minute), Queue{"default", ""}, Hour)
	if len(r.Failing) != 4 || r.Failing[0].Queue != "p" || r.Failing[0].Failures != 30 || r.Failing[1].Failures != 10 ||
		r.Failing[3].Last.Error != "error 29" {
		t.Errorf("the failing types are %+v", r.Failing)
	}
	if r := b.Report(dawn.Add(2*time.Hour), Queue{"default", ""}, Hour); len(r.Failing) != 0 {
		t.Errorf("two hours later the failing types are %+v", r.Failing)
	}
}

func TestSave(t *testing.T) {
	b := New(dawn)
	now := dawn
	for i := range 200 {
		now = now.Add(11 * time.Second)
		failed := event("q", "t", Failed)
		failed.Error = "boom"
		b.Record(now, []Event{failed})
		b.life(now, fmt.Sprintf("q%d", i%5), 2, time.Second, time.Minute)
	}
	file, err := b.Save(now)
	if err != nil {
		t.Fatal(err)
	}
	later := New(now)
	if err := later.Load(file, now); err != nil {
		t.Fatal(err)
	}
	for _, w := range []Window{Minutes2, Minutes5, Hour, Day} {
		for _, q := range []string{"", "q", "q3"} {
			got, want := later.Report(now, Queue{"default", q}, w), b.Report(now, Queue{"default", q}, w)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q over %v: got %+v, want %+v", q, time.Duration(w), got, want)
			}
		}
	}
	if got, want := later.Briefs(now, "default", []string{"q3"}), b.Briefs(now, "default", []string{"q3"}); !reflect.DeepEqual(got, want) ||
		got[0].Span != time.Minute {
		t.Errorf("lately: got %+v, want %+v", got, want)
	}
	for at := 0; at < len(file); at += 1 + len(file)/300 {
		bad := append([]byte(nil), file...)
		bad[at] ^= 0x10
		if err := New(now).Load(bad, now); !errors.Is(err, ErrFormat) {
			t.Fatalf("with byte %d of %d changed: %v, want ErrFormat", at, len(file), err)
		}
		if err := New(now).Load(file[:at], now); !errors.Is(err, ErrFormat) {
			t.Fatalf("truncated at %d of %d: %v, want ErrFormat", at, len(file), err)
		}
	}
}

// A queue or namespace that was removed has no figures, neither in memory nor in what is saved, and a later one of its
// name has none of them.
func TestRemovedQueuesHaveNoFigures(t *testing.T) {
	exist, known := map[Queue]int64{{"default", ""}: 1, {"default", "q"}: 5, {"default", "kept"}: 6, {"team", ""}: 7, {"team", "q"}: 8},
		true
	born := func(q Queue) (int64, bool) { return exist[q], known }
	b, now := New(dawn), dawn
	b.Born = born
	happen := func() {
		for _, q := range []Queue{{"default", "q"}, {"default", "kept"}, {"team", "q"}, {"team", Other}} {
			e := event(q.Name, "t", Enqueued, Claimed, Failed)
			e.Namespace, e.Error = q.Namespace, "boom"
			b.Record(now, []Event{e})
		}
		b.Tick(now, Tick{Namespace: "team", Schedule: "s", Late: time.Hour})
		b.Stale("team", "expired")
		b.Stale("default", "expired")
	}
	enqueued := func(q Queue) int { return int(b.Report(now, q, Hour).Total().Enqueued) }
	// seen counts what is shown of each queue and of the namespaces.
	seen := func() string {
		text := ""
		for _, q := range []Queue{{"default", "q"}, {"default", "kept"}, {"team", "q"}, {"team", Other}} {
			types := b.TypeCounts(now, q.Namespace, Hour, func(queue, _ string) bool { return queue == q.Name })
			briefs := b.TypeBriefs(now, q.Namespace, Hour, []string{"t"}, func(queue string) bool { return queue == q.Name })
			report := b.TypeReport(now, TypeQuery{Namespace: q.Namespace, Type: "t", Window: Hour}, func(queue string) bool {
				return queue == q.Name
			})
			trend := uint32(0)
			for _, f := range b.Trends(now, q.Namespace, []string{q.Name}, Hour)[0].Steps {
				trend += f.In
			}
			total := 0
			b.Totals(func(t *Totals) {
				if t.Queue == q {
					total = int(t.Types[0].Counts[Enqueued])
				}
			})
			text += fmt.Sprint(enqueued(q), len(b.Report(now, q, Hour).Failing), b.Briefs(now, q.Namespace,
				[]string{q.Name})[0].Rates.Enqueued,
				len(types.Counts), len(briefs[0].Last.Error) > 0, report.Total().Enqueued,
				len(b.TypeQueues(q.Namespace, "t", func(queue string) bool {
					return queue == q.Name
				})), trend, total, "; ")
		}
		return text + fmt.Sprint(enqueued(Queue{"default", ""}), len(b.Report(now, Queue{"default", ""}, Hour).Failing),
			enqueued(Queue{"team", ""}), len(b.Report(now, Queue{"team", ""}, Hour).Failing), len(b.Late(now, "team")), len(b.TickTotals()))
	}
	// want is what seen returns if each of the queues has had so many rounds of events, and the namespaces so many enqueues.
	want := func(defaultQ, kept, teamQ, other, inDefault, inTeam int) string {
		text, failing := "", map[bool]int{}
		for i, n := range []int{defaultQ, kept, teamQ, other} {
			some := min(n, 1)
			failing[i < 2] += some
			text += fmt.Sprint(n, some, n, some, n > 0, n, some, n, n, "; ")
		}
		return text + fmt.Sprint(inDefault, failing[true], inTeam, failing[false], min(inTeam, 1), min(inTeam, 1))
	}
	check := func(what, want string) {
		t.Helper()
		if got := seen(); got != want {
			t.Errorf("%s: the figures are\n%s, want\n%s", what, got, want)
		}
	}
	happen()
	check("at first", want(1, 1, 1, 1, 2, 2))
	now = now.Add(30 * time.Second)
	exist[Queue{"default", "q"}] = 0
	check("queue removed", want(0, 1, 1, 1, 2, 2))
	exist[Queue{"default", "q"}], exist[Queue{"team", ""}], exist[Queue{"team", "q"}] = 9e9, 0, 0
	check("queue created, namespace removed", want(0, 1, 0, 0, 2, 0))
	file, err := b.Save(now)
	if err != nil || len(b.queues) != 1 || len(b.spaces) != 1 || b.types != 1 {
		t.Errorf("after saving %d queues, %d namespaces and %d types are kept, %v", len(b.queues), len(b.spaces), b.types, err)
	}
	if got := b.StaleTotals(); len(b.schedules) != 0 || len(got) != 1 || got[0].Namespace != "default" {
		t.Errorf("after saving the ticks of %d namespaces and the refusals %v are kept, want only refusals of the default namespace",
			len(b.schedules), got)
	}
	exist[Queue{"team", ""}], exist[Queue{"team", "q"}] = 10e9, 11e9
	check("all created", want(0, 1, 0, 0, 2, 0))
	b, known = New(now), false
	b.Born = born
	if err := b.Load(file, now); err != nil {
		t.Fatal(err)
	}
	if got := enqueued(Queue{"default", "kept"}); got != 1 {
		t.Errorf("a node that has not heard which queues there are shows %d enqueues of one, want 1", got)
	}
	known = true
	happen()
	if got := enqueued(Queue{"default", "q"}); got != 1 {
		t.Errorf("the new queue has %d enqueues, want 1", got)
	}
	if got := enqueued(Queue{"default", "kept"}); got != 2 {
		t.Errorf("the old queue has %d enqueues, want 2", got)
	}
	// A node may count events of a queue before it hears of it, and its clock may be behind that of the node which created it.
	exist[Queue{"default", "late"}] = 0
	e := event("late", "t", Enqueued)
	b.Record(now, []Event{e})
	exist[Queue{"default", "late"}] = now.Add(clockBack * time.Second).UnixNano()
	now = now.Add(time.Second)
	b.Record(now, []Event{e})
	if got := enqueued(Queue{"default", "late"}); got != 2 {
		t.Errorf("a queue that the node heard of late has %d enqueues, want 2", got)
	}
	// What was counted long before a queue was created is of an earlier one.
	exist[Queue{"default", "again"}] = 0
	b.Record(now, []Event{event("again", "t", Enqueued)})
	exist[Queue{"default", "again"}] = now.Add(time.Minute).UnixNano()
	if got := enqueued(Queue{"default", "again"}); got != 0 {
		t.Errorf("a queue has %d enqueues of a minute before it was created", got)
	}
}

func TestClockSetBack(t *testing.T) {
	b := New(dawn)
	b.life(dawn.Add(24*time.Hour), "q", 1, 0, 0)
	b.life(dawn, "q", 2, 0, 0)
	if got := b.Report(dawn, Queue{"default", "q"}, Day).Total().Enqueued; got != 2 {
		t.Errorf("after the clock was set back a day the report has %d enqueues, want 2", got)
	}
	b.life(dawn.Add(-2*time.Second), "q", 1, 0, 0)
	if got := b.Report(dawn, Queue{"default", "q"}, Minutes2).Total().Enqueued; got != 3 {
		t.Errorf("after the clock was set back 2s the report has %d enqueues, want 3", got)
	}
	failed := event("q", "t", Failed)
	for _, at := range []time.Duration{24 * time.Hour, 0, time.Minute} {
		b.Record(dawn.Add(at), []Event{failed})
	}
	if got := b.Report(dawn.Add(time.Minute), Queue{"default", "q"}, Hour).Failing; len(got) != 1 || got[0].Failures != 2 ||
		!got[0].Last.At.Equal(dawn.Add(time.Minute)) {
		t.Errorf("after the clock was set back a day the failing types are %+v, want 2 failures of t", got)
	}
}

// After the clock was set back, failures of the future are not listed, and the next search for room is not a day away.
func TestClockSetBackAfterFailures(t *testing.T) {
	b := New(dawn)
	ahead := dawn.Add(24 * time.Hour)
	b.Record(ahead, []Event{event("q0", "t", Failed)})
	for i := range maxQueues {
		b.life(ahead, fmt.Sprint("q", i+1), 1, 0, 0) // the last one finds no room
	}
	b.life(dawn, "q1", 1, 0, 0)
	if got := b.Report(dawn, Queue{"default", "q0"}, Hour).Failing; len(got) != 0 {
		t.Errorf("the failing types are %+v, want none", got)
	}
	later := dawn.Add(idleTime + time.Second)
	b.life(later, "new", 1, 0, 0)
	if b.queues[Queue{"default", "new"}] == nil {
		t.Error("a new queue finds no room, although others are idle")
	}
}

func TestTicks(t *testing.T) {
	b := New(dawn)
	b.Tick(dawn, Tick{Namespace: "default", Schedule: "ok", Late: time.Second})
	b.Tick(dawn, Tick{Namespace: "default", Schedule: "late", Late: 2 * time.Minute})
	b.Tick(dawn, Tick{Namespace: "default", Schedule: "missed", Late: time.Hour, Skipped: 5, Reason: "missed"})
	b.Tick(dawn, Tick{Namespace: "default", Schedule: "paused", Late: time.Hour, Skipped: 2, Reason: "paused"})
	if got := b.Late(dawn, "default"); len(got) != 2 || got[0].Schedule != "late" || got[1].Skipped != 5 {
		t.Errorf("the late schedules are %+v", got)
	}
	if got := b.Late(dawn.Add(2*time.Hour), "default"); len(got) != 0 {
		t.Errorf("two hours later the late schedules are %+v", got)
	}
	got := b.TickTotals()
	if len(got) != 1 || got[0].Delay.Count() != 2 || got[0].Skipped["missed"] != 5 || got[0].Skipped["paused"] != 2 {
		t.Errorf("the tick totals are %+v", got)
	}
}

func TestTotals(t *testing.T) {
	b := New(dawn)
	b.life(dawn, "q", 3, time.Second, 2*time.Second)
	b.Stale("default", "expired")
	b.Stale("default", "expired")
	var got []string
	b.Totals(func(t *Totals) {
		for _, typ := range t.Types {
			got = append(got, fmt.Sprint(t.Name, typ.Type, typ.Counts[Claimed], typ.Counts[Succeeded], t.Wait.Sum, t.ToAck.Count()))
		}
	})
	if want := "[qjob3 3 3s 3]"; fmt.Sprint(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := b.StaleTotals(); len(s) != 1 || s[0].Count != 2 {
		t.Errorf("the stale totals are %+v", s)
	}
}

func (h *Histogram) add(d time.Duration) { h.observe(bucketOf(d), d) }

func TestQuantile(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 {
		t.Errorf("Quantile of an empty histogram = %v", h.Quantile(0.5))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		h.add(time.Duration(rng.Int64N(int64(10 * time.Second))))
	}
	for _, q := range []float64{0.1, 0.5, 0.95, 0.99, 1} {
		if got, want := h.Quantile(q).Seconds(), 10*q; got < want*0.95 || got > want*1.05 {
			t.Errorf("quantile %v: got %.3fs, want %.3fs", q, got, want)
		}
	}
	h = Histogram{}
	h.add(100 * time.Hour)
	if got := h.Quantile(0.5); got != 100*time.Hour {
		t.Errorf("Quantile beyond the bounds = %v, want 100h", got)
	}
}

// No quantile is less than the least duration, or more than the most: not within a bucket, and not after the histograms
// of steps, minutes and nodes were added up, packed and unpacked.
func TestQuantilesAreWithinWhatWasSeen(t *testing.T) {
	for _, runs := range [][]time.Duration{{4 * time.Second}, {0}, {30 * time.Microsecond}, {4 * time.Second, 4100 * time.Millisecond},
		{26 * time.Hour, 30 * time.Hour}, {3 * time.Millisecond, 4 * time.Second}} {
		nodes := [2]*Recorder{New(dawn), New(dawn)}
		for i, run := range runs {
			e := event("mail", "job", Succeeded)
			e.Ran = run
			nodes[i].Record(dawn.Add(time.Duration(i)*2*time.Minute), []Event{e})
		}
		now := dawn.Add(5 * time.Minute)
		queue := nodes[0].Report(now, Queue{"default", "mail"}, Hour)
		queue.Add(nodes[1].Report(now, Queue{"default", "mail"}, Hour))
		of := TypeQuery{Namespace: "default", Type: "job", Window: Hour, Asked: now}
		all := func(string) bool { return true }
		typ := nodes[0].TypeReport(now, of, all)
		typ.Add(nodes[1].TypeReport(now, of, all))
		least, most := runs[0], max(runs[len(runs)-1], time.Microsecond)
		for name, h := range map[string]interface{ Quantile(float64) time.Duration }{"queue": &queue.Run, "type": &typ.Run} {
			for _, q := range []float64{0.01, 0.5, 0.99, 1} {
				if got := h.Quantile(q); got < least || got > most {
					t.Errorf("%s whose tasks ran for %v: quantile %v is %v, want %v to %v", name, runs, q, got, least, most)
				}
			}
		}
	}
}

// A histogram whose extent is unknown, from an older node, bounds no quantiles: not its own, and not of a sum.
func TestQuantilesWithoutAnExtent(t *testing.T) {
	var old, sum Histogram
	old.add(4 * time.Second)
	old.Extent = extent{}
	sum.add(time.Millisecond)
	sum.Add(&old)
	var oldLog, sumLog LogHistogram
	oldLog.N[logBucketOf(4*time.Second)] = 1
	sumLog.N[logBucketOf(time.Millisecond)] = 1
	sumLog.Extent.observe(time.Millisecond)
	sumLog.Add(&oldLog)
	for name, h := range map[string]interface{ Quantile(float64) time.Duration }{"old": &old, "sum": &sum, "old by type": &oldLog,
		"sum by type": &sumLog} {
		if got := h.Quantile(1); got < 4*time.Second || got > 6*time.Second {
			t.Errorf("%s: the longest is %v, want about 4s", name, got)
		}
	}
}

// BenchmarkRecord measures the three events of a task's life, in rounds of a hundred.
func BenchmarkRecord(b *testing.B) {
	recorder := New(dawn)
	events := make([]Event, 0, 300)
	for i := range 100 {
		claimed, acked := event("mail", "job", Claimed), event("mail", "job", Succeeded)
		claimed.Waited, acked.Ran = time.Duration(i)*time.Millisecond, time.Duration(i)*time.Second
		events = append(events, event("mail", "job", Enqueued), claimed, acked)
	}
	b.ReportAllocs()
	now := dawn
	for b.Loop() {
		now = now.Add(time.Millisecond)
		recorder.Record(now, events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/task")
}
