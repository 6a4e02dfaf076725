package waiting

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// MinPause and MaxPause bound the pause before messages are sent again.
	MinPause = 500 * time.Millisecond
	MaxPause = 10 * time.Second
	// laneWait is how long a batch may take before the pass leaves out the messages for its lane, instead of waiting for it.
	laneWait = time.Second
	// maxTries bounds the queues that are tried at the same time, and so the messages in memory.
	maxTries = 16
	// maxTried bounds the messages whose attempts are remembered, besides those that panicked: more fail only when a shard
	// is lost, and then any of them is representative.
	maxTried = 1000
)

// A message that makes its shard panic is not sent again for a while: each panic costs the shard's leader its memory.
// It is not set apart, because it may be sound: a release that does not panic takes it. The pause doubles from
// panicPause to PanicLongPause.
const panicPause, PanicLongPause = 10 * time.Second, time.Hour

// Destination is where messages go: a queue in a shard; or, if Queue is "", what else is in a shard for a namespace; or
// a shard, if Namespace is "" too.
type Destination struct {
	Shard            uint32
	Namespace, Queue string
}

// Message is a message in the outbox.
type Message struct {
	ID task.ID
	To Destination
}

// Lanes are those of a sender. Each shard has a lane, with one batch on its way at a time. Messages that are
// refused for now, while their shard takes others, wait in a lane of their own destination. If a shard takes nothing,
// all that is for it waits in its lane.
//
// A sender goes through its messages in passes, in order. Only one pass runs at a time; batches may end at any time.
// What a pass leaves out for a destination, it does not overtake with a later message for it.
type Lanes struct {
	mu      sync.Mutex            // guards the fields below
	all     map[Destination]*lane // those with a batch, and those that wait
	sent    map[task.ID]bool      // messages on their way: one whose queue moves has another lane, and must not be in both
	tried   map[task.ID]attempts  // messages that were sent in vain in this term
	leftOut map[Destination]bool  // by this pass, or sent in vain during it
	pass    uint64
	ended   uint64 // batches of earlier passes that have ended
	tries   int    // batches in lanes that are not a shard's
	again   bool   // messages were left out until a batch ends
}

type lane struct {
	pass  uint64 // the last batch's
	began time.Time
	sent  chan struct{} // closed when the batch has ended; nil: none is on its way
	pause time.Duration // after messages were sent in vain; 0: they were not
	until time.Time     // when that pause ends
}

type attempts struct {
	explain.Delivery
	pause time.Duration // after the last panic of the message's shard
	until time.Time     // when that pause ends
}

// Batch is messages that are sent together.
type Batch struct {
	Indexes []int // of the messages in the list that Assign got

	lane     Destination
	messages []Message
}

// Failure is why a message must be sent again.
type Failure struct {
	Index    int // of the message in its batch
	Reason   string
	Answered bool // its shard is there: it refuses the message for now, or panicked
	Panicked bool // its shard has, because of it
}

// BeginTerm forgets the attempts of earlier terms.
func (l *Lanes) BeginTerm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried = nil
}

// Of returns the attempts to deliver a message in this term.
func (l *Lanes) Of(message task.ID) explain.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tried[message].Delivery
}

// Begin begins a pass.
func (l *Lanes) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all, l.sent = map[Destination]*lane{}, map[task.ID]bool{}
	}
	l.pass++
	l.leftOut = map[Destination]bool{}
	maps.DeleteFunc(l.all, func(_ Destination, of *lane) bool { // no message waits there any more: the queue has moved, say
		return of.sent == nil && time.Since(of.until) > MaxPause
	})
}

// Ended returns a number for Assign. It must be called before the messages are read.
func (l *Lanes) Ended() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Assign divides messages into batches, those first that can be sent at once. It leaves out messages that wait: until
// due, unless that is zero; or until a batch ends. If ok is false, the messages must be read again: some of them may
// have been delivered while they were read.
func (l *Lanes) Assign(messages []Message, ended uint64, now time.Time) (batches []*Batch, due time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != ended {
		return nil, due, false
	}
	var behind []*Batch // another batch
	byLane := map[Destination]*Batch{}
	for i, m := range messages {
		key, of := l.laneLocked(m.To)
		busy := of != nil && of.sent != nil
		own := l.tried[m.ID].until
		switch {
		case now.Before(own): // others for its destination do not wait for it
			due = Earlier(due, own)
			continue
		case !busy && of != nil && now.Before(of.until):
			due = Earlier(due, of.until)
			l.leftOut[m.To] = true
			continue
		case l.sent[m.ID], l.leftOut[m.To], busy && (of.pass != l.pass || of.pause > 0):
			l.leftOut[m.To], l.again = true, true
			continue
		}
		b := byLane[key]
		if b == nil {
			b = &Batch{lane: key}
			if byLane[key] = b; busy {
				behind = append(behind, b)
			} else {
				batches = append(batches, b)
			}
		}
		b.Indexes, b.messages = append(b.Indexes, i), append(b.messages, m)
	}
	return append(batches, behind...), due, true
}

