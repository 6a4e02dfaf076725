package stats

import (
	"slices"
	"strings"
	"time"
)

// TypeQuery asks what happened to the tasks of a type in a window.
type TypeQuery struct {
	Namespace, Type string
	Window          Window
	// Around, if set, asks for the periods before and after a time, and Asked is the caller's clock, so that all nodes report the same
	// periods. Zero: none.
	Around, Asked time.Time
}

// TypeReport is what happened to the tasks of a type in a window.
type TypeReport struct {
	Span      time.Duration // what it covers: less than the window just after the start
	Last      int64         // number of the last step since 1970: the current one
	Rates     []Rates       // by step, oldest first
	Wait, Run LogHistogram
	Failing   []Failing // in the last hour, by queue
	Slowest   []Slow    // runs that ended in the last hour, slowest first
	// Before and After are two periods of the same length around a time; nil: not asked for, or nothing is known yet.
	Before, After *Period
	Queues        []string // that have had its tasks, sorted
}

// Period is what happened during a period.
type Period struct {
	From, Seconds int64
	Rates         Rates
	Run           LogHistogram
}

// typeLevels returns the levels from which a window of a type is read: that of its rates, and that of its times.
func (w Window) typeLevels() (rates, times int) {
	switch w {
	case Minutes5:
		return 0, 0
	case Hour:
		return 1, 0
	}
	return 2, 1
}

// TypeStep returns the length of a step of the window's rates of types.
func (w Window) TypeStep() time.Duration {
	rates, _ := w.typeLevels()
	return typeRateLevels[rates].step
}

// ValidOfType reports whether types have such a window.
func (w Window) ValidOfType() bool { return w == Minutes5 || w == Hour || w == Day }

// TypeReport reports what happened to a type in the wanted queues of a namespace.
func (r *Recorder) TypeReport(now time.Time, q TypeQuery, wanted func(queue string) bool) TypeReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now.Unix())
	l := typeRateLevels[rateLevelOf(q.Window)]
	out := TypeReport{Span: r.known(now, q.Window), Last: l.at(r.second), Rates: make([]Rates, time.Duration(q.Window)/l.step)}
	before, after := periodsAround(q.Around, q.Asked)
	for of, f := range r.queues {
		t := f.types[q.Type]
		if t == nil || of.Namespace != q.Namespace || !wanted(of.Name) || !r.current(&f.named) {
			continue
		}
		t.flush(r)
		t.rateSteps(q.Window, out.Rates, out.Last)
		t.timesIn(q.Window, r.second, &out.Wait, &out.Run)
		out.Failing = append(out.Failing, failingOf(of.Name, q.Type, t, r.second)...)
		out.Slowest = append(out.Slowest, t.slowest(r.second)...)
		if after != nil {
			t.addPeriod(before)
			t.addPeriod(after)
		}
	}
	out.Failing, out.Slowest = mostFailing(out.Failing), slowestOf(out.Slowest)
	out.Before, out.After = before, after
	return out
}

// TypeQueues returns the wanted queues of a namespace that have had tasks of a type, in no order.
func (r *Recorder) TypeQueues(namespace, typ string, wanted func(queue string) bool) (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for q, f := range r.queues {
		if q.Namespace == namespace && f.types[typ] != nil && wanted(q.Name) && r.current(&f.named) {
			list = append(list, q.Name)
		}
	}
	return list
}

func rateLevelOf(w Window) int {
	rates, _ := w.typeLevels()
	return rates
}

// rateSteps adds the events of a window to its steps, the last of which has the number last.
func (h *history) rateSteps(w Window, steps []Rates, last int64) {
	first := last - int64(len(steps)) + 1
	for _, s := range h.rates[rateLevelOf(w)].after(first - 1) {
		steps[min(s.At-first, int64(len(steps)-1))].Add(s.V)
	}
}

// timesIn adds how long tasks waited and ran in a window.
func (h *history) timesIn(w Window, second int64, wait, run *LogHistogram) {
	_, i := w.typeLevels()
	l := typeTimeLevels[i]
	for _, s := range h.times[i].after(l.at(second) - int64(time.Duration(w)/l.step)) {
		s.V.addTo(wait, run)
	}
}

