package stats

import (
	"strings"
	"sync"
	"time"
)

const (
	// maxQueues bounds the queues with figures of their own, maxTypes the types of each, maxAllTypes those of all queues. Anything beyond
	// counts as Other.
	maxQueues   = 1000
	maxTypes    = 100
	maxAllTypes = 2000
	// idleTime is how long a queue must have had no events before another may replace it, roomEvery how often to look for such a queue.
	idleTime  = 5 * time.Minute
	roomEvery = time.Second
	// clockBack is how many seconds the clock may be behind the last event before it is taken to have been set back.
	clockBack = 5
)

// Other stands for all queues, or all types of a queue, without figures of their own.
const Other = "_other"

// Queue names a queue.
type Queue struct{ Namespace, Name string }

// Recorder holds the figures of a node. Its methods may be called from any goroutine.
//
// A queue or namespace that was removed has no figures, and one that was created under its name has none of the earlier one.
//
// An event is first added to the figures of the current second. When that is over, they are added to all levels and to the namespace, so
// that an event costs the same however much is kept of it.
type Recorder struct {
	// Born returns which queue of its name there is, or, with an empty name, which namespace: a number above 0 that grows
	// with each, such as the time at which it was created in nanoseconds; 0: there is none. It is not known while the node
	// has not heard which there are. Born may be nil, is set before the first event, and must not call the recorder.
	Born func(Queue) (born int64, known bool)

	mu        sync.Mutex
	since     time.Time // start of what it knows, perhaps from what another process saved
	second    int64     // of the last event
	tens      int64     // its step of 10 s
	queues    map[Queue]*figures
	spaces    map[string]*figures
	dirty     []*figures // those with events in this second
	types     int
	roomAfter int64 // when to look for a place for a queue again
	// typeRoomAfter is when to look for a place for a type again.
	typeRoomAfter int64

	stale     map[[2]string]uint64 // refused verbs on claims, by namespace and reason
	schedules map[string]*ticks
}

// named says whose figures something holds: those of a queue, or of a namespace, whose queue has no name.
type named struct {
	Queue
	born int64 // which of its name; 0: it was not known when the last event happened
	last int64 // second of the last event
}

// current reports whether figures are those of the queue or namespace that exists now, as far as is known.
func (r *Recorder) current(n *named) bool {
	of := n.Queue
	if of.Name == Other {
		of.Name = ""
	}
	born, known := int64(0), false
	if r.Born != nil {
		born, known = r.Born(of)
	}
	if n.born == 0 && n.last+clockBack >= born/int64(time.Second) {
		n.born = born
	}
	return !known || n.born == born
}

// exists reports whether there is a namespace, as far as is known.
func (r *Recorder) exists(ns string) bool {
	if r.Born == nil {
		return true
	}
	born, known := r.Born(Queue{Namespace: ns})
	return !known || born != 0
}

// find returns the figures of a queue that exists; nil: it has none.
func (r *Recorder) find(q Queue) *figures {
	if f := r.queues[q]; f != nil && r.current(&f.named) {
		return f
	}
	return nil
}

// figures holds the figures of a queue, or of a namespace as a whole.
type figures struct {
	named
	typeRoomAfter int64 // when to look for a place for a type again

	// Of this second.
	dirty             bool
	counts            Rates
	waits, runs       stepHistogram
	anyWaits, anyRuns bool
	rates             [len(rateLevels)]series[Rates]
	times             [len(timeLevels)]series[times]
	wait, run, toAck  Histogram // since the process began
	types             map[string]*typeFigures
	lastType          *typeFigures
	lastTypeName      string
}

// times holds how long tasks waited and ran in a step of time.
type times struct {
	_         struct{} `cbor:",toarray"`
	Wait, Run stepHistogram
}

// typeFigures holds the figures of one type in a queue.
type typeFigures struct {
	counts [numCounters]uint64 // since the process began
	fails  series[uint32]      // attempts that ended badly
	last   Failure
	history
}

// Failure is the last failed attempt of a type.
type Failure struct {
	At               time.Time
	Error, ErrorType string
}

// New returns an empty recorder that begins at now.
func New(now time.Time) *Recorder {
	return &Recorder{since: now, queues: map[Queue]*figures{}, spaces: map[string]*figures{}, stale: map[[2]string]uint64{},
		schedules: map[string]*ticks{}}
}

// Record counts events that have just happened. It does not retain the slice.
func (r *Recorder) Record(now time.Time, events []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now.Unix())
	var f *figures
	for i := range events {
		e := &events[i]
		if f == nil || f.Name != e.Queue || f.Namespace != e.Namespace {
			f = r.figures(Queue{e.Namespace, e.Queue})
		}
		r.add(f, e)
	}
}

// advance moves on to a second.
func (r *Recorder) advance(second int64) {
	switch {
	case second > r.second:
		r.flush()
		r.second, r.tens = second, second/10
	case second < r.second-clockBack:
		r.flush()
		r.second, r.tens = second, second/10
		r.roomAfter, r.typeRoomAfter = 0, 0
		for _, f := range r.queues {
			f.dropAfter(second)
		}
		for _, f := range r.spaces {
			f.dropAfter(second)
		}
	}
}

func (f *figures) dropAfter(second int64) {
	f.last, f.typeRoomAfter = min(f.last, second), 0
	for i, l := range rateLevels {
		f.rates[i].dropAfter(l.at(second))
	}
	for i, l := range timeLevels {
		f.times[i].dropAfter(l.at(second))
	}
	for _, t := range f.types {
		t.dropAfter(second)
		t.fails.dropAfter(failLevel.at(second))
	}
}

