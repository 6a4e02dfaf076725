package history

import "slices"

// anomalies has at least one anomaly for every invariant. The last ones are next to calls without a response.
var anomalies = []anomaly{
	{"task gone at the end", Lost, "lossy", on(Enqueue, func(s *scene, l *life, _ int) bool {
		s.o.Final = slices.DeleteFunc(s.final, func(r Record) bool { return r.Task == l.id })
		s.o.DeadLetters = nil
		return true
	}), true, false},
	{"task not found meanwhile", Lost, "lossy", on(Enqueue, func(s *scene, l *life, i int) bool {
		return !l.events[i].Duplicate && put(s, l, i, func(r *Record) { r.Op, r.Code, r.Reason = Get, Refused, NotFound })
	}), true, true},
	{"two live claims", TwoClaims, "lossy", on(Claim, func(s *scene, l *life, i int) bool {
		return l.liveClaim(i) && put(s, l, i, func(r *Record) {
			r.Op, r.Token, r.Fence, r.Attempt, r.LeaseUntilUS = Claim, "other", l.events[i].Fence+1, l.events[i].Attempt, r.TimeUS+1e6
		})
	}), true, true},
	{"one fence, two holders", TwoClaims, "lossy", on(Claim, func(s *scene, l *life, i int) bool {
		return l.liveClaim(i) && put(s, l, i, func(r *Record) {
			r.Op, r.Token, r.Fence, r.Attempt, r.LeaseUntilUS = Claim, "other", l.events[i].Fence, l.events[i].Attempt, r.TimeUS+1e6
		})
	}), true, true},
	{"one claim, two claim keys", TwoClaims, "lossy", on(Claim, func(s *scene, l *life, i int) bool {
		e := l.events[i]
		return l.liveClaim(i) && put(s, l, i, func(r *Record) {
			r.Op, r.Token, r.Fence, r.Attempt, r.LeaseUntilUS, r.ClaimKey = Claim, e.Token, e.Fence, e.Attempt, e.LeaseUntilUS, "other"
		})
	}), true, true},
	{"stale ack accepted", StaleToken, "lossy", stale(Ack), true, true},
	{"stale extension accepted", StaleToken, "lossy", stale(Extend), true, true},
	{"ack after cancel accepted", StaleToken, "lossy", on(Cancel, func(s *scene, l *life, i int) bool {
		before, after := l.stateAt(i)
		return before.in == claimed && after.in == cancelled && put(s, l, i, func(r *Record) { r.Op, r.Token = Ack, after.token })
	}), true, true},
	{"current token refused", GoodToken, "lossy", on(Claim, func(s *scene, l *life, i int) bool {
		return l.liveClaim(i) && put(s, l, i, func(r *Record) {
			r.Op, r.Token, r.Code, r.Reason = Ack, l.events[i].Token,
				Refused, Reclaimed
		})
	}), true, true},
	{"lease over before its end", GoodToken, "lossy", on(Claim, func(s *scene, l *life, i int) bool {
		return l.liveClaim(i) && put(s, l, i, func(r *Record) {
			r.Op, r.Token, r.Code, r.Reason = Extend, l.events[i].Token,
				Refused, Expired
		})
	}), true, true},
	{"repeated ack refused", GoodToken, "lossy", on(Ack, func(s *scene, l *life, i int) bool {
		return put(s, l, i, func(r *Record) { r.Op, r.Token, r.Code, r.Reason = Ack, l.events[i].Token, Refused, Completed })
	}), true, true},
	{"completed twice", TwoEnds, "lossy", on(Ack, func(s *scene, l *life, i int) bool {
		return put(s, l, i, func(r *Record) { r.Op, r.Token = Ack, "other" })
	}), true, true},
	{"claimed after cancel", Revived, "lossy", on(Cancel, claimedAgain), true, true},
	{"claimed after success", Revived, "lossy", on(Ack, claimedAgain), true, true},
	{"cancelled after success", Revived, "lossy", on(Ack, func(s *scene, l *life, i int) bool {
		return put(s, l, i, func(r *Record) { r.Op, r.State = Cancel, "cancelled" })
	}), true, true},
	{"replayed after success", Revived, "lossy", on(Ack, func(s *scene, l *life, i int) bool {
		return put(s, l, i, func(r *Record) { r.Op, r.State = Retry, "ready" })
	}), true, true},
	{"delayed task early", Early, "lossy", on(Enqueue, func(s *scene, l *life, i int) bool {
		e, next := &l.events[i], l.next(i, Claim)
		if e.State != "scheduled" || e.Duplicate || next == nil || l.has(RunNow, Retry) {
			return false
		}
		e.DelayUS = next.TimeUS - e.TimeUS + 1e6
		return true
	}), true, true},
	{"retried task early", Early, "lossy", on(Fail, func(s *scene, l *life, i int) bool {
		e, next := &l.events[i], l.next(i, Claim)
		before, _ := l.stateAt(i)
		if before.in != claimed || before.token != e.Token || e.State != "retrying" || next == nil || next.Fence != before.fence+1 ||
			l.has(RunNow, Retry) {
			return false
		}
		for j := range l.events {
			if again := &l.events[j]; again.Op == Fail && again.Token == e.Token && j != i {
				return false
			}
		}
		e.DueUS = next.TimeUS + 1e6
		return true
	}), true, true},
	{"attempt falls back", Numbers, "lossy", on(Fail, func(s *scene, l *life, i int) bool {
		before, _ := l.stateAt(i)
		e, next := &l.events[i], l.next(i, Claim)
		if before.in != claimed || before.token != e.Token || e.State != "retrying" || next == nil || next.Fence != before.fence+1 {
			return false
		}
		next.Attempt--
		return true
	}), true, true},
	{"fence given twice", Numbers, "calm", on(Claim, func(s *scene, l *life, i int) bool {
		next := l.next(i, Claim)
		if next == nil || next.Token == l.events[i].Token || next.Fence != l.events[i].Fence+1 {
			return false
		}
		next.Fence--
		return true
	}), true, true},
	{"fence skipped", Numbers, "calm", on(Claim, func(s *scene, l *life, i int) bool {
		if l.next(i, Claim) != nil || l.next(i, Get).Fence != l.events[i].Fence {
			return false
		}
		for j := i; j < len(l.events); j++ {
			if l.events[j].Fence == l.events[i].Fence && j != i {
				l.events[j].Fence++
			}
		}
		l.events[i].Fence++
		return true
	}), true, true},
	{"extension shortens", Numbers, "lossy", on(Extend, func(s *scene, l *life, i int) bool {
		before, _ := l.stateAt(i)
		l.events[i].LeaseUntilUS = before.until - 1
		return true
	}), true, true},
	{"one request, two tasks", Doubled, "lossy", on(Enqueue, func(s *scene, l *life, i int) bool {
		r := s.elsewhere(Enqueue)
		r.RequestID, r.Payload, r.Task, r.State = l.events[i].RequestID, l.events[i].Payload, l.id+"x", "ready"
		s.records = append(s.records, r)
		s.o.Final, s.o.DeadLetters = nil, nil
		l.id += "x"
		return true
	}), true, false},
	{"made twice", Doubled, "lossy", on(Enqueue, func(s *scene, l *life, i int) bool {
		was := l.events[i].Duplicate
		l.events[i].Duplicate = false
		return was
	}), true, true},
	{"duplicate of nothing", Doubled, "calm", on(Enqueue, func(s *scene, l *life, i int) bool {
		was := l.events[i].Duplicate
		l.events[i].Duplicate = true
		return !was
	}), true, true},
	{"conflict without a cause", Doubled, "lossy", func(s *scene) string {
		r := s.elsewhere(Enqueue)
		r.RequestID, r.Task, r.Code, r.Reason = "nobody's", "", Refused, Conflict
		s.records = append(s.records, r)
		return "anywhere"
	}, true, false},
	{"stale read", WrongRead, "lossy", func(s *scene) string { return staleRead(s, 0) }, true, true},
	{"stale read, beside the write", WrongRead, "lossy", func(s *scene) string { return staleRead(s, 10) }, true, false},
	{"stale for another reason", WrongRead, "lossy", func(s *scene) string {
		return somewhere(s, s.whole, func(l *life, i int) bool {
			e := &l.events[i]
			if e.Code != Refused || e.Reason != Completed && e.Reason != Reclaimed {
				return false
			}
			e.Reason = map[Reason]Reason{Completed: Expired, Reclaimed: Completed}[e.Reason]
			return true
		})
	}, true, true},
	{"wrong end state", WrongRead, "lossy", on(Ack, func(s *scene, l *life, i int) bool {
		s.finalOf(l.id).State, s.o.DeadLetters = "cancelled", nil
		return true
	}), true, true},
	{"index falls in real time", Order, "lossy", func(s *scene) string {
		for i := range s.records {
			if r := &s.records[i]; r.Op == Claim && r.Code == OK && r.Task == "" && r.Index > 20*qIndexStep {
				r.Index -= 15 * qIndexStep
				return "anywhere"
			}
		}
		return ""
	}, true, false},
	{"write into an old entry", Order, "lossy", on(Enqueue, func(s *scene, l *life, i int) bool {
		e := &l.events[i]
		latest := uint64(0)
		for _, r := range s.records {
			if r.Shard == e.Shard && r.ReturnNS < e.CallNS && r.Code != Nope {
				latest = max(latest, r.Index)
			}
		}
		if e.Duplicate || latest == 0 {
			return false
		}
		e.Index = latest
		return true
	}), true, false},
	{"shard time falls", Order, "lossy", on(Enqueue, func(s *scene, l *life, i int) bool {
		e := &l.events[i]
		if e.Duplicate || e.Index < 10*qIndexStep || e.DelayUS != 0 {
			return false
		}
		e.TimeUS = s.began
		l.id = "anywhere"
		return true
	}), true, false},
	{"another payload given", Unexpected, "lossy", on(Claim, func(s *scene, l *life, i int) bool {
		l.events[i].Payload ^= 1
		return true
	}), true, true},
	{"task out of nothing", Unexpected, "lossy", func(s *scene) string {
		r := s.elsewhere(Claim)
		r.Token, r.Fence, r.Attempt, r.LeaseUntilUS = "ghost", 1, 1, r.TimeUS+1e6
		s.records = append(s.records, r)
		return "ghost"
	}, true, false},
	{"claim before the enqueue", Unexpected, "lossy", func(s *scene) string {
		return somewhere(s, s.whole, func(l *life, i int) bool {
			e, next := &l.events[0], l.next(0, Claim)
			if i > 0 || next == nil || next != &l.events[1] || e.Op != Enqueue || slices.ContainsFunc(l.events[1:], func(e event) bool {
				return e.Op == Enqueue
			}) {
				return false
			}
			e.CallNS, e.ReturnNS, e.Index, e.TimeUS = next.ReturnNS+1, next.ReturnNS+2, next.Index+1, next.TimeUS+1
			return true
		})
	}, true, true},
	{"task stuck", Stuck, "lossy", on(Ack, func(s *scene, l *life, i int) bool {
		before, _ := l.stateAt(i)
		if before.in != claimed || before.token != l.events[i].Token {
			return false
		}
		s.records = slices.DeleteFunc(s.records, func(r Record) bool { return r.Task == l.id && r.CallNS >= l.events[i].CallNS })
		f := s.finalOf(l.id)
		f.State, f.LeaseUntilUS = "claimed", f.TimeUS+1
		return true
	}), true, false},
	{"attempts out, not dead", DeadLetter, "lossy", on(Fail, func(s *scene, l *life, i int) bool {
		before, _ := l.stateAt(i)
		if before.in != claimed || before.token != l.events[i].Token || l.events[i].State != "retrying" || l.has(Retry) {
			return false
		}
		for j := range l.events {
			if e := &l.events[j]; e.Op == Enqueue {
				e.MaxAttempts = before.attempt.most
			}
		}
		return true
	}), true, true},
	{"dead before its last attempt", DeadLetter, "lossy", on(Fail, func(s *scene, l *life, i int) bool {
		e := &l.events[i]
		before, _ := l.stateAt(i)
		if before.in != claimed || before.token != e.Token || e.State != "dead" || e.Fall != FallRetry {
			return false
		}
		for j := range l.events {
			if e := &l.events[j]; e.Op == Enqueue {
				e.MaxAttempts += 5
			}
		}
		return true
	}), true, true},
	{"dead letter listed twice", DeadLetter, "lossy", func(s *scene) string {
		if len(s.dead) == 0 {
			return ""
		}
		s.o.DeadLetters = append(s.o.DeadLetters, s.dead[0])
		return s.dead[0]
	}, true, false},
	{"dead letter not listed", DeadLetter, "lossy", func(s *scene) string {
		if len(s.dead) == 0 {
			return ""
		}
		s.o.DeadLetters = s.o.DeadLetters[1:]
		return s.dead[0]
	}, true, false},

	{"open task: wrong end state", WrongRead, "lossy", func(s *scene) string {
		return somewhere(s, s.open, func(l *life, i int) bool {
			s.finalOf(l.id).State = "poisoned"
			s.o.DeadLetters = nil
			return true
		})
	}, false, true},
	{"open task: two live claims", TwoClaims, "lossy", func(s *scene) string {
		return somewhere(s, s.open, func(l *life, i int) bool {
			e := &l.events[i]
			return l.liveClaim(i) && l.calmTokens(e.Token) && put(s, l, i, func(r *Record) {
				r.Op, r.Token, r.Fence, r.Attempt, r.LeaseUntilUS = Claim, "other", e.Fence+1, e.Attempt, r.TimeUS+1e6
			})
		})
	}, false, true},
	{"open task: current token refused", GoodToken, "lossy", func(s *scene) string {
		return somewhere(s, s.open, func(l *life, i int) bool {
			e := &l.events[i]
			return l.liveClaim(i) && l.calmTokens(e.Token) && put(s, l, i, func(r *Record) {
				r.Op, r.Token, r.Code, r.Reason = Ack, e.Token,
					Refused, Reclaimed
			})
		})
	}, false, true},
	{"open task: completed twice", TwoEnds, "lossy", func(s *scene) string {
		return somewhere(s, s.open, func(l *life, i int) bool {
			return l.events[i].Op == Ack && l.events[i].Code == OK && put(s, l, i, func(r *Record) { r.Op, r.Token = Ack, "other" })
		})
	}, false, true},
	{"open task: payload", Unexpected, "lossy", func(s *scene) string {
		return somewhere(s, s.open, func(l *life, i int) bool {
			if l.events[i].Op != Claim || l.enqueue().Code != OK {
				return false
			}
			s.finalOf(l.id).Payload ^= 1
			return true
		})
	}, false, true},
}