func (h *history) slowest(second int64) (list []Slow) {
	for _, s := range h.slow.slots {
		for _, x := range s.V {
			if x.At > second-int64(time.Hour/time.Second) {
				list = append(list, x)
			}
		}
	}
	return list
}

// slowestOf returns the slowest of some runs.
func slowestOf(list []Slow) []Slow {
	sortSlow(list)
	return list[:min(len(list), maxSlowest)]
}

// failingOf returns the failures of a type in the last hour; nil if there are none.
func failingOf(queue, typ string, t *typeFigures, second int64) []Failing {
	x := Failing{Queue: queue, Type: typ, Last: t.last}
	for _, s := range t.fails.after(failLevel.at(second) - failLevel.keep) {
		x.Failures += uint64(s.V)
	}
	if x.Failures == 0 {
		return nil
	}
	return []Failing{x}
}

// fineTime is the age from which on two periods around a time are measured in steps of 15 minutes instead of minutes. maxPeriod bounds
// their length.
const (
	fineTime  = 30 * time.Minute
	maxPeriod = time.Hour
)

// periodsAround returns two periods of the same length, made of complete steps: one until the step that contains the time, and one from the
// end of that step. The step itself belongs to both, so it counts in neither. nil: no step is complete since then, or it is too long ago.
func periodsAround(at, now time.Time) (before, after *Period) {
	age := now.Sub(at)
	if at.IsZero() || age <= 0 || age > 24*time.Hour {
		return nil, nil
	}
	l := typeTimeLevels[0]
	if age >= fineTime {
		l = typeTimeLevels[1]
	}
	step, middle := int64(l.step/time.Second), l.at(at.Unix())
	n := min(l.at(now.Unix())-1-middle, int64(maxPeriod/l.step))
	if n < 1 {
		return nil, nil
	}
	return &Period{From: (middle - n) * step, Seconds: n * step}, &Period{From: (middle + 1) * step, Seconds: n * step}
}

// addPeriod adds what happened to a type in a period, in the finest steps that are kept for that long.
func (h *history) addPeriod(p *Period) {
	i := 0
	if p.Seconds%int64(typeTimeLevels[1].step/time.Second) == 0 && p.From%int64(typeTimeLevels[1].step/time.Second) == 0 {
		i = 1
	}
	l := typeTimeLevels[i]
	first, end := l.at(p.From), l.at(p.From+p.Seconds)
	for _, s := range h.rates[i+1].after(first - 1) {
		if s.At < end {
			p.Rates.Add(s.V)
		}
	}
	var wait LogHistogram
	for _, s := range h.times[i].after(first - 1) {
		if s.At < end {
			s.V.addTo(&wait, &p.Run)
		}
	}
}

// Add adds what another node counted in the same window and around the same time. Their clocks may differ by some steps.
func (r *TypeReport) Add(o TypeReport) {
	if o.Last > r.Last {
		*r, o = o, *r
	}
	for i, rates := range o.Rates {
		if at := i + len(r.Rates) - len(o.Rates) - int(r.Last-o.Last); at >= 0 {
			r.Rates[at].Add(rates)
		}
	}
	r.Span = max(r.Span, o.Span)
	r.Wait.Add(&o.Wait)
	r.Run.Add(&o.Run)
	r.Failing = addFailing(r.Failing, o.Failing)
	r.Slowest = slowestOf(append(r.Slowest, o.Slowest...))
	r.Before, r.After = addedPeriods(r.Before, o.Before), addedPeriods(r.After, o.After)
	r.Queues = append(r.Queues, o.Queues...)
	slices.Sort(r.Queues)
	r.Queues = slices.Compact(r.Queues)
}

// addedPeriods returns the sum of the same period at two nodes. If they differ, because a clock is wrong, it returns the first.
func addedPeriods(p, o *Period) *Period {
	if p == nil || o == nil || p.From != o.From || p.Seconds != o.Seconds {
		if p == nil {
			return o
		}
		return p
	}
	p.Rates.Add(o.Rates)
	p.Run.Add(&o.Run)
	return p
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.SortFunc(all, strings.Compare)
	return slices.Compact(all)
}

// Total returns the sum of all steps.
func (r *TypeReport) Total() Rates { return totalOf(r.Rates) }

func totalOf(steps []Rates) (sum Rates) {
	for _, rates := range steps {
		sum.Add(rates)
	}
	return sum
}
