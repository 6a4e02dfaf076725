package stats

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
)

func anyQueue(string) bool { return true }

func (r *Recorder) typed(now time.Time, typ string, w Window, queue string) TypeReport {
	return r.TypeReport(now, TypeQuery{Namespace: "default", Type: typ, Window: w}, func(q string) bool {
		return queue == "" || q == queue
	})
}

// runs counts n tasks of a type that were enqueued, waited, ran for the given time and succeeded or failed.
func (r *Recorder) runs(now time.Time, queue, typ string, n int, wait, run time.Duration, how Counter) {
	for i := range n {
		claimed, ended := event(queue, typ, Claimed), event(queue, typ, how)
		claimed.Waited, ended.Ran, ended.Worker = wait, run, "w1"
		ended.Task[0], ended.Task[1] = byte(now.Unix()), byte(i)
		r.Record(now, []Event{event(queue, typ, Enqueued), claimed, ended})
	}
}

func TestLogBuckets(t *testing.T) {
	for i, bound := range LogBounds {
		if got := logBucketOf(bound); got != i {
			t.Errorf("%v is counted in bucket %d, want %d", bound, got, i)
		}
		if got := logBucketOf(bound + 1); got != i+1 {
			t.Errorf("%v is counted in bucket %d, want %d", bound+1, got, i+1)
		}
	}
	if logBucketOf(0) != 0 || logBucketOf(1<<62) != logBuckets-1 {
		t.Errorf("0 is counted in bucket %d, 146 years in %d", logBucketOf(0), logBucketOf(1<<62))
	}
}

func TestPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var wait, run, wait2, run2 LogHistogram
		for range rng.IntN(20) {
			wait.N[rng.IntN(logBuckets)] += rng.Uint64N(1 << 40)
			run.N[rng.IntN(logBuckets)]++
		}
		wait.Sum, run.Sum = time.Duration(rng.IntN(1e6))*time.Microsecond, time.Hour
		p := pack(&wait, &run)
		p.addTo(&wait2, &run2)
		if wait != wait2 || run != run2 {
			t.Fatalf("packed and unpacked: %v, want %v", wait2, wait)
		}
		for at := range p { // damaged bytes are read as far as they go
			bad := slices.Clone(p)
			bad[at] ^= 0xff
			bad.addTo(&wait2, &run2)
			p[:at].addTo(&wait2, &run2)
		}
	}
}

func TestTypeReport(t *testing.T) {
	b := New(dawn)
	b.runs(dawn, "mail", "welcome", 4, 10*time.Millisecond, 100*time.Millisecond, Succeeded)
	b.runs(dawn.Add(10*time.Minute), "bulk", "welcome", 2, time.Second, 10*time.Second, Failed)
	r := b.typed(dawn.Add(20*time.Minute), "welcome", Hour, "")
	if p := r.Run.Quantile(0.5); p < 90*time.Millisecond || p > 128*time.Millisecond {
		t.Errorf("the median run is %v, want about 100ms", p)
	}
	if len(r.Slowest) != 6 || r.Slowest[0].Ran != 10*time.Second || !r.Slowest[0].Failed || r.Slowest[0].Worker != "w1" ||
		r.Slowest[5].Failed {
		t.Errorf("the slowest runs are %+v", r.Slowest)
	}
	if len(r.Failing) != 1 || r.Failing[0].Queue != "bulk" || r.Failing[0].Failures != 2 {
		t.Errorf("the failing types are %+v", r.Failing)
	}
	b.runs(dawn.Add(70*time.Minute), "mail", "welcome", 6, 10*time.Millisecond, 100*time.Millisecond, Succeeded)
	b.runs(dawn.Add(70*time.Minute), "mail", "other", 9, 0, 0, Succeeded)
	now := dawn.Add(70*time.Minute + 9*time.Second)
	for _, c := range []struct {
		queue         string
		w             Window
		steps         int
		came, bad     uint32
		runs, slowest int
	}{{"", Minutes5, 30, 6, 0, 6, 6}, {"", Hour, 60, 6, 0, 6, 6}, {"", Day, 96, 12, 2, 12, 6}, {"mail", Day, 96, 10, 0, 10, 6},
		{"bulk", Day, 96, 2, 2, 2, 0}, {"none", Day, 96, 0, 0, 0, 0}} {
		r := b.typed(now, "welcome", c.w, c.queue)
		total := r.Total()
		got := fmt.Sprint(len(r.Rates), total.Enqueued, total.Bad(), r.Run.Count(), min(len(r.Slowest), 6))
		if c.slowest == 6 {
			c.slowest = 5 // 5 are kept per 10 minutes
		}
		if want := fmt.Sprint(c.steps, c.came, c.bad, c.runs, c.slowest); got != want {
			t.Errorf("%q over %v: got %s, want %s", c.queue, time.Duration(c.w), got, want)
		}
	}
	if got := b.TypeQueues("default", "welcome", anyQueue); len(got) != 2 {
		t.Errorf("the type's queues are %v", got)
	}
}

