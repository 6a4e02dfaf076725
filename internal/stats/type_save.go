package stats

import (
	"maps"
	"slices"
)

// savedHistory is what survives a restart of a type in a queue: the steps of 1 min and longer.
type savedHistory struct {
	_        struct{} `cbor:",toarray"`
	Queue    Queue
	Type     string
	Seen     int64
	Minutes  []slot[Rates]
	Quarters []slot[Rates] // of 15 minutes
	Short    []slot[packed]
	Long     []slot[packed]
	Slow     []slot[[]Slow]
}

// savedHistories copies the histories of all types. It holds the lock for one queue at a time.
func (r *Recorder) savedHistories() (list []savedHistory) {
	r.mu.Lock()
	queues := slices.Collect(maps.Keys(r.queues))
	r.mu.Unlock()
	for _, q := range queues {
		list = r.appendHistories(list, q)
	}
	return list
}

func (r *Recorder) appendHistories(list []savedHistory, q Queue) []savedHistory {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.queues[q]
	if f == nil {
		return list
	}
	for typ, t := range f.types {
		t.flush(r)
		s := savedHistory{Queue: q, Type: typ, Seen: t.seen, Minutes: kept(&t.rates[1], typeRateLevels[1], r.second), Quarters: kept(&t.rates[2], typeRateLevels[2], r.second),
			Short: kept(&t.times[0], typeTimeLevels[0], r.second), Long: kept(&t.times[1], typeTimeLevels[1], r.second), Slow: kept(&t.slow, slowLevel, r.second)}
		for i := range s.Slow {
			s.Slow[i].V = slices.Clone(s.Slow[i].V)
		}
		if len(s.Quarters) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// loadHistory loads the history of a type, if its queue and it fit.
func (r *Recorder) loadHistory(s *savedHistory, second int64) {
	f := r.queues[s.Queue]
	if f == nil {
		return
	}
	t := f.types[s.Type]
	if t == nil {
		if r.types >= maxAllTypes || len(f.types) > maxTypes {
			return
		}
		t = &typeFigures{}
		f.types[s.Type] = t
		r.types++
	}
	t.seen = s.Seen
	t.rates[1].slots, t.rates[2].slots = s.Minutes, s.Quarters
	t.times[0].slots, t.times[1].slots = s.Short, s.Long
	t.slow.slots = s.Slow
	t.dropAfter(second)
}
