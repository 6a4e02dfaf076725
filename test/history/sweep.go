package history

import (
	"cmp"
	"slices"
	"sort"
)

// Indexes of answers are not trusted: this sweep ensures that a broker can't invent an order.

// moment is an event with a position in some order.
type moment struct {
	at int64
	*event
}

// shardLog is the answers of one shard.
type shardLog struct {
	returns []moment // in the order of the answers
	latest  []int64  // the latest shard time in any answer by then
}

// sweep checks, for each shard, that the log keeps the order of real time, that shard time keeps the order of the log (I11), and that
// shard time is near the wall clock (I7).
func (b *book) sweep() {
	b.logs = map[uint32]*shardLog{}
	add := func(e *event) {
		if e.Index == 0 || e.Code != OK && e.Code != Refused {
			return
		}
		log := b.logs[e.Shard]
		if log == nil {
			log = &shardLog{}
			b.logs[e.Shard] = log
		}
		log.returns = append(log.returns, moment{e.ReturnNS, e})
		b.clock(e)
	}
	for i := range b.loose {
		add(&b.loose[i])
	}
	for _, l := range b.lives {
		for i := range l.events {
			add(&l.events[i])
		}
	}
	for _, log := range b.logs {
		b.realTime(log)
		b.shardTime(log)
	}
}

func byMoment(a, b moment) int { return cmp.Compare(a.at, b.at) }

// realTime: a call that was answered before another one was made precedes it in the log. Answers of one entry may have the same
// index, and reads have the index of the entry that they followed. But a call that changed something was not made after an answer
// with its index.
func (b *book) realTime(log *shardLog) {
	slices.SortFunc(log.returns, byMoment)
	calls := make([]moment, len(log.returns))
	log.latest = make([]int64, len(log.returns))
	latest := int64(0)
	for i, m := range log.returns {
		calls[i] = moment{m.CallNS, m.event}
		latest = max(latest, m.TimeUS)
		log.latest[i] = latest
	}
	slices.SortFunc(calls, byMoment)
	var furthest, reported *event // one wrong index contradicts all that follow, so it is reported once
	returned := 0
	for _, m := range calls {
		for ; returned < len(log.returns) && log.returns[returned].at < m.at; returned++ {
			if e := log.returns[returned].event; furthest == nil || e.Index > furthest.Index {
				furthest = e
			}
		}
		if furthest == nil || furthest == reported {
			continue
		}
		switch {
		case m.Index < furthest.Index:
			reported = furthest
			b.violation(fault{Order, "answered with a state older than one that it had reported"}, m.Task, furthest.Record, m.Record)
		case m.Index == furthest.Index && m.wrote && !m.Retried:
			reported = furthest
			b.violation(fault{Order, "changed an entry of the log that it had reported"}, m.Task, furthest.Record, m.Record)
		}
	}
}

// shardTime: shard time never decreases along the log, and an entry has one time. A read has the time of the leader that answered
// it, which is not in the log, but is not before the time of its entry.
func (b *book) shardTime(log *shardLog) {
	var order []moment
	for _, m := range log.returns {
		if m.TimeUS != 0 && !m.Retried {
			order = append(order, moment{int64(m.Index), m.event})
		}
	}
	slices.SortFunc(order, func(a, b moment) int {
		if c := byMoment(a, b); c != 0 || a.wrote == b.wrote {
			return c
		}
		if a.wrote {
			return -1
		}
		return 1
	})
	var last *event // the last event that changed something
	for _, m := range order {
		switch {
		case last == nil:
		case m.wrote && m.Index == last.Index && m.TimeUS != last.TimeUS:
			b.violation(fault{Order, "one entry of the log has two times"}, m.Task, last.Record, m.Record)
		case m.TimeUS < last.TimeUS:
			b.violation(fault{Order, "shard time fell"}, m.Task, last.Record, m.Record)
		}
		if m.wrote {
			last = m.event
		}
	}
}

// clock: the time of a shard is near the wall clock at some moment during the call.
func (b *book) clock(e *event) {
	bound := b.o.ClockBound.Microseconds()
	if bound == 0 || e.TimeUS == 0 || e.Retried {
		return
	}
	began := b.o.Began.UnixMicro()
	if e.TimeUS < began+e.CallNS/1000-bound || e.TimeUS > began+e.ReturnNS/1000+1+bound {
		b.violation(fault{Early, "shard time is far from the wall clock"}, e.Task, e.Record)
	}
}

// floor returns a shard time that was in an answer before a call was made, so that the call can't have taken effect earlier.
func (b *book) floor(shard uint32, callNS int64) int64 {
	log := b.logs[shard]
	if log == nil {
		return 0
	}
	n := sort.Search(len(log.returns), func(i int) bool { return log.returns[i].at >= callNS })
	if n == 0 {
		return 0
	}
	return log.latest[n-1]
}