func TestSlowest(t *testing.T) {
	b := New(dawn)
	for i := range 100 { // the slowest in the middle
		b.runs(dawn, "q", "t", 1, 0, time.Duration(50-max(i-50, 50-i))*time.Second, Succeeded)
	}
	r := b.typed(dawn.Add(time.Minute), "t", Hour, "")
	var got []time.Duration
	for _, s := range r.Slowest {
		got = append(got, s.Ran)
	}
	want := []time.Duration{50 * time.Second, 49 * time.Second, 49 * time.Second, 48 * time.Second, 48 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("in one step the slowest runs are %v, want %v", got, want)
	}
	b.runs(dawn.Add(10*time.Minute), "q", "t", 1, 0, time.Second, Succeeded) // a new step accepts faster runs
	if r := b.typed(dawn.Add(11*time.Minute), "t", Hour, ""); len(r.Slowest) != 6 || r.Slowest[5].Ran != time.Second {
		t.Errorf("in two steps the slowest runs are %+v", r.Slowest)
	}
	if r := b.typed(dawn.Add(61*time.Minute), "t", Hour, ""); len(r.Slowest) != 1 {
		t.Errorf("an hour later the slowest runs are %+v", r.Slowest)
	}
}

func TestTypesOfNodesAddUp(t *testing.T) {
	one, two, both := New(dawn), New(dawn), New(dawn)
	now := dawn
	for i := range 600 {
		now = now.Add(13 * time.Second)
		b := one
		if i%3 == 0 {
			b = two
		}
		for _, b := range []*Recorder{b, both} {
			b.runs(now, fmt.Sprintf("q%d", i%2), fmt.Sprintf("t%d", i%2), 1, time.Duration(i)*time.Millisecond,
				time.Duration(i)*time.Second, Counter(int(Succeeded)+i%2))
		}
	}
	for _, w := range []Window{Minutes5, Hour, Day} {
		q := TypeQuery{Namespace: "default", Type: "t1", Window: w, Around: now.Add(-40 * time.Minute), Asked: now}
		got, want := one.TypeReport(now, q, anyQueue), both.TypeReport(now, q, anyQueue)
		got.Add(two.TypeReport(now, q, anyQueue))
		if got.Slowest = want.Slowest; !reflect.DeepEqual(got, want) {
			t.Errorf("over %v: got %+v, want %+v", time.Duration(w), got, want)
		}
		every := func(string, string) bool { return true }
		counts, all := one.TypeCounts(now, "default", w, every), both.TypeCounts(now, "default", w, every)
		counts.Add(two.TypeCounts(now, "default", w, every))
		byName := func(a, b TypeCount) int { return int(a.Type[1]) - int(b.Type[1]) }
		slices.SortFunc(counts.Counts, byName)
		slices.SortFunc(all.Counts, byName)
		if !reflect.DeepEqual(counts, all) || len(all.Counts) != 2 {
			t.Errorf("counts over %v: got %+v, want %+v", time.Duration(w), counts, all)
		}
		briefsOf := func(b *Recorder) []TypeBrief {
			return b.TypeBriefs(now, "default", w, []string{"t1", "none"}, anyQueue)
		}
		briefs, others, wants := briefsOf(one), briefsOf(two), briefsOf(both)
		for i := range briefs {
			briefs[i].Add(&others[i])
		}
		if !reflect.DeepEqual(briefs, wants) {
			t.Errorf("briefs over %v: got %+v, want %+v", time.Duration(w), briefs, wants)
		}
		sum := Flow{}
		for _, f := range wants[0].Trend.Steps {
			sum.add(f)
		}
		if sum.In != wants[0].Rates.In() || sum.Failed != wants[0].Rates.Bad() {
			t.Errorf("the trend over %v adds up to %+v, but the window to %+v", time.Duration(w), sum, wants[0].Rates)
		}
	}
}

