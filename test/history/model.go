package history

import "math"

// Invariant names a rule that must hold. The numbers are fixed: tests and reports quote them.
type Invariant string

// The invariants of this package. Others (schedules, order, limits, equal replicas) need more than records of calls.
const (
	Lost       Invariant = "I1 an accepted task is never lost"
	TwoClaims  Invariant = "I2 a task has at most one live claim"
	StaleToken Invariant = "I3 a stale token changes nothing"
	GoodToken  Invariant = "I4 the current token is never refused"
	TwoEnds    Invariant = "I5 a task succeeds at most once, by one token"
	Revived    Invariant = "I6 an ended task stays ended"
	Early      Invariant = "I7 no task is early, and shard time is near true time"
	Numbers    Invariant = "I8 fences grow by one, attempts never fall, extensions never shorten"
	Doubled    Invariant = "I9 a request makes one task"
	WrongRead  Invariant = "I10 an answer is true"
	Order      Invariant = "I11 the log keeps the order of real time, and shard time that of the log"
	Unexpected Invariant = "I12 nothing comes that nobody enqueued"
	Stuck      Invariant = "I16 every task ends"
	DeadLetter Invariant = "I18 who used up its attempts is a dead letter, and only then, once"
)

// fault is what contradicts a record; the zero value: nothing.
type fault struct {
	rule Invariant
	why  string
}

var fine fault

// places is a set of places where a task may be.
type places uint16

const (
	absent places = 1 << iota
	scheduled
	ready
	retrying
	claimed
	succeeded
	discarded
	dead
	poisoned
	cancelled
	waiting = scheduled | ready | retrying
	ended   = succeeded | discarded | dead | poisoned | cancelled
)

// place returns the place for the API's name of a state; 0 for none.
func place(name string) places {
	switch name {
	case "scheduled":
		return scheduled
	case "ready":
		return ready
	case "retrying":
		return retrying
	case "claimed":
		return claimed
	case "succeeded":
		return succeeded
	case "discarded":
		return discarded
	case "dead":
		return dead
	case "poisoned":
		return poisoned
	case "cancelled":
		return cancelled
	}
	return 0
}

// span is a number within bounds.
type span struct{ least, most int }

// has reports whether n is within the span; 0 is a number that was not seen.
func (s span) has(n int) bool { return n == 0 || s.least <= n && n <= s.most }

// state is all that is known of one task: a set of cases, if time or a lost answer leaves more than one open. Changes
// by time alone are not steps of their own: the next answer shows whether they happened.
//
// States are values: a step returns a new one and changes nothing.
type state struct {
	in       places
	fence    int64  // of the last claim
	attempt  span   // number of the current or next attempt
	life     span   // the number at which the task's current life began: 1, or that of its last replay
	begun    int    // number of the last attempt that began; -1 if unknown
	max      int    // attempts of a life; 0: unknown
	token    string // of the last claim; "" if unknown, then the broker may take it back at any time
	claimKey string // of the last claim
	until    int64  // earliest end of the last claim's lease, as far as known
	due      int64  // earliest time at which a waiting task is due
	log      *attempt
	payload  uint64
	at       position
	notUntil int64 // earliest shard time of the last step
}

// position is a position in the log of a shard.
type position struct {
	index uint64
	time  int64
}

// attempt is how one claim ended. The list leads from the last to the first.
type attempt struct {
	token  string
	fence  int64
	how    outcomes
	then   places // where the task was put
	due    int64
	before *attempt
	hash   uint64 // of the whole list
}

// outcomes is a set of ways in which a claim may have ended.
type outcomes uint8

const (
	bySuccess outcomes = 1 << iota
	byFailure
	byRelease
	byCancel
	byTime // its lease was lost
)

// beginning is the state of a task before anything is known of it.
func beginning() state { return state{in: absent, begun: 0} }

// event is a record with the range of shard times in which it took effect.
type event struct {
	*Record
	from, to int64
	ordered  bool // its position in the log counts
	lapse    bool // not a call: see lapsing
	wrote    bool // it certainly changed something
	final    bool // not a call of the history, but of the check
}

