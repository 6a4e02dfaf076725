package stats

import "time"

// Trend is the course of a queue in a window, in at most 60 steps: enough for a small chart.
type Trend struct {
	Last  int64  // number of the last step since 1970: the current one
	Steps []Flow // oldest first
}

// Flow counts, for a step, the tasks that entered and left, the attempts that failed, and how many of those that left succeeded or were
// poison.
type Flow struct {
	In, Out, Failed     uint32
	Succeeded, Poisoned uint32
}

// trend returns the level of the rates that the window's trends are made of, and how many of its steps are merged into one.
func (w Window) trend() (rates int, merged int64) {
	rates, _ = w.levels()
	switch w {
	case Minutes2:
		return rates, 2
	case Minutes5:
		return rates, 1
	}
	return rates, 6
}

// TrendStep returns the length of a step of the window's trends.
func (w Window) TrendStep() time.Duration {
	rates, merged := w.trend()
	return rateLevels[rates].step * time.Duration(merged)
}

// Trends returns the trends of some queues, in their order. All steps are empty if nothing happened, or the queue counts as Other.
func (r *Recorder) Trends(now time.Time, namespace string, names []string, w Window) []Trend {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now.Unix())
	r.flush()
	rates, merged := w.trend()
	last := rateLevels[rates].at(r.second) / merged
	count := int64(time.Duration(w) / w.TrendStep())
	first := last - count + 1
	out := make([]Trend, len(names))
	for i, name := range names {
		out[i] = Trend{Last: last, Steps: make([]Flow, count)}
		f := r.find(Queue{namespace, name})
		if f == nil {
			continue
		}
		for _, s := range f.rates[rates].after(first*merged - 1) {
			out[i].Steps[min(s.At/merged-first, count-1)].add(flowOf(s.V))
		}
	}
	return out
}

func (f *Flow) add(o Flow) {
	f.In, f.Out, f.Failed = f.In+o.In, f.Out+o.Out, f.Failed+o.Failed
	f.Succeeded, f.Poisoned = f.Succeeded+o.Succeeded, f.Poisoned+o.Poisoned
}

// Add adds what another node counted in the same window. Their clocks may differ by some steps.
func (t *Trend) Add(o Trend) {
	if o.Last > t.Last {
		*t, o = o, *t
	}
	for i, f := range o.Steps {
		if at := i + len(t.Steps) - len(o.Steps) - int(t.Last-o.Last); at >= 0 {
			t.Steps[at].add(f)
		}
	}
}
