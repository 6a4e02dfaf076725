package stats

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

func lowest(s Set) Counter { return Counter(bits.TrailingZeros32(uint32(s))) } // #nosec G115 -- below 32

// failLevel is the level at which failures of types are kept.
var failLevel = level{5 * time.Minute, 12}

// Window is how far back a report looks.
type Window time.Duration

// The windows.
const (
	Minutes2 = Window(2 * time.Minute) // in steps of 1 s
	Minutes5 = Window(5 * time.Minute) // of 10 s
	Hour     = Window(time.Hour)       // of 10 s
	Day      = Window(24 * time.Hour)  // of 5 min
)

// levels returns the levels from which a window is read: that of its rates, and that of the times that tasks waited and ran.
func (w Window) levels() (rates, times int) {
	switch w {
	case Minutes2:
		return 0, 0
	case Minutes5:
		return 1, 0
	case Hour:
		return 1, 1
	}
	return 2, 2
}

// Step returns the length of a step of the window's rates.
func (w Window) Step() time.Duration {
	rates, _ := w.levels()
	return rateLevels[rates].step
}

// Valid reports whether such a window exists.
func (w Window) Valid() bool { return w == Minutes2 || w == Minutes5 || w == Hour || w == Day }

// Report is what happened in a window. The last step is the current one.
type Report struct {
	Last      int64   // number of the last step since 1970
	Rates     []Rates // by step, oldest first
	Wait, Run Histogram
	Failing   []Failing  // the types with the most failed attempts in the last hour, up to 20
	Late      []LateTick // of a namespace: the schedules that were late
}

// Failing is a type with failed attempts.
type Failing struct {
	Queue, Type string
	Failures    uint64
	Last        Failure
}

// maxFailing bounds the failing types in a report.
const maxFailing = 20

// Report reports what happened to a queue, or, if its name is empty, to a namespace as a whole.
func (r *Recorder) Report(now time.Time, q Queue, w Window) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now.Unix())
	r.flush()
	rates, spans := w.levels()
	l := rateLevels[rates]
	out := Report{Last: l.at(r.second), Rates: make([]Rates, time.Duration(w)/l.step)}
	f := r.find(q)
	if q.Name == "" {
		f = r.spaces[q.Namespace]
	}
	if f == nil || !r.current(&f.named) {
		return out
	}
	first := out.Last - int64(len(out.Rates)) + 1
	for _, s := range f.rates[rates].after(first - 1) {
		out.Rates[min(s.At-first, int64(len(out.Rates)-1))] = s.V
	}
	t := timeLevels[spans]
	for _, s := range f.times[spans].after(t.at(r.second) - int64(time.Duration(w)/t.step)) {
		out.Wait.addSpread(&s.V.Wait)
		out.Run.addSpread(&s.V.Run)
	}
	out.Failing = r.failing(q)
	return out
}

// failing returns the failing types of a queue, or of all queues of a namespace.
func (r *Recorder) failing(of Queue) (list []Failing) {
	for q, f := range r.queues {
		if q.Namespace != of.Namespace || of.Name != "" && q != of || !r.current(&f.named) {
			continue
		}
		for typ, t := range f.types {
			list = append(list, failingOf(q.Name, typ, t, r.second)...)
		}
	}
	return mostFailing(list)
}

func mostFailing(list []Failing) []Failing {
	slices.SortFunc(list, func(a, b Failing) int {
		return cmp.Or(cmp.Compare(b.Failures, a.Failures), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Type, b.Type))
	})
	return list[:min(len(list), maxFailing)]
}

// Add adds what another node counted in the same window. Their clocks may differ by some steps.
func (r *Report) Add(o Report) {
	if o.Last > r.Last {
		*r, o = o, *r
	}
	for i, rates := range o.Rates {
		if at := i + len(r.Rates) - len(o.Rates) - int(r.Last-o.Last); at >= 0 {
			r.Rates[at].Add(rates)
		}
	}
	r.Wait.Add(&o.Wait)
	r.Run.Add(&o.Run)
	r.Failing = addFailing(r.Failing, o.Failing)
	r.Late = append(r.Late, o.Late...)
}

// addFailing sums failures by type, the most first.
func addFailing(list, others []Failing) []Failing {
	for _, x := range others {
		at := slices.IndexFunc(list, func(y Failing) bool { return x.Queue == y.Queue && x.Type == y.Type })
		if at < 0 {
			list = append(list, x)
			continue
		}
		y := &list[at]
		y.Failures += x.Failures
		if x.Last.At.After(y.Last.At) {
			y.Last = x.Last
		}
	}
	return mostFailing(list)
}

// Total returns the sum of all steps.
func (r Report) Total() Rates { return totalOf(r.Rates) }

// Lately returns the sum of the last steps, for a span that is part of the window.
func (r Report) Lately(span time.Duration, w Window) (sum Rates) {
	steps := min(int(span/w.Step()), len(r.Rates))
	for _, rates := range r.Rates[len(r.Rates)-steps:] {
		sum.Add(rates)
	}
	return sum
}

// Brief is what happened to a queue lately.
type Brief struct {
	Rates     Rates         // of the last minute
	Span      time.Duration // what Rates covers: less than a minute just after the start
	Wait, Run Histogram     // of the last 5 minutes
}

// Add adds what another node counted.
func (b *Brief) Add(o *Brief) {
	b.Rates.Add(o.Rates)
	b.Span = max(b.Span, o.Span)
	b.Wait.Add(&o.Wait)
	b.Run.Add(&o.Run)
}

// briefSpan is how many seconds the rates of a brief cover.
const briefSpan = 60

// Briefs reports what happened to some queues lately, in their order. A brief is empty if nothing happened, or the queue counts as Other.
func (r *Recorder) Briefs(now time.Time, namespace string, names []string) []Brief {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now.Unix())
	r.flush()
	out := make([]Brief, len(names))
	span := min(max(now.Sub(r.since), time.Second), briefSpan*time.Second)
	for i, name := range names {
		out[i].Span = span
		f := r.find(Queue{namespace, name})
		if f == nil {
			continue
		}
		for _, s := range f.rates[0].after(r.second - briefSpan) {
			out[i].Rates.Add(s.V)
		}
		l := timeLevels[0]
		for _, s := range f.times[0].after(l.at(r.second) - l.keep) {
			out[i].Wait.addSpread(&s.V.Wait)
			out[i].Run.addSpread(&s.V.Run)
		}
	}
	return out
}