// The last error of a type is the newest over all queues.
func TestLastError(t *testing.T) {
	b := New(dawn)
	for i, queue := range []string{"a", "b", "c"} {
		e := event(queue, "t", Failed)
		e.Error = queue
		b.Record(dawn.Add(time.Duration(i%2)*time.Minute), []Event{e}) // that of b
	}
	for range 20 { // queues come in any order
		got := b.TypeBriefs(dawn.Add(time.Minute), "default", Hour, []string{"t"}, anyQueue)[0]
		if got.Last.Error != "b" || len(got.Queues) != 3 {
			t.Fatalf("the last error is %+v in %v, want b in 3 queues", got.Last, got.Queues)
		}
	}
}

// What happened before and after a time is reported in complete steps, and the step that contains the time is in neither.
func TestPeriodsAroundATime(t *testing.T) {
	for _, c := range []struct {
		ago, length   time.Duration // 0: nothing is reported
		before, after uint32        // runs in them: one in each minute before, two in each after
	}{
		{30 * time.Second, 0, 0, 0}, {10*time.Minute + 30*time.Second, 10 * time.Minute, 10, 20},
		{29 * time.Minute, 28 * time.Minute, 28, 56}, {45 * time.Minute, 30 * time.Minute, 30, 60}, {5 * time.Hour, time.Hour, 60, 120},
		{25 * time.Hour, 0, 0, 0}, {-time.Minute, 0, 0, 0},
	} {
		b, now := New(dawn), dawn.Add(26*time.Hour)
		deploy := now.Add(-c.ago)
		for at := dawn; at.Before(now); at = at.Add(time.Minute) {
			n, how := 1, Succeeded
			if at.After(deploy) {
				n, how = 2, Failed
			}
			b.runs(at, "q", "t", n, 0, time.Duration(n)*time.Second, how)
		}
		r := b.TypeReport(now, TypeQuery{Namespace: "default", Type: "t", Window: Hour, Around: deploy, Asked: now}, anyQueue)
		if c.length == 0 {
			if r.Before != nil || r.After != nil {
				t.Errorf("%v ago: the periods are %+v and %+v, want none", c.ago, r.Before, r.After)
			}
			continue
		}
		x, y := r.Before, r.After
		got := fmt.Sprint(x.Seconds, y.Seconds, x.Rates.Succeeded, x.Rates.Failed, y.Rates.Failed, y.Rates.Succeeded, x.Run.Count(),
			y.Run.Count())
		if want := fmt.Sprint(c.length.Seconds(), c.length.Seconds(), c.before, 0, c.after, 0, c.before, c.after); got != want {
			t.Errorf("%v ago: got %s, want %s", c.ago, got, want)
		}
		if x.From+x.Seconds > deploy.Unix() || y.From < deploy.Unix() || y.From+y.Seconds > now.Unix() {
			t.Errorf("%v ago: the periods %+v and %+v are not before and after the given time", c.ago, x, y)
		}
	}
}

func TestTypesAreSaved(t *testing.T) {
	b, now := New(dawn), dawn
	for i := range 300 {
		now = now.Add(17 * time.Second)
		b.runs(now, "q", fmt.Sprintf("t%d", i%3), 2, time.Second, time.Duration(i)*time.Second, Failed)
	}
	file, err := b.Save(now)
	if err != nil {
		t.Fatal(err)
	}
	later := New(now)
	if err := later.Load(file, now); err != nil {
		t.Fatal(err)
	}
	for _, w := range []Window{Minutes5, Hour, Day} {
		if got, want := later.typed(now, "t1", w, ""), b.typed(now, "t1", w, ""); !reflect.DeepEqual(got, want) {
			t.Errorf("over %v: got %+v, want %+v", time.Duration(w), got, want)
		}
	}
	span := later.TypeCounts(now, "default", Day, func(string, string) bool { return true }).Span
	if span < 80*time.Minute || span > 90*time.Minute {
		t.Errorf("the loaded statistics span %v, want about 85m", span)
	}
	later.runs(now.Add(time.Minute), "q", "t1", 1, 0, 0, Succeeded) // a copy is as good as the first
	if r := later.typed(now.Add(time.Minute), "t1", Day, ""); r.Total().Succeeded != 1 {
		t.Errorf("the totals are %+v, want 1 success", r.Total())
	}
	if err := New(now).Load(file[:len(file)-1], now); err == nil {
		t.Error("a truncated file was loaded")
	}
}

