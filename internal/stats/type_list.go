package stats

import (
	"time"
)

// TypeCount is how much happened to a type in a window: enough to choose those that a list shows.
type TypeCount struct {
	Type              string
	Ended, Bad, Moved uint64 // tasks that left, attempts that failed, and the sum of both and of the tasks that entered
}

// TypeCounts holds the counts of a node.
type TypeCounts struct {
	Counts []TypeCount // in no order
	Span   time.Duration
}

// TypeCounts counts the events of the types of a namespace in a window, in the queues that are wanted, and returns how much of the window
// is known.
func (r *Recorder) TypeCounts(now time.Time, namespace string, w Window, wanted func(queue, typ string) bool) TypeCounts {
	out := TypeCounts{Span: r.known(now, w)}
	at := map[string]int{}
	r.eachQueue(now, namespace, func(string) bool { return true }, func(f *figures) {
		for typ, t := range f.types {
			if !wanted(f.Name, typ) {
				continue
			}
			t.advance(r)
			t.flushRates()
			i, known := at[typ]
			if !known {
				i = len(out.Counts)
				at[typ], out.Counts = i, append(out.Counts, TypeCount{Type: typ})
			}
			out.Counts[i].add(t.total(w, r.second))
		}
	})
	return out
}

// eachQueue calls do for every wanted queue of a namespace. It holds the lock for one queue at a time.
func (r *Recorder) eachQueue(now time.Time, namespace string, wanted func(queue string) bool, do func(*figures)) {
	var all []*figures
	r.mu.Lock()
	r.advance(now.Unix())
	for q, f := range r.queues {
		if q.Namespace == namespace && wanted(q.Name) && r.current(&f.named) {
			all = append(all, f)
		}
	}
	r.mu.Unlock()
	for _, f := range all {
		r.mu.Lock()
		do(f)
		r.mu.Unlock()
	}
}

// known returns how much of a window the recorder covers.
func (r *Recorder) known(now time.Time, w Window) time.Duration {
	// since only changes when the recorder is loaded, before anybody reads it.
	return min(max(now.Sub(r.since), time.Second), time.Duration(w))
}

func (c *TypeCount) add(r Rates) {
	c.Ended += uint64(r.Out())
	c.Bad += uint64(r.Bad())
	c.Moved += uint64(r.In()) + uint64(r.Out()) + uint64(r.Bad())
}

// total returns the sum of the events of a window.
func (h *history) total(w Window, second int64) (sum Rates) {
	i, _ := w.typeLevels()
	l := typeRateLevels[i]
	for _, s := range h.rates[i].after(l.at(second) - int64(time.Duration(w)/l.step)) {
		sum.Add(s.V)
	}
	return sum
}

// Add adds what another node counted.
func (c *TypeCounts) Add(o TypeCounts) {
	c.Span = max(c.Span, o.Span)
	at := make(map[string]int, len(c.Counts))
	for i, x := range c.Counts {
		at[x.Type] = i
	}
	for _, x := range o.Counts {
		i, known := at[x.Type]
		if !known {
			c.Counts = append(c.Counts, x)
			continue
		}
		y := &c.Counts[i]
		y.Ended, y.Bad, y.Moved = y.Ended+x.Ended, y.Bad+x.Bad, y.Moved+x.Moved
	}
}

// TypeBrief is the summary of a type in a list.
type TypeBrief struct {
	Queues    []string // those that have had its tasks, by name
	Rates     Rates    // of the window
	Wait, Run LogHistogram
	Trend     Trend
	Last      Failure // zero: none known
}

// typeTrend returns how many steps of the window's rates make one step of a small chart.
func (w Window) typeTrend() int64 {
	if w == Day {
		return 2
	}
	return 1
}

// TypeTrendStep returns the length of a step of a small chart.
func (w Window) TypeTrendStep() time.Duration { return w.TypeStep() * time.Duration(w.typeTrend()) }

// TypeBriefs returns the summaries of some types in a window, in their order, over the queues that are wanted.
func (r *Recorder) TypeBriefs(now time.Time, namespace string, w Window, types []string, wanted func(queue string) bool) []TypeBrief {
	out := make([]TypeBrief, len(types))
	step := int64(w.TypeTrendStep() / time.Second)
	for i := range out {
		out[i].Trend = Trend{Last: now.Unix() / step, Steps: make([]Flow, int64(time.Duration(w)/time.Second)/step)}
	}
	r.eachQueue(now, namespace, wanted, func(f *figures) {
		for i, typ := range types {
			if t := f.types[typ]; t != nil {
				t.flush(r)
				out[i].add(f.Name, t, w, r.second)
			}
		}
	})
	return out
}

func (b *TypeBrief) add(queue string, t *typeFigures, w Window, second int64) {
	b.Queues = union(b.Queues, []string{queue})
	b.Rates.Add(t.total(w, second))
	t.timesIn(w, second, &b.Wait, &b.Run)
	if t.last.At.After(b.Last.At) {
		b.Last = t.last
	}
	merged, count := w.typeTrend(), int64(len(b.Trend.Steps))
	first := b.Trend.Last - count + 1
	for _, s := range t.rates[rateLevelOf(w)].after(first*merged - 1) {
		b.Trend.Steps[min(s.At/merged-first, count-1)].add(flowOf(s.V))
	}
}

func flowOf(r Rates) Flow {
	return Flow{In: r.In(), Out: r.Out(), Failed: r.Bad(), Succeeded: r.Succeeded, Poisoned: r.Poisoned}
}

// Add adds what another node counted.
func (b *TypeBrief) Add(o *TypeBrief) {
	b.Queues = union(b.Queues, o.Queues)
	b.Rates.Add(o.Rates)
	b.Wait.Add(&o.Wait)
	b.Run.Add(&o.Run)
	b.Trend.Add(o.Trend)
	if o.Last.At.After(b.Last.At) {
		b.Last = o.Last
	}
}
