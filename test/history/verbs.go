package history

// accept is the step of a call that was answered with OK.
func (s state) accept(e *event) (state, fault) {
	switch e.Op {
	case Enqueue:
		return s.enqueue(e)
	case Claim:
		return s.claim(e)
	case Ack, Fail, Release, Extend:
		return s.settle(e)
	case Cancel:
		return s.cancel(e)
	case Retry:
		return s.replay(e)
	case RunNow:
		next, ok := s.seen(e, waiting)
		if !ok {
			return s, fault{WrongRead, "made ready, and did not wait"}
		}
		next.in, next.due = ready, 0
		return next, fine
	case Discard:
		next, ok := s.seen(e, waiting|dead|poisoned|discarded)
		if !ok {
			return s, fault{Revived, "discarded, and neither waited nor was a dead letter"}
		}
		next.in = discarded
		return next, fine
	case Get:
		return s.get(e)
	}
	return s, fault{WrongRead, "an operation that the checker does not know"}
}

func (s state) enqueue(e *event) (state, fault) {
	if s.in == absent && !e.Duplicate {
		return s.created(e)
	}
	switch {
	case s.in == absent:
		return s, fault{Doubled, "a duplicate of a task that nobody has enqueued"}
	case !e.Duplicate:
		return s, fault{Doubled, "made a second time"}
	case e.Payload != 0 && s.payload != 0 && e.Payload != s.payload:
		return s, fault{Doubled, "answered as a duplicate of a task with another payload"}
	}
	if where := place(e.State); where != 0 {
		if next, ok := s.seen(e, where); ok {
			return next, fine
		}
		return s, fault{WrongRead, "the duplicate is not in that state"}
	}
	return s, fine
}

// created is the state of a new task.
func (s state) created(e *event) (state, fault) {
	s.attempt, s.life = span{1, 1}, span{1, 1}
	s.max, s.payload = e.MaxAttempts, e.Payload
	s.due = e.RunAtUS
	if e.DelayUS > 0 {
		s.due = e.from + e.DelayUS
	}
	s.in = ready
	if s.due > e.from {
		s.in = scheduled
	}
	switch where := place(e.State); {
	case where == ready && s.due > e.to:
		return s, fault{Early, "ready at once, and is due later"}
	case where == ready:
		s.in, s.due = ready, 0
	case where == scheduled:
		s.in = scheduled
	}
	return s, fine
}

func (s state) claim(e *event) (state, fault) {
	if e.Token == s.token && s.token != "" {
		return s.claimAgain(e)
	}
	next, ok := s.seen(e, ready)
	if !ok {
		return s, s.notClaimable()
	}
	switch {
	case !follows(next.fence, e.Fence):
		return s, fault{Numbers, "the fence is not the next one"}
	case !next.attempt.has(e.Attempt):
		return s, fault{Numbers, "the attempt is not the next one"}
	case e.Payload != 0 && next.payload != 0 && e.Payload != next.payload:
		return s, fault{Unexpected, "given with another payload"}
	case e.LeaseUntilUS != 0 && e.LeaseUntilUS <= e.TimeUS && !e.Retried:
		return s, fault{TwoClaims, "given with a lease that was over"}
	}
	if next.begun = e.Attempt; e.Attempt != 0 {
		next.attempt = span{e.Attempt, e.Attempt}
	} else {
		next.begun = -1
	}
	if next.mustExhaust() {
		return s, fault{DeadLetter, "given again after its last attempt"}
	}
	next.in, next.fence, next.token, next.claimKey, next.until = claimed, e.Fence, e.Token, e.ClaimKey, e.LeaseUntilUS
	return next, fine
}

// notClaimable returns why the task could not be claimed.
func (s *state) notClaimable() fault {
	switch {
	case s.in == absent:
		return fault{Unexpected, "given before it was enqueued"}
	case s.in&^ended == 0:
		return fault{Revived, "given after its end"}
	case s.in&claimed != 0:
		return fault{TwoClaims, "given while another claim was live"}
	}
	return fault{Early, "given before it was due"}
}

// claimAgain is a claim repeated with its key.
func (s state) claimAgain(e *event) (state, fault) {
	switch {
	case s.in&claimed == 0:
		return s, fault{TwoClaims, "given again after its claim was over"}
	case e.Fence != s.fence:
		return s, fault{Numbers, "given again with another fence"}
	case e.ClaimKey != s.claimKey:
		return s, fault{TwoClaims, "one claim given to two claim keys"}
	case e.Attempt != 0 && s.begun > 0 && e.Attempt != s.begun:
		return s, fault{Numbers, "given again with another attempt"}
	case e.Payload != 0 && s.payload != 0 && e.Payload != s.payload:
		return s, fault{Unexpected, "given again with another payload"}
	}
	s.in, s.until = claimed, max(s.until, e.LeaseUntilUS)
	return s, fine
}

