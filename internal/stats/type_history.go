package stats

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// What is kept of one type in a queue: its events in steps of 10 s for 5 minutes, 1 min for an hour and 15 min for 25 hours, how long its
// tasks waited and ran in the latter two, and the slowest runs of an hour. TestTypeSize measures the memory that this takes.
var (
	typeRateLevels = [...]level{{10 * time.Second, 31}, {time.Minute, 61}, {15 * time.Minute, 101}}
	typeTimeLevels = [...]level{{time.Minute, 61}, {15 * time.Minute, 101}}
	slowLevel      = level{10 * time.Minute, 7}
)

// maxSlow is how many of the slowest runs of a type are kept per 10 minutes, maxSlowest how many of an hour a report lists.
const (
	maxSlow    = 5
	maxSlowest = 10
)

// Slow is a slow run of a task.
type Slow struct {
	_      struct{} `cbor:",toarray"`
	Task   [16]byte
	Worker string
	Ran    time.Duration
	At     int64 // second of its end
	Failed bool
}

// history is what happened to the tasks of a type over time. Events count in the current step of 10 s, and times in the current minute.
// They are added to all levels when that is over, or when somebody reads them, so that an event costs the same however much is kept.
type history struct {
	tens, minute int64 // numbers of the current steps
	seen         int64 // the last step of 10 s with events, before the current one
	counts       Rates
	waits, runs  logCounts
	anyTimes     bool
	rates        [len(typeRateLevels)]series[Rates]
	times        [len(typeTimeLevels)]series[packed]
	slow         series[[]Slow]
	slowFrom     time.Duration // a run must take longer to be among the slowest of its 10 minutes
}

// advance moves on to the recorder's second.
func (h *history) advance(b *Recorder) {
	if h.tens == b.tens {
		return
	}
	h.flushRates()
	h.tens = b.tens
	if minute := typeTimeLevels[0].at(b.second); minute != h.minute {
		h.flushTimes()
		if slowLevel.at(b.second) != h.minute/10 {
			h.slowFrom = 0
		}
		h.minute = minute
	}
}

// flush adds the current steps to all levels.
func (h *history) flush(b *Recorder) {
	h.advance(b)
	h.flushRates()
	h.flushTimes()
}

func (h *history) flushRates() {
	if h.counts == (Rates{}) {
		return
	}
	for i, l := range typeRateLevels {
		h.rates[i].now(l.at(h.tens*10), l.keep).Add(h.counts)
	}
	h.counts, h.seen = Rates{}, h.tens
}

// lastSeen returns the last step of 10 s with events.
func (h *history) lastSeen() int64 {
	if h.counts != (Rates{}) {
		return h.tens
	}
	return h.seen
}

func (h *history) flushTimes() {
	if !h.anyTimes {
		return
	}
	for i, l := range typeTimeLevels {
		var wait, run LogHistogram
		h.waits.addTo(&wait)
		h.runs.addTo(&run)
		p := h.times[i].now(l.at(h.minute*60), l.keep)
		p.addTo(&wait, &run)
		*p = pack(&wait, &run)
	}
	h.waits, h.runs, h.anyTimes = logCounts{}, logCounts{}, false
}

// addSlow keeps a run if it is among the slowest of its 10 minutes.
func (h *history) addSlow(e *Event, second int64) {
	list := h.slow.now(slowLevel.at(second), slowLevel.keep)
	if *list == nil {
		*list = make([]Slow, 0, maxSlow+1)
	}
	*list = append(*list, Slow{Task: e.Task, Worker: strings.Clone(e.Worker), Ran: e.Ran, At: second, Failed: !e.Counts.Has(Succeeded)})
	sortSlow(*list)
	if len(*list) > maxSlow {
		*list = (*list)[:maxSlow]
	}
	if len(*list) == maxSlow {
		h.slowFrom = (*list)[maxSlow-1].Ran
	}
}

func sortSlow(list []Slow) {
	slices.SortFunc(list, func(a, b Slow) int { return cmp.Or(cmp.Compare(b.Ran, a.Ran), cmp.Compare(b.At, a.At)) })
}

func (h *history) dropAfter(second int64) {
	h.tens, h.minute, h.seen, h.slowFrom = min(h.tens, second/10), min(h.minute, second/60), min(h.seen, second/10), 0
	for i, l := range typeRateLevels {
		h.rates[i].dropAfter(l.at(second))
	}
	for i, l := range typeTimeLevels {
		h.times[i].dropAfter(l.at(second))
	}
	h.slow.dropAfter(slowLevel.at(second))
}

// idleType is how long a type must have had no events before another may replace it: nothing is kept of it then.
const idleType = 25 * time.Hour

// hasTypeRoom reports whether a queue may have figures of one more type, and makes room for it.
func (r *Recorder) hasTypeRoom(f *figures) bool {
	own := len(f.types)
	if f.types[Other] != nil {
		own--
	}
	if own >= maxTypes {
		return r.makeTypeRoom(&f.typeRoomAfter, map[Queue]*figures{f.Queue: f})
	}
	return r.types < maxAllTypes || r.makeTypeRoom(&r.typeRoomAfter, r.queues)
}

// makeTypeRoom drops the type of some queues that has had no events for longest, if that is long enough. It looks no sooner than after.
func (r *Recorder) makeTypeRoom(after *int64, among map[Queue]*figures) bool {
	if r.second < *after {
		return false
	}
	var of *figures
	name, oldest := "", r.second-int64(idleType/time.Second)
	for _, f := range among {
		for typ, t := range f.types {
			if seen := t.lastSeen() * 10; typ != Other && seen <= oldest {
				of, name, oldest = f, typ, seen
			}
		}
	}
	if of == nil {
		*after = r.second + int64(roomEvery/time.Second)
		return false
	}
	delete(of.types, name)
	of.lastType = nil
	r.types--
	return true
}
