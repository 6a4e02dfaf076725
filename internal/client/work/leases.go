package work

import (
	"context"
	"time"

	"github.com/pawlq/pawl/pawltype"
)

const (
	// sweepStep is the minimum interval between sweeps; a lease is at least twenty of them.
	sweepStep = 50 * time.Millisecond
	// sweepIdle is when to check again if nothing is due.
	sweepIdle = time.Hour
)

// keep sweeps whenever something is due, for all claims together: a timer per task would be a cost to every short one.
func (s *Run) keep(ctx context.Context) {
	timer := time.NewTimer(sweepIdle)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.sweepNow:
			s.mu.Lock()
			next := s.nextSweep
			s.mu.Unlock()
			timer.Reset(max(time.Until(next), time.Until(last.Add(sweepStep)), 0))
		case <-timer.C:
			last = time.Now()
			timer.Reset(max(s.sweep(last).Sub(last), sweepStep))
		}
	}
}

// sweepAt asks for a sweep at t, unless one is due before. The caller holds mu.
func (s *Run) sweepAt(t time.Time) {
	if t.Before(s.nextSweep) {
		s.nextSweep = t
		signal(s.sweepNow)
	}
}

// sweep queues the extensions and retries that are due and ends the contexts of claims whose leases have expired. It
// returns when to check again.
func (s *Run) sweep(now time.Time) time.Time {
	var gone []*heldClaim
	s.mu.Lock()
	soon, next := now.Add(sweepStep), now.Add(sweepIdle)
	for _, h := range s.claims {
		switch {
		case h.phase == running && !h.leaseEnd.After(now):
			h.phase = lapsed
			s.stats.LeasesLost++
			gone = append(gone, h)
		case h.phase == running && h.ctx.Err() != nil:
			// Its timeout has expired, or it was asked to stop: a handler that keeps running anyway loses its lease.
			next = earlier(next, h.leaseEnd)
		case h.phase == running:
			if h.due.Before(soon) {
				s.out.extends = append(s.out.extends, h)
				h.due = now.Add(h.lease / 3)
			}
			next = earlier(next, earlier(h.due, h.leaseEnd))
		case h.phase == ended && !h.due.IsZero():
			if h.due.Before(soon) {
				h.due = time.Time{}
				s.out.add(h)
				continue
			}
			next = earlier(next, h.due)
		}
	}
	s.nextSweep = next
	s.mu.Unlock()
	signal(s.sendMore)
	for _, h := range gone {
		h.cancel(pawltype.ErrLeaseLost)
		h.log(s.cfg.Log).Warn("lease ended without confirmation by the broker", "lease", h.lease)
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
