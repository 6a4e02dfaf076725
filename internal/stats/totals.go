package stats

import (
	"cmp"
	"maps"
	"slices"
)

// Totals holds the figures of a queue since the process began, or since the queue was last dropped.
type Totals struct {
	Queue
	Types            []TypeTotals // by name
	Wait, Run, ToAck Histogram    // ready to claimed, claimed to the end of the run, claimed to acked
}

// TypeTotals holds the figures of a type.
type TypeTotals struct {
	Type   string
	Counts [numCounters]uint64 // by Counter
}

// Totals calls each for all queues, by name. It holds the lock for one queue at a time.
func (r *Recorder) Totals(each func(*Totals)) {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.queues))
	r.mu.Unlock()
	slices.SortFunc(all, func(x, y Queue) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	var t Totals
	for _, q := range all {
		if r.totals(q, &t) {
			each(&t)
		}
	}
}

func (r *Recorder) totals(q Queue, t *Totals) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.find(q)
	if f == nil {
		return false
	}
	t.Queue, t.Wait, t.Run, t.ToAck, t.Types = q, f.wait, f.run, f.toAck, t.Types[:0]
	for typ, x := range f.types {
		t.Types = append(t.Types, TypeTotals{typ, x.counts})
	}
	slices.SortFunc(t.Types, func(x, y TypeTotals) int { return cmp.Compare(x.Type, y.Type) })
	return true
}

// StaleTotal is the number of verbs on claims refused for a reason.
type StaleTotal struct {
	Namespace, Reason string
	Count             uint64
}

// StaleTotals lists them by namespace and reason.
func (r *Recorder) StaleTotals() (list []StaleTotal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, n := range r.stale {
		list = append(list, StaleTotal{of[0], of[1], n})
	}
	slices.SortFunc(list, func(x, y StaleTotal) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Reason, y.Reason))
	})
	return list
}

// TickTotals holds the outcomes of the ticks of a namespace's schedules.
type TickTotals struct {
	Namespace string
	Delay     Histogram
	Skipped   map[string]uint64 // by reason
}

// TickTotals lists them by namespace.
func (r *Recorder) TickTotals() (list []TickTotals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ns := range slices.Sorted(maps.Keys(r.schedules)) {
		s := r.schedules[ns]
		if !r.current(&s.named) {
			continue
		}
		list = append(list, TickTotals{ns, s.delay, maps.Clone(s.skipped)})
	}
	return list
}