// figures returns the figures of a queue, which it creates if there is room, or else those of Other.
func (r *Recorder) figures(q Queue) *figures {
	f := r.queues[q]
	if f != nil && (f.dirty || r.current(&f.named)) {
		return f
	}
	if f != nil {
		r.drop(f)
	}
	if len(r.queues) >= maxQueues && q.Name != Other && !r.makeRoom() {
		return r.figures(Queue{q.Namespace, Other})
	}
	f = &figures{named: named{Queue: q, last: r.second}, types: map[string]*typeFigures{}}
	r.current(&f.named)
	r.queues[q] = f
	return f
}

// drop forgets the figures of a queue, which have no events in this second.
func (r *Recorder) drop(f *figures) {
	r.types -= len(f.types)
	delete(r.queues, f.Queue)
}

// makeRoom drops the queue that has had no events for longest, if that is long enough.
func (r *Recorder) makeRoom() bool {
	if r.second < r.roomAfter {
		return false
	}
	var idle *figures
	for _, f := range r.queues {
		if f.Name != Other && (idle == nil || f.last < idle.last) {
			idle = f
		}
	}
	if idle == nil || idle.last > r.second-int64(idleTime/time.Second) {
		r.roomAfter = r.second + int64(roomEvery/time.Second)
		return false
	}
	r.drop(idle)
	return true
}

func (r *Recorder) add(f *figures, e *Event) {
	if !f.dirty {
		f.dirty, f.last = true, r.second
		r.dirty = append(r.dirty, f)
	}
	t := r.typeOf(f, e.Type)
	t.advance(r)
	for s := e.Counts; s != 0; s &= s - 1 {
		c := lowest(s)
		t.counts[c]++
		f.counts.count(c)
		t.history.counts.count(c)
	}
	if e.Readied {
		f.counts.Readied++
	}
	if e.Counts.Has(Claimed) {
		bucket := bucketOf(e.Waited)
		f.wait.observe(bucket, e.Waited)
		f.waits.observe(bucket, e.Waited)
		t.waits.observe(e.Waited)
		f.anyWaits, t.anyTimes = true, true
	}
	if e.Counts&ended != 0 && e.Ran >= 0 {
		r.addRun(f, t, e)
	}
	if e.Counts&bad != 0 {
		*t.fails.now(failLevel.at(r.second), failLevel.keep)++
		t.last = Failure{At: time.Unix(r.second, 0).UTC(), Error: strings.Clone(e.Error), ErrorType: strings.Clone(e.ErrorType)}
	}
}

// addRun records how long a run took.
func (r *Recorder) addRun(f *figures, t *typeFigures, e *Event) {
	bucket := bucketOf(e.Ran)
	f.run.observe(bucket, e.Ran)
	f.runs.observe(bucket, e.Ran)
	t.runs.observe(e.Ran)
	f.anyRuns, t.anyTimes = true, true
	if e.Counts.Has(Succeeded) {
		f.toAck.observe(bucket, e.Ran)
	}
	if e.Ran > t.slowFrom {
		t.addSlow(e, r.second)
	}
}

const (
	ended = Set(1)<<Succeeded | 1<<Failed | 1<<TimedOut | 1<<Poisoned | 1<<Discarded
	bad   = Set(1)<<Failed | 1<<Crashed | 1<<TimedOut | 1<<Poisoned
)

// flush adds the events of this second to all levels.
func (r *Recorder) flush() {
	for _, f := range r.dirty {
		space := r.spaces[f.Namespace]
		if space == nil || !r.current(&space.named) {
			space = &figures{named: named{Queue: Queue{Namespace: f.Namespace}, last: r.second}}
			r.current(&space.named)
			r.spaces[f.Namespace] = space
		}
		for _, to := range [...]*figures{f, space} {
			to.addSecond(f, r.second)
		}
		f.dirty, f.counts, f.waits, f.runs, f.anyWaits, f.anyRuns = false, Rates{}, stepHistogram{}, stepHistogram{}, false, false
	}
	clear(r.dirty)
	r.dirty = r.dirty[:0]
}

// addSecond adds the current second of another.
func (f *figures) addSecond(of *figures, second int64) {
	f.last = second
	for i, l := range rateLevels {
		f.rates[i].now(l.at(second), l.keep).Add(of.counts)
	}
	if !of.anyWaits && !of.anyRuns {
		return
	}
	for i, l := range timeLevels {
		t := f.times[i].now(l.at(second), l.keep)
		t.Wait.add(&of.waits)
		t.Run.add(&of.runs)
	}
}

// typeOf returns the figures of a type, or those of Other.
func (r *Recorder) typeOf(f *figures, typ string) *typeFigures {
	if f.lastType != nil && f.lastTypeName == typ {
		return f.lastType
	}
	t := f.types[typ]
	if t == nil && !r.hasTypeRoom(f) {
		typ = Other
		t = f.types[typ]
	}
	if t == nil {
		t = &typeFigures{}
		f.types[typ] = t
		r.types++
	}
	f.lastType, f.lastTypeName = t, typ
	return t
}

// Stale counts a verb on a claim that was refused because the claim was no longer valid.
func (r *Recorder) Stale(namespace, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale[[2]string{namespace, reason}]++
}
