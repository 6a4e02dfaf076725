package history

// refuse is the step of a call that was refused because of its task's state: the state must justify the refusal.
func (s state) refuse(e *event) (state, fault) {
	switch e.Reason {
	case NotFound:
		return s.notFound(e)
	case Expired, Reclaimed, Cancelled, Completed:
		return s.stale(e)
	case WrongState:
		return s.wrongState(e)
	}
	return s, fine
}

// notFound is also the answer to a token that the task never had.
func (s state) notFound(e *event) (state, fault) {
	if s.in == absent {
		return s, fine
	}
	if e.Token != "" && e.Token != s.token && s.attemptOf(e.Token) == nil {
		return s, fine
	}
	return s, fault{Lost, "not found, and was enqueued"}
}

func (s state) stale(e *event) (state, fault) {
	if s.holds(e) {
		if e.Reason == Expired && s.mayLapse(e) {
			s.in = claimed
			return s.lapsed(), fine
		}
		return s, fault{GoodToken, "refused, and the claim was live"}
	}
	a := s.attemptOf(e.Token)
	switch {
	case a == nil:
		return s, fault{WrongRead, "called stale, and the task never gave that token"}
	case a.how == repeatable(e.Op):
		return s, fault{GoodToken, "refused, and only repeated what ended the attempt"}
	case !s.justifies(a, e.Reason):
		return s, fault{WrongRead, "stale for a reason that is not so"}
	}
	return s, fine
}

// justifies reports whether a claim that ended like this may be called stale for the given reason.
func (s *state) justifies(a *attempt, why Reason) bool {
	switch why {
	case Completed:
		return a.how&(bySuccess|byFailure|byRelease) != 0
	case Cancelled:
		return a.how&byCancel != 0 || a.how&byTime != 0 && s.in&cancelled != 0
	case Expired:
		return a.how&byTime != 0 && s.in != cancelled && s.fence == a.fence
	case Reclaimed:
		return a.how&byTime != 0 && s.in != cancelled && s.fence > a.fence
	}
	return false
}

// wrongState is a call that does not apply to the task's state.
func (s state) wrongState(e *event) (state, fault) {
	if e.Op == Extend { // a run has a timeout, and no lease extends beyond it
		if s.holds(e) && s.mayLapse(e) {
			return s, fine
		}
		return s, fault{GoodToken, "refused, and the lease was not over"}
	}
	where := refusedAt(e.Op)
	if possible := place(e.State); possible != 0 {
		where &= possible
	}
	next, ok := s.seen(e, where)
	if !ok {
		return s, fault{WrongRead, "refused for a state that the task can't be in"}
	}
	return next, fine
}

// refusedAt returns the places where a call is refused with wrong_state.
func refusedAt(op Op) places {
	switch op {
	case Cancel:
		return ended &^ cancelled
	case Retry:
		return scheduled | ready | claimed | succeeded
	case RunNow:
		return claimed | ended
	case Discard: // also of a dead letter, if it was replayed and died again meanwhile
		return claimed | succeeded | cancelled | dead | poisoned
	}
	return 0
}