// stale makes an operation with an older token succeed while a claim is live.
func stale(op Op) func(*scene) string {
	return on(Claim, func(s *scene, l *life, i int) bool {
		before, _ := l.stateAt(i)
		return l.liveClaim(i) && before.token != "" && before.token != l.events[i].Token && put(s, l, i, func(r *Record) {
			r.Op, r.Token = op, before.token
		})
	})
}

func claimedAgain(s *scene, l *life, i int) bool {
	_, after := l.stateAt(i)
	return after.in&^(succeeded|cancelled) == 0 && put(s, l, i, func(r *Record) {
		r.Op, r.Token, r.Fence, r.LeaseUntilUS = Claim, "other", after.fence+1, r.TimeUS+1e6
	})
}

// staleRead reports the state before a change to a read that was made after it; or, if back is not 0, at the same time.
func staleRead(s *scene, back int64) string {
	return somewhere(s, s.whole, func(l *life, i int) bool {
		e := &l.events[i]
		before, after := l.stateAt(i)
		known := map[places]string{ready: "ready", claimed: "claimed", retrying: "retrying", dead: "dead"}[before.in]
		if e.Code != OK || known == "" || before.in == after.in || before.in == claimed && before.until <= e.TimeUS ||
			after.in&waiting != 0 {
			return false
		}
		return put(s, l, i, func(r *Record) {
			r.Op, r.State, r.Fence = Get, known, before.fence
			if back != 0 {
				r.CallNS = e.CallNS - back
			}
		})
	})
}
