package events

import (
	"context"
	"time"
)

const (
	// pulseKept is how long a pulse is kept after its reader's last read: longer than the longest pause and the longest wait together.
	pulseKept = 30 * time.Second
	// pulseGather is how long a reader that was woken waits for further events.
	pulseGather = 100 * time.Millisecond
)

// pulse serves a reader that only needs to know that something happened, not what. The ring keeps no events for it: it checks each event
// until one matches, and then none until the reader has been notified.
type pulse struct {
	filter Filter
	hit    bool
	// index of the entry up to which the reader was notified: a read from before it means that the answer was lost
	notifiedUpTo uint64
	hits         chan struct{} // receives when there is a hit
	seen         time.Time     // time of its reader's last read
}

// readPulse waits until something has happened since the reader was last notified.
func (r *Ring) readPulse(ctx context.Context, q Query) (Page, error) {
	p, page, err := r.takeHit(&q)
	if err != nil || page.Reset || page.Changed || q.After == (Place{}) {
		return page, err
	}
	wait := time.NewTimer(q.Wait)
	defer wait.Stop()
	select {
	case <-p.hits:
		sleep(ctx, min(q.Wait, pulseGather))
	case <-wait.C:
	case <-ctx.Done():
		return page, ctx.Err()
	}
	_, page, err = r.takeHit(&q)
	return page, err
}

// takeHit finds a reader's pulse or creates it, and takes its hit.
func (r *Ring) takeHit(q *Query) (*pulse, Page, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return nil, Page{}, ErrClosed
	}
	now := time.Now()
	p := r.pulses[q.Pulse]
	page := Page{Next: Place{r.era, r.committed.Load(), wholeEntry}}
	if p == nil || q.After.Era != r.era {
		page.Reset = q.After != Place{}
		p = r.addPulse(q, now)
	}
	p.seen = now
	page.Changed = !page.Reset && q.After.Index < p.notifiedUpTo
	if p.hit {
		p.hit, p.notifiedUpTo, page.Changed = false, page.Next.Index, true
		r.waitingPulses.Add(1)
		select {
		case <-p.hits:
		default:
		}
	}
	return p, page, nil
}

// addPulse creates a pulse. mu is held.
func (r *Ring) addPulse(q *Query, now time.Time) *pulse {
	r.dropPulses(now)
	if r.pulses == nil {
		r.pulses = map[uint64]*pulse{}
	}
	if old := r.pulses[q.Pulse]; old == nil || old.hit {
		r.waitingPulses.Add(1)
	}
	p := &pulse{filter: q.Filter, hits: make(chan struct{}, 1)}
	r.pulses[q.Pulse] = p
	return p
}

// dropPulses removes the pulses whose readers have gone. mu is held.
func (r *Ring) dropPulses(now time.Time) {
	r.dropped = now
	for id, p := range r.pulses {
		if now.Sub(p.seen) > pulseKept {
			r.removePulse(id, p)
		}
	}
}

// removePulse removes a pulse and wakes its reader. mu is held.
func (r *Ring) removePulse(id uint64, p *pulse) {
	delete(r.pulses, id)
	if !p.hit {
		r.waitingPulses.Add(-1)
		p.hits <- struct{}{}
	}
}

// notifyPulses notifies the readers of the pulses whose filters match. mu is held.
func (r *Ring) notifyPulses(events []Event, now time.Time) {
	for _, p := range r.pulses {
		if p.hit {
			continue
		}
		for i := range events {
			if p.filter.matches(&events[i]) {
				p.hit = true
				r.waitingPulses.Add(-1)
				p.hits <- struct{}{}
				break
			}
		}
	}
	if now.Sub(r.dropped) > pulseKept {
		r.dropPulses(now)
	}
}
