package stats

import (
	"maps"
	"slices"
)

// savedHistory is what survives a restart of a type in a queue.
type savedHistory struct {
	_     struct{} `cbor:",toarray"`
	Queue Queue
	Type  string
	Seen  int64
	Rates [len(typeRateLevels)][]slot[Rates]
	Times [len(typeTimeLevels)][]slot[packed]
	Slow  []slot[[]Slow]
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
	f := r.find(q)
	if f == nil {
		return list
	}
	for typ, t := range f.types {
		t.flush(r)
		s := savedHistory{Queue: q, Type: typ, Seen: t.seen, Slow: kept(&t.slow, slowLevel, r.second)}
		for i, l := range typeRateLevels {
			s.Rates[i] = kept(&t.rates[i], l, r.second)
		}
		for i, l := range typeTimeLevels {
			s.Times[i] = kept(&t.times[i], l, r.second)
		}
		for i := range s.Slow {
			s.Slow[i].V = slices.Clone(s.Slow[i].V)
		}
		if len(s.Rates[len(s.Rates)-1]) > 0 {
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
	for i := range t.rates {
		t.rates[i].slots = s.Rates[i]
	}
	for i := range t.times {
		t.times[i].slots = s.Times[i]
	}
	t.slow.slots = s.Slow
	t.dropAfter(second)
}
