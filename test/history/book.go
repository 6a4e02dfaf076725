package history

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// book is a history sorted by task.
type book struct {
	o     Options
	calls int
	lives []*life
	byID  map[string]*life
	loose []event // calls that name no task
	logs  map[uint32]*shardLog

	mu     sync.Mutex // guards report: searches run concurrently
	report Report
}

// life is what was recorded of one task.
type life struct {
	id     string
	events []event
	final  bool // there is a final read
	known  bool // an answer says that the task exists
	judged bool // it has a violation, or is undecided
	open   bool // an unanswered call, or an answer without an index, may have moved it
}

// newBook sorts records by task.
func newBook(records []Record, o Options) *book {
	b := &book{o: o, calls: len(records) + len(o.Final), byID: make(map[string]*life, len(records)/4)}
	owner := make([]*life, 0, b.calls)
	loose := 0
	sizes := map[*life]int{}
	count := func(all []Record) {
		for i := range all {
			l := b.lifeOf(all[i].Task)
			if owner = append(owner, l); l == nil {
				loose++
			} else {
				sizes[l]++
			}
		}
	}
	count(records)
	count(o.Final)
	room := make([]event, b.calls-loose)
	for _, l := range b.lives {
		n := sizes[l]
		l.events, room = room[:0:n], room[n:]
	}
	b.loose = make([]event, 0, loose)
	for i, l := range owner {
		e := event{}
		if i < len(records) {
			e.Record = &records[i]
		} else {
			e.Record, e.final = &o.Final[i-len(records)], true
		}
		b.enter(l, e)
	}
	return b
}

func (b *book) lifeOf(id string) *life {
	if id == "" {
		return nil
	}
	l := b.byID[id]
	if l == nil {
		l = &life{id: id}
		b.byID[id] = l
		b.lives = append(b.lives, l)
	}
	return l
}

// enter files an event and sets its times.
//
// A call that was sent more than once is treated as an unanswered call and an answered one. Claims are an exception:
// the answer to the last sending is also that to the first.
func (b *book) enter(l *life, e event) {
	if e.Retried && e.Op != Claim {
		first, last := *e.Record, *e.Record
		first.Answer, first.Retried, last.Retried = Answer{Code: Unknown}, false, false
		b.enter(l, event{Record: &first})
		e.Record = &last
	}
	e.from, e.to = b.times(e.Record)
	if l == nil {
		b.loose = append(b.loose, e)
		return
	}
	l.final = l.final || e.final
	l.known = l.known || e.Code == OK || e.Code == Refused && e.Reason != NotFound
	l.events = append(l.events, e)
}

// times returns the range of shard times in which a call took effect, as far as the record says.
func (b *book) times(r *Record) (from, to int64) {
	from, to = 0, anyTime
	if bound := b.o.ClockBound.Microseconds(); bound > 0 {
		from = b.o.Began.UnixMicro() + r.CallNS/1000 - bound
		to = b.o.Began.UnixMicro() + r.ReturnNS/1000 + 1 + bound
	}
	switch {
	case r.Code == Unknown:
		to = anyTime
	case r.TimeUS != 0 && r.Retried:
		to = r.TimeUS
	case r.TimeUS != 0:
		from, to = r.TimeUS, r.TimeUS
	}
	return from, to
}

// enqueue returns the first record that may have created the task, preferably an answered one.
func (l *life) enqueue() (made *Record) {
	for i := range l.events {
		r := l.events[i].Record
		if r.Op != Enqueue || r.Code != OK && r.Code != Unknown {
			continue
		}
		if made == nil || made.Code == Unknown && r.Code == OK {
			made = r
		}
	}
	return made
}

// open returns the tasks that can't be checked by the log alone.
func (b *book) open() (lives []*life) {
	for _, l := range b.lives {
		if l.open && !l.judged {
			lives = append(lives, l)
		}
	}
	b.report.Searched = len(lives)
	return lives
}

// sample returns some of the replayed tasks, evenly spread.
func (b *book) sample() []*life {
	n := b.o.Sample
	if n == 0 {
		n = defaultSample
	}
	var whole []*life
	for _, l := range b.lives {
		if !l.open && !l.judged && len(l.events) > 0 {
			whole = append(whole, l)
		}
	}
	if n >= len(whole) {
		return whole
	}
	picked := make([]*life, 0, max(n, 0))
	for i := range n {
		picked = append(picked, whole[i*len(whole)/n])
	}
	return picked
}

// sortByLog sorts events in log order; those in one entry in the order of their calls.
func sortByLog(events []event) {
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.TimeUS, b.TimeUS), cmp.Compare(a.CallNS, b.CallNS))
	})
}

// returned is the latest time at which a call may take effect, by the clients' clock.
func (e *event) returned() int64 {
	if e.Code == Unknown || e.lapse {
		return math.MaxInt64
	}
	return e.ReturnNS
}

// side calls do for every task, concurrently.
func side(lives []*life, do func(*life)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(lives)); i = next.Add(1) - 1 {
				do(lives[i])
			}
		})
	}
	workers.Wait()
}
