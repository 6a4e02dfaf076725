package history

// guess is the step of an unanswered call: it takes effect if it could. That it had no effect is covered by the guess
// that it took effect after everything else.
func (s state) guess(e *event) state {
	switch e.Op {
	case Enqueue:
		if s.in == absent {
			s, _ = s.created(e)
		}
	case Claim:
		return s.guessClaim(e)
	case Ack, Fail, Release:
		if s.holds(e) {
			s, _ = s.settle(e)
		}
	case Cancel, Discard, Retry, RunNow:
		return s.guessSteer(e)
	}
	return s
}

// guessClaim is a claim whose answer was lost: no worker has the task, and it may come back at any time.
func (s state) guessClaim(e *event) state {
	next, ok := s.seen(e, ready)
	if !ok || !follows(next.fence, e.Fence) {
		return s
	}
	next.in, next.fence, next.token, next.claimKey, next.until, next.begun = claimed, e.Fence, "", e.ClaimKey, 0, -1
	return next
}

// guessSteer is a call that moves a task from some places, and leaves it alone in the others.
func (s state) guessSteer(e *event) state {
	var from places
	var move func(state, *event) (state, fault)
	switch e.Op {
	case Cancel:
		from, move = waiting|claimed, state.cancel
	case Retry:
		from, move = discarded|dead|poisoned|cancelled|retrying, state.replay
	default:
		from, move = waiting, state.accept
		if e.Op == Discard {
			from |= dead | poisoned
		}
	}
	if s.in&from == 0 {
		return s
	}
	still := s.in &^ from
	moved := s
	moved.in &= from
	moved, f := move(moved, e)
	if f != fine {
		return s
	}
	moved.in |= still
	return moved
}
