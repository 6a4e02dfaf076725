package events

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBytes bounds the size of the events that a ring keeps, maxAge their age. Beyond either, the oldest are dropped.
	maxBytes = 16 << 20
	maxAge   = 15 * time.Minute
	// keptFor is how long a ring without readers keeps collecting: a reader may come back for what it missed.
	keptFor = 2 * time.Minute
	// gatherTime is how long a reader that waited lets more events arrive, so that a busy shard wakes each reader at most
	// fifty times a second.
	gatherTime = 20 * time.Millisecond
	// pageEvents and pageBytes bound a page, pageLook the events that one read examines.
	pageEvents = 1000
	pageBytes  = 1 << 20
	pageLook   = 200_000
)

// Place is how far a reader has read. The zero Place is that of a new reader.
type Place struct {
	Era    uint32 // of the ring: each Open starts another
	Index  uint64
	Number uint32 // of the last event read in that entry; wholeEntry: all of them
}

// Unknown is the place of a reader that does not know how far it has read: it gets a reset. No era has its number.
var Unknown = Place{Era: 2}

// wholeEntry stands for the last event of an entry.
const wholeEntry = math.MaxUint32

func (p Place) before(index uint64, number uint32) bool {
	return p.Index < index || p.Index == index && p.Number < number
}

// Query asks for the events after a place.
type Query struct {
	Filter Filter
	After  Place
	Wait   time.Duration // for the first event
	// Pulse, if not 0, asks only whether something happened. It is a number that the reader chose, the same in all its queries.
	Pulse uint64 `json:",omitempty"`
}

// Page is the answer to a query.
type Page struct {
	// Reset is set if some events after the place are unknown. The page continues from now, without events.
	Reset  bool
	Events []Event
	// Changed is the answer to a pulse: something matching happened.
	Changed bool
	Next    Place // where to continue
}

// ErrClosed is returned where the ring is not fed.
var ErrClosed = errors.New("events: the shard is not led here")

// Ring holds the events of one shard while it is led here. Committed and Add must be called from the shard's loop; the
// rest may be called from any goroutine.
type Ring struct {
	committed     atomic.Uint64 // index of the last entry
	armed         atomic.Bool   // there is a reader, or was one lately
	waitingPulses atomic.Int32  // pulses without a hit

	mu      sync.Mutex
	open    bool
	era     uint32
	base    Place   // all events after it are known
	entries []entry // in order; an entry that a reader holds is never changed
	bytes   int
	reading int
	last    time.Time     // when the last reader left
	more    chan struct{} // closed when there are more events; nil: nobody waits
	pulses  map[uint64]*pulse
	dropped time.Time // when drop last ran
}

// entry is the events of one log entry.
type entry struct {
	index  uint64
	at     time.Time // by this node's clock
	events []Event
	bytes  int
}

// Open begins a new era, as the shard is now led here. Opening an open ring is a no-op.
func (r *Ring) Open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		return
	}
	r.open, r.era = true, rand.Uint32()|1
	r.committed.Store(0)
	r.reset()
}

// Close ends the era and wakes its readers.
func (r *Ring) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
	r.reset()
}

// clear drops all events. New ones are kept only if there is a reader.
func (r *Ring) clear() {
	r.armed.Store(r.open && r.reading > 0)
	r.entries, r.bytes = nil, 0
	r.base = Place{r.era, r.committed.Load(), wholeEntry}
}

// reset drops the events and the pulses, whose places are those of another era.
func (r *Ring) reset() {
	r.clear()
	for id, p := range r.pulses {
		r.removePulse(id, p)
	}
	r.wake()
}