// laneLocked returns the lane of a destination; nil: it has no batch and does not wait.
func (l *Lanes) laneLocked(d Destination) (key Destination, of *lane) {
	whole := Destination{Shard: d.Shard}
	own, shard := l.all[d], l.all[whole]
	if own != nil && (own.sent != nil || shard == nil || shard.pause == 0) {
		return d, own
	}
	return whole, shard
}

// Start reports whether a batch may be sent now. End must be called when it was.
func (l *Lanes) Start(ctx context.Context, b *Batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.all[b.lane]; before != nil && before.sent != nil {
		l.waitLocked(ctx, before)
	}
	if !l.freeLocked(b) {
		for _, m := range b.messages {
			l.leftOut[m.To] = true
		}
		l.again = true
		return false
	}
	if b.ofQueue() {
		l.tries++
	}
	for _, m := range b.messages {
		l.sent[m.ID] = true
	}
	of := l.getLocked(b.lane)
	of.pass, of.began, of.sent = l.pass, time.Now(), make(chan struct{})
	return true
}

// freeLocked reports whether all of a batch may be sent, after what has ended since it was assigned.
func (l *Lanes) freeLocked(b *Batch) bool {
	for _, m := range b.messages {
		if key, of := l.laneLocked(m.To); key != b.lane || of != nil && (of.sent != nil || time.Now().Before(of.until)) {
			return false
		}
	}
	return !b.ofQueue() || l.tries < maxTries
}

func (b *Batch) ofQueue() bool { return b.lane.Namespace != "" }

func (l *Lanes) getLocked(key Destination) *lane {
	of := l.all[key]
	if of == nil {
		of = &lane{}
		l.all[key] = of
	}
	return of
}

// waitLocked waits until the batch of a lane has ended, or takes too long.
func (l *Lanes) waitLocked(ctx context.Context, of *lane) {
	sent, timer := of.sent, time.NewTimer(time.Until(of.began.Add(laneWait)))
	defer timer.Stop()
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-sent:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// End records that a batch was sent. failed are the messages that must be sent again, in order. recorded: it has been
// recorded that the others need not be. again means that another pass should begin.
func (l *Lanes) End(b *Batch, failed []Failure, recorded bool) (again bool) {
	away := !recorded || len(failed) == len(b.messages) && !slices.ContainsFunc(failed, func(f Failure) bool { return f.Answered })
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.all[b.lane]
	if of.pass != l.pass {
		l.ended++
	}
	close(of.sent)
	of.sent = nil
	if b.ofQueue() {
		l.tries--
	}
	again = l.again || away || len(failed) > 0
	l.again = false
	waits := map[Destination]bool{}
	for i, m := range b.messages {
		delete(l.sent, m.ID)
		if len(failed) > 0 && failed[0].Index == i {
			l.triedLocked(m.ID, failed[0])
			failed = failed[1:]
		} else if !away {
			delete(l.tried, m.ID)
			continue
		}
		waits[m.To] = true
	}
	maps.Copy(l.leftOut, waits)
	if away {
		l.failLocked(b.lane)
		return again
	}
	l.endLocked(Destination{Shard: b.lane.Shard})
	for _, m := range b.messages {
		if !waits[m.To] {
			l.endLocked(m.To)
		}
	}
	for d := range waits {
		l.failLocked(d)
	}
	return again
}

// triedLocked records a failed attempt.
func (l *Lanes) triedLocked(message task.ID, f Failure) {
	c, known := l.tried[message]
	if !known && !f.Panicked && len(l.tried) >= maxTried {
		return
	}
	c.Tries++
	c.Error = f.Reason
	if f.Panicked {
		c.pause = min(max(2*c.pause, panicPause), PanicLongPause)
		c.until = time.Now().Add(c.pause)
	}
	if l.tried == nil {
		l.tried = map[task.ID]attempts{}
	}
	l.tried[message] = c
}

// failLocked makes a destination wait.
func (l *Lanes) failLocked(key Destination) {
	of := l.getLocked(key)
	of.pause = min(max(2*of.pause, MinPause), MaxPause)
	of.until = time.Now().Add(of.pause)
}

// endLocked ends the wait of a destination.
func (l *Lanes) endLocked(key Destination) {
	if of := l.all[key]; of != nil && of.sent == nil {
		delete(l.all, key)
	}
}

// Earlier returns the earlier of two times, of which the zero one is none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