// A type without events for a day has nothing left, and another gets its place.
func TestRoomForTypes(t *testing.T) {
	b, now := New(dawn), dawn
	for i := range maxAllTypes {
		b.Record(now, []Event{event(fmt.Sprintf("q%d", i/maxTypes), fmt.Sprintf("t%d", i), Enqueued)})
	}
	b.Record(now, []Event{event("new", "late", Enqueued)})
	if b.types != maxAllTypes+1 || b.queues[Queue{"default", "new"}].types[Other] == nil {
		t.Fatalf("%d types are kept, and those of the new queue are %v", b.types, b.queues[Queue{"default", "new"}].types)
	}
	now = now.Add(idleType + time.Minute)
	for i := range 3 {
		b.TypeCounts(now, "default", Hour, func(string, string) bool { return true }) // reading is not using
		b.Record(now.Add(time.Duration(i)*2*time.Second), []Event{event("new", fmt.Sprintf("later%d", i), Enqueued)})
	}
	if f := b.queues[Queue{"default", "new"}]; len(f.types) != 4 || f.types["later2"] == nil {
		t.Errorf("a day later the new queue has the types %v", f.types)
	}
	types := 0
	for _, f := range b.queues {
		types += len(f.types)
	}
	if types != b.types {
		t.Errorf("there are %d types, but %d are counted", types, b.types)
	}
}

// A queue that has had as many types as are kept gives the place of one that has been idle for a day to a new one, even
// if it is the only type left.
func TestRoomForTypesOfAQueue(t *testing.T) {
	b, now := New(dawn), dawn
	for i := range maxTypes {
		b.Record(now, []Event{event("q", fmt.Sprintf("t%d", i), Enqueued)})
	}
	enqueue := func(typ string) {
		b.Record(now, []Event{event("q", typ, Enqueued)})
	}
	f := b.queues[Queue{"default", "q"}]
	enqueue("new")
	if f.types["new"] != nil || f.types[Other] == nil || len(f.types) != maxTypes+1 {
		t.Fatalf("a full queue has figures of %d types", len(f.types))
	}
	now = now.Add(idleType - time.Minute)
	enqueue("t0")
	now = now.Add(2 * time.Minute)
	enqueue("t0")
	for range 2 {
		enqueue("new")
		now = now.Add(time.Second)
	}
	if f.types["new"] == nil || f.types["t0"] == nil || len(f.types) != maxTypes+1 || b.types != maxTypes+1 {
		t.Errorf("a day later the queue has figures of %d types, %d are counted; the new one has %v", len(f.types), b.types, f.types["new"])
	}
}

// TestTypeSize measures what docs/limits.md states: a type that is busy in every step takes about 40 KB, and one that was seen once 0.7 KB.
func TestTypeSize(t *testing.T) {
	sizeOf := func(steps, types int) int {
		before, after := runtime.MemStats{}, runtime.MemStats{}
		runtime.GC()
		runtime.ReadMemStats(&before)
		b := New(dawn)
		e := event("q", "t", Claimed, Succeeded)
		for i := range steps {
			now := dawn.Add(time.Duration(i) * 10 * time.Second)
			for typ := range types {
				e.Type, e.Task[0], e.Worker = names[typ], byte(i), "worker-1.example.com/4711"
				e.Waited, e.Ran = time.Duration(1+i%7)<<(20+i%8), time.Duration(1+i%5)<<(24+i%8) // in about 15 buckets each
				b.Record(now, []Event{e})
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(b)
		return int(after.HeapAlloc - before.HeapAlloc) // #nosec G115 -- small
	}
	for _, c := range []struct {
		what        string
		steps, most int
	}{{"seen once", 1, 2 << 10}, {"busy all day", 25 * 360, 44 << 10}} {
		size := (sizeOf(c.steps, len(names)) - sizeOf(c.steps, 1)) / (len(names) - 1)
		t.Logf("%s: %d bytes", c.what, size)
		if size > c.most {
			t.Errorf("a type that is %s takes %d bytes, want at most %d", c.what, size, c.most)
		}
	}
}

var names = func() (list [50]string) {
	for i := range list {
		list[i] = fmt.Sprint("type-", i)
	}
	return list
}()