func (r *Ring) wake() {
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// Interest is what readers want of an entry.
type Interest int

// The interests: nothing; whether something happened (Add only looks at the events); the events themselves, which Add keeps.
const (
	None Interest = iota
	Look
	Keep
)

// Committed records that an entry was committed, and returns what readers want of it. If that is not None, the caller must call Add.
func (r *Ring) Committed(index uint64) Interest {
	r.committed.Store(index)
	switch {
	case r.armed.Load():
		return Keep
	case r.waitingPulses.Load() > 0:
		return Look
	}
	return None
}

// Add takes ownership of the events of the entry last given to Committed, and sets their indexes and numbers. It keeps them only if the
// interest was Keep.
func (r *Ring) Add(index uint64, interest Interest, events []Event) {
	if len(events) == 0 {
		return
	}
	e := entry{index: index, at: time.Now(), events: events}
	for i := range events {
		events[i].Index, events[i].Number = index, uint32(i)+1 // #nosec G115 -- a round has fewer
		e.bytes += events[i].size()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return
	}
	r.notifyPulses(events, e.at)
	if interest != Keep {
		return
	}
	if r.reading == 0 && e.at.Sub(r.last) > keptFor {
		r.clear()
		return
	}
	r.entries = append(r.entries, e)
	r.bytes += e.bytes
	for len(r.entries) > 0 && (r.bytes > maxBytes || e.at.Sub(r.entries[0].at) > maxAge) {
		r.base = Place{r.era, r.entries[0].index, wholeEntry}
		r.bytes -= r.entries[0].bytes
		r.entries = r.entries[1:]
	}
	r.wake()
}

// Read returns a page, waiting up to the query's Wait for the first event. A page without events still says how far the ring was searched.
// A reader with a pulse is notified once that something happened, however many events there were.
func (r *Ring) Read(ctx context.Context, q Query) (Page, error) {
	if q.Pulse != 0 {
		return r.readPulse(ctx, q)
	}
	leave, err := r.enter()
	if err != nil {
		return Page{}, err
	}
	defer leave()
	wait := time.NewTimer(q.Wait)
	defer wait.Stop()
	page := Page{Next: q.After}
	for {
		entries, more, reset, err := r.entriesAfter(&page)
		if err != nil || reset {
			return page, err
		}
		page.take(entries, &q.Filter)
		if len(page.Events) > 0 || more == nil {
			return page, nil
		}
		select {
		case <-more:
			sleep(ctx, gatherTime)
		case <-wait.C:
			return page, nil
		case <-ctx.Done():
			return page, ctx.Err()
		}
	}
}

// enter counts a reader.
func (r *Ring) enter() (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil, ErrClosed
	}
	r.reading++
	if !r.armed.Load() {
		r.armed.Store(true)
		r.base = Place{r.era, r.committed.Load(), wholeEntry} // read once Committed can no longer return None
	}
	return func() {
		r.mu.Lock()
		r.reading--
		r.last = time.Now()
		r.mu.Unlock()
	}, nil
}

// entriesAfter returns the entries after a page's place. more is closed when there are more; nil: there are some already.
func (r *Ring) entriesAfter(page *Page) (entries []entry, more <-chan struct{}, reset bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.open:
		return nil, nil, false, ErrClosed
	case page.Next == Place{}:
		page.Next = r.end()
	case page.Next.Era != r.era || page.Next.before(r.base.Index, r.base.Number):
		page.Reset, page.Next = true, r.end()
		return nil, nil, true, nil
	}
	at := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].index >= page.Next.Index })
	if entries = r.entries[at:]; len(entries) > 0 && page.Next.before(entries[len(entries)-1].index,
		uint32(len(entries[len(entries)-1].events))) { // #nosec G115
		return entries, nil, false, nil
	}
	page.Next = r.end()
	if r.more == nil {
		r.more = make(chan struct{})
	}
	return nil, r.more, false, nil
}

// end returns the place after the last event.
func (r *Ring) end() Place {
	at := r.base
	if n := len(r.entries); n > 0 {
		at = Place{r.era, r.entries[n-1].index, wholeEntry}
	}
	return at
}

// take searches entries from the page's place on, until the page is full.
func (p *Page) take(entries []entry, f *Filter) {
	size, looked := 0, 0
	for i := range entries {
		for j := range entries[i].events {
			e := &entries[i].events[j]
			if !p.Next.before(e.Index, e.Number) {
				continue
			}
			if len(p.Events) == pageEvents || size >= pageBytes || looked == pageLook {
				return
			}
			looked++
			p.Next.Index, p.Next.Number = e.Index, e.Number
			if f.matches(e) {
				p.Events = append(p.Events, *e)
				size += e.size()
			}
		}
	}
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Places is how far a reader has read in each shard.
type Places map[uint32]Place

// shards returns the shards in order.
func (p Places) shards() []uint32 {
	all := make([]uint32, 0, len(p))
	for shard := range p {
		all = append(all, shard)
	}
	slices.Sort(all)
	return all
}
