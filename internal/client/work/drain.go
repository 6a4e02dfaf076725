package work

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/pawltype"
)

const (
	// drainGrace is how long handlers get after their contexts have ended.
	drainGrace = time.Second
	// settleTimeout is how long the broker gets to confirm the last endings, over the stream and then once more in a call.
	settleTimeout = time.Second
)

// drain ends the run in an orderly way: no new tasks, handlers end, the broker confirms. A stream that can't be closed,
// because it is not open yet or the broker does not read, is cut.
func (s *Run) drain(closing chan struct{}, linked <-chan error, cut context.CancelFunc) error {
	s.mu.Lock()
	s.quiet = true
	s.mu.Unlock()
	signal(s.sendMore)
	if !s.wait(s.cfg.DrainTimeout, s.idle) {
		s.stop(pawltype.ErrDraining)
		if !s.wait(drainGrace, s.idle) {
			s.abandon()
		}
	}
	s.wait(settleTimeout, s.confirmed)
	close(closing)
	defer time.AfterFunc(cutTimeout, cut).Stop()
	<-linked
	return s.settleRest()
}

// idle reports whether no handler runs.
func (s *Run) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.busy == 0
}

// confirmed reports whether the broker has confirmed all endings.
func (s *Run) confirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.claims {
		if h.phase == ended {
			return false
		}
	}
	return true
}

// wait waits until done, for at most d, and reports whether it is.
func (s *Run) wait(d time.Duration, done func() bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !done() {
		select {
		case <-s.idleChanged:
		case <-timer.C:
			return done()
		}
	}
	return true
}

// abandon releases the tasks whose handlers don't return.
func (s *Run) abandon() {
	s.mu.Lock()
	var left []*heldClaim
	for _, h := range s.claims {
		if h.phase == running || h.phase == lapsed {
			s.endLocked(h, lease.Release(h.ref, 0))
			left = append(left, h)
		}
	}
	s.mu.Unlock()
	signal(s.sendMore)
	for _, h := range left {
		h.log(s.cfg.Log).Error("handler does not stop after its context ended: it is abandoned and its task is released")
	}
}

// settleRest sends, in calls of its own, the endings that the stream left unconfirmed: those of tasks that were pushed as it
// closed, or all if it was broken.
func (s *Run) settleRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for {
		holds, endings := s.unconfirmed()
		if len(holds) == 0 {
			return nil
		}
		answers, err := s.cfg.Calls.Settle(ctx, endings)
		s.mu.Lock()
		for i, p := range answers {
			switch refused := convert.Error(p.GetError()); {
			case p.GetError() == nil:
				delete(s.claims, holds[i].ref.Token)
			case passes(refused.Code):
				err = refused
			default:
				s.refusedLocked(holds[i], refused, time.Now())
			}
		}
		left := 0
		for _, h := range s.claims {
			if h.phase == ended {
				left++
			}
		}
		s.mu.Unlock()
		if err != nil {
			return fmt.Errorf("the outcomes of %d tasks are unconfirmed, so they may run again: %w", left, err)
		}
	}
}

// unconfirmed returns as many endings as one call may have.
func (s *Run) unconfirmed() (holds []*heldClaim, endings []lease.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, h := range s.claims {
		if h.phase != ended || len(holds) == lease.MaxSettleItems {
			continue
		}
		if size += h.end.Size(); len(holds) > 0 && size > lease.MaxSettleBytes {
			break
		}
		holds, endings = append(holds, h), append(endings, h.end)
	}
	return holds, endings
}