// step returns the state after an event, or what contradicts the event's answer.
func (s state) step(e *event) (state, fault) {
	if e.to < s.notUntil {
		return s, fault{Order, "its time was over"}
	}
	if e.ordered {
		here := position{e.Index, e.TimeUS}
		if here.index < s.at.index || here.index == s.at.index && here.time < s.at.time {
			return s, fault{Order, "the log has it earlier"}
		}
		if !e.Retried {
			s.at = here
		}
	}
	switch {
	case e.lapse:
		return s.lapsing(), fine
	case e.Code == Unknown:
		return s.guess(e), fine
	case e.Code == Refused:
		return s.refuse(e)
	case e.Code == OK:
		return s.accept(e)
	}
	return s, fine
}

// attemptOf finds how the claim with a token ended.
func (s *state) attemptOf(token string) *attempt {
	for a := s.log; a != nil; a = a.before {
		if a.token == token && token != "" {
			return a
		}
	}
	return nil
}

// end records how the current claim ended.
func (s *state) end(how outcomes, then places, due int64) {
	a := &attempt{token: s.token, fence: s.fence, how: how, then: then, due: due, before: s.log, hash: 1}
	if s.log != nil {
		a.hash = s.log.hash
	}
	for _, n := range [...]uint64{uint64(a.fence), uint64(how), uint64(then), uint64(due)} {
		a.hash = a.hash*0x9e3779b97f4a7c15 + n
	}
	s.log = a
	s.in, s.due = then, 0
	if then&(scheduled|retrying) != 0 {
		s.due = due
	}
}

// holds reports whether the event has the token of a claim that may be live.
func (s *state) holds(e *event) bool { return s.in&claimed != 0 && s.token != "" && e.Token == s.token }

// mayLapse reports whether the shard may have put a claimed task back by the time of the event: a lease has ended, or
// an undelivered answer was taken back.
func (s *state) mayLapse(e *event) bool {
	return s.in&claimed != 0 && (e.to >= s.until || s.token == "")
}

// lapsed is the state after the lease was lost. What the broker did then shows later: a crash uses up an attempt, a
// loss without a leader does not, and a run beyond its timeout is retried after a pause.
func (s state) lapsed() state {
	then := ready | retrying
	if s.attempt.most++; s.canExhaust() {
		then |= dead
	}
	s.end(byTime, then, 0)
	return s
}

// lapsing is a lapse that a search may place anywhere, for unanswered calls that had an effect only after one.
func (s state) lapsing() state {
	if s.in != claimed {
		return s
	}
	over := s.until
	if s.token == "" {
		over = 0
	}
	s = s.lapsed()
	s.notUntil = max(s.notUntil, over)
	return s
}

// canExhaust reports whether attempts may have run out, and mustExhaust whether they have.
func (s *state) canExhaust() bool  { return s.max == 0 || s.attempt.most-s.life.least >= s.max }
func (s *state) mustExhaust() bool { return s.max > 0 && s.attempt.least-s.life.most >= s.max }

// seen returns the state when an answer of the event says that the task is in one of some places; ok is false if that is impossible.
func (s state) seen(e *event, where places) (state, bool) {
	stay := s.in & where
	if where&ready != 0 && s.in&(scheduled|retrying) != 0 && e.to >= s.due {
		stay |= ready
	}
	if stay == 0 && s.mayLapse(e) {
		s = s.lapsed()
		if stay = s.in & where; stay == dead {
			s.attempt.least++ // it was a crash
		}
	}
	if stay == 0 {
		return s, false
	}
	s.in = stay
	if stay == ready {
		s.due = 0
	}
	return s, true
}

// equal compares states for the search. Log positions are part of them: they determine what may follow.
func (s *state) equal(o *state) bool {
	a, b := *s, *o
	a.log, b.log = nil, nil
	return a == b && s.log.equal(o.log)
}

func (a *attempt) equal(b *attempt) bool {
	for ; a != b; a, b = a.before, b.before {
		if a == nil || b == nil || a.hash != b.hash || a.token != b.token || a.fence != b.fence || a.how != b.how ||
			a.then != b.then || a.due != b.due {
			return false
		}
	}
	return true
}

func (s *state) hash() uint64 {
	h := uint64(s.in)
	for _, n := range [...]uint64{uint64(s.fence), uint64(s.attempt.least), uint64(s.until), uint64(s.due), s.at.index} {
		h = (h ^ n) * 0x9e3779b97f4a7c15
	}
	if s.log != nil {
		h ^= s.log.hash
	}
	return h
}

// anyTime is the end of the time in which an unanswered call may take effect.
const anyTime = math.MaxInt64