// settle is a call that ends a claim. The token that ended an attempt gets its answer again.
func (s state) settle(e *event) (state, fault) {
	if !s.holds(e) {
		return s.settleAgain(e)
	}
	s.in = claimed
	switch e.Op {
	case Ack:
		if where := place(e.State); where != 0 && where != succeeded {
			return s, fault{WrongRead, "acked, and answered with another state"}
		}
		s.end(bySuccess, succeeded, 0)
	case Fail:
		return s.fail(e)
	case Release:
		then := ready
		if e.DelayUS > 0 {
			then = scheduled
		}
		if where := place(e.State); where != 0 && where != then {
			return s, fault{WrongRead, "released to another state"}
		}
		s.end(byRelease, then, max(e.DueUS, e.from+e.DelayUS))
	case Extend:
		if e.LeaseUntilUS != 0 && e.LeaseUntilUS < s.until {
			return s, fault{Numbers, "an extension made the lease shorter"}
		}
		s.until = max(s.until, e.LeaseUntilUS)
	}
	return s, fine
}

func (s state) settleAgain(e *event) (state, fault) {
	a := s.attemptOf(e.Token)
	switch {
	case a != nil && a.how&repeatable(e.Op) != 0:
		if where := place(e.State); where != 0 && a.then&where == 0 {
			return s, fault{WrongRead, "repeated, and answered with another state than at first"}
		}
		if e.DueUS != 0 && a.due != 0 && e.DueUS < a.due {
			return s, fault{WrongRead, "repeated, and answered with an earlier due time than at first"}
		}
		return s, fine
	case e.Op == Ack && s.in == succeeded:
		return s, fault{TwoEnds, "a second token succeeded"}
	}
	return s, fault{StaleToken, "accepted, and the token is not that of the current claim"}
}

// repeatable returns how a claim ended that a call may end once more.
func repeatable(op Op) outcomes {
	switch op {
	case Ack:
		return bySuccess
	case Fail:
		return byFailure
	case Release:
		return byRelease
	}
	return 0
}

// fail ends the current attempt without success.
func (s state) fail(e *event) (state, fault) {
	var then places
	switch e.Fall {
	case FallDiscard:
		then = discarded
	case FallPoison:
		then = poisoned
	case FallDead:
		s.attempt = span{s.attempt.least + 1, s.attempt.most + 1}
		then = dead
	default:
		s.attempt = span{s.attempt.least + 1, s.attempt.most + 1}
		if !s.mustExhaust() {
			then |= ready | retrying
		}
		if s.canExhaust() {
			then |= dead
		}
	}
	if where := place(e.State); where != 0 {
		switch {
		case then&where != 0:
		case (where == dead) != (then == dead):
			return s, fault{DeadLetter, "its attempts and its end do not fit together"}
		default:
			return s, fault{WrongRead, "failed, and answered with a state that does not follow"}
		}
		then = where
	}
	s.end(byFailure, then, e.DueUS)
	return s, fine
}

func (s state) cancel(e *event) (state, fault) {
	next, ok := s.seen(e, waiting|claimed|cancelled)
	if !ok {
		if s.in == absent {
			return s, fault{Unexpected, "cancelled before it was enqueued"}
		}
		return s, fault{Revived, "cancelled after another end"}
	}
	if next.in&claimed == 0 {
		next.in, next.due = cancelled, 0
		return next, fine
	}
	how := byCancel
	if next.mayLapse(e) {
		how |= byTime
		next.attempt.most++
	}
	next.end(how, cancelled, 0)
	return next, fine
}

// replay starts a new life of an ended task, or the next attempt of a retrying one.
func (s state) replay(e *event) (state, fault) {
	next, ok := s.seen(e, discarded|dead|poisoned|cancelled|retrying)
	if !ok {
		return s, fault{Revived, "replayed, and had not ended, or had succeeded"}
	}
	switch {
	case next.in == retrying:
	case next.in&retrying != 0:
		next.life.most = next.attempt.most
	default:
		next.life = next.attempt
	}
	next.in, next.due = ready, 0
	if where := place(e.State); where&waiting != 0 {
		next.in = where
		if where != ready {
			next.due = e.DueUS
		}
	}
	return next, fine
}

// get is a read. It returns the exact place, which may resolve what was open.
func (s state) get(e *event) (state, fault) {
	where := place(e.State)
	next, ok := s.seen(e, where)
	switch {
	case !ok && s.in == absent:
		return s, fault{Unexpected, "read before it was enqueued"}
	case !ok && where == ready && s.in&(scheduled|retrying) != 0:
		return s, fault{Early, "ready before it was due"}
	case !ok:
		return s, fault{WrongRead, "it can't be in that state"}
	case e.Fence != next.fence:
		return s, fault{Numbers, "read with a fence that is not the number of its claims"}
	case e.Attempt != 0 && next.begun >= 0 && e.Attempt != next.begun, where == claimed && !next.attempt.has(e.Attempt):
		return s, fault{Numbers, "read with an attempt that is not the last one"}
	case e.Payload != 0 && next.payload != 0 && e.Payload != next.payload:
		return s, fault{Unexpected, "read with another payload"}
	case where == claimed && e.LeaseUntilUS != 0 && e.LeaseUntilUS < next.until:
		return s, fault{Numbers, "read with a lease that ends earlier than was promised"}
	}
	switch where {
	case claimed:
		next.until = max(next.until, e.LeaseUntilUS)
		if e.Attempt != 0 {
			next.begun, next.attempt = e.Attempt, span{e.Attempt, e.Attempt}
		}
	case dead: // its last attempt is used up
		if e.Attempt != 0 {
			next.begun, next.attempt = e.Attempt, span{e.Attempt + 1, e.Attempt + 1}
		}
	case scheduled, retrying:
		next.due = max(next.due, e.DueUS)
	}
	return next, fine
}
