package pawl

import (
	"context"
	"fmt"
	"time"
)

const (
	// drainGrace is what handlers get after their contexts have ended.
	drainGrace = time.Second
	// settleTimeout is how long the broker gets to confirm the last ends, over the stream and then once more by a call.
	settleTimeout = time.Second
)

// drain ends the shift in good order: no new tasks, handlers end, the broker confirms.
func (s *shift) drain(closing chan struct{}, linked <-chan error) error {
	s.mu.Lock()
	s.quiet = true
	s.mu.Unlock()
	signal(s.sendMore)
	if !s.wait(max(s.cfg.DrainTimeout, 0), s.idle) {
		s.stop(ErrDraining)
		if !s.wait(drainGrace, s.idle) {
			s.abandon()
		}
	}
	s.wait(settleTimeout, s.confirmed)
	close(closing)
	<-linked
	return s.settleRest()
}

// idle reports whether no handler runs.
func (s *shift) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.busy == 0
}

// confirmed reports whether the broker has confirmed all ends.
func (s *shift) confirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.claims {
		if h.phase == ended {
			return false
		}
	}
	return true
}

// wait waits until done, at most for d, and reports whether it is.
func (s *shift) wait(d time.Duration, done func() bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !done() {
		select {
		case <-s.calmer:
		case <-timer.C:
			return done()
		}
	}
	return true
}

// abandon releases the tasks whose handlers don't end.
func (s *shift) abandon() {
	s.mu.Lock()
	var left []*hold
	for _, h := range s.claims {
		if h.phase == running || h.phase == lapsed {
			s.endLocked(h, ending{release: releaseOf(&h.claim, 0)})
			left = append(left, h)
		}
	}
	s.mu.Unlock()
	signal(s.sendMore)
	for _, h := range left {
		s.log(h).Error("handler ignores the end of its context: left behind, its task released")
	}
}

// settleRest tells, by calls of its own, the ends that the stream left unconfirmed: those of tasks that were pushed as it closed, or
// all if it was broken.
func (s *shift) settleRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for {
		holds, endings := s.unconfirmed()
		if len(holds) == 0 {
			return nil
		}
		answers, err := s.client.Claims().settle(ctx, endings)
		for i, p := range answers {
			if p.GetError().GetCode() == codeUnavailable {
				err = errorOf(p.GetError())
				continue
			}
			s.mu.Lock()
			delete(s.claims, holds[i].claim.Token)
			s.mu.Unlock()
		}
		if err != nil {
			return fmt.Errorf("how %d tasks ended is not confirmed, they may run again: %w", len(holds), err)
		}
	}
}

// unconfirmed gives as many ends as one call may tell.
func (s *shift) unconfirmed() (holds []*hold, endings []ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, h := range s.claims {
		if h.phase != ended || len(holds) == maxSettleItems {
			continue
		}
		if size += h.end.size(); len(holds) > 0 && size > maxSettleBytes {
			break
		}
		holds, endings = append(holds, h), append(endings, h.end)
	}
	return holds, endings
}
