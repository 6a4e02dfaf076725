package history

// replay steps through each task that no lost answer leaves open, in log order.
func (b *book) replay() {
	var lives []*life
	for _, l := range b.lives {
		if !l.open && !l.judged && len(l.events) > 0 {
			lives = append(lives, l)
		}
	}
	side(lives, b.replayOne)
	for _, l := range lives {
		if !l.open {
			b.report.Replayed++
		}
	}
}

// replayOne checks a task, or leaves it to the search, which tries every order and remembers what it has tried.
func (b *book) replayOne(l *life) {
	sortByLog(l.events)
	r := replay{s: beginning()}
	switch ok := r.run(l.events); {
	case r.gaveUp || !ok && r.forked:
		l.open = true
		for i := range l.events {
			l.events[i].wrote = false
		}
	case !ok:
		b.violation(r.fault, l.id, r.shown()...)
		l.judged = true
	}
}

// replay is the replay of one task.
type replay struct {
	s      state
	steps  int    // orders tried in the current entry
	gaveUp bool   // the order within an entry could not be found in time
	forked bool   // an entry that was passed may have another order, with another state after it
	made   *event // the last one that changed the state
	given  *event // the last claim

	// of the furthest try in the current entry:
	reached int
	fault   fault
	culprit *event
}

// maxTries bounds the orders that are tried for calls that share an entry. Calls that change nothing are tried in one place only, so
// that only calls that race for one task within a millisecond come close to it.
const maxTries = 10_000

// maxShared is the maximum number of calls on one task in an entry.
const maxShared = 64

// run returns false if an answer is impossible.
func (r *replay) run(events []event) bool {
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Index == events[0].Index && events[n].TimeUS == events[0].TimeUS {
			n++
		}
		if n > maxShared {
			r.gaveUp = true
			return true
		}
		r.steps, r.reached, r.fault, r.culprit = 0, -1, fine, nil
		if !r.entry(events[:n], 0, 0) && !r.gaveUp {
			return false
		}
		if r.gaveUp {
			return true
		}
		events = events[n:]
	}
	return true
}

// entry finds an order for calls that share an entry and steps through it. done is the set of calls that have their place.
func (r *replay) entry(events []event, done uint64, n int) bool {
	if r.steps++; r.steps > maxTries {
		r.gaveUp = true
		return false
	}
	if n == len(events) {
		return true
	}
	before := *r
	for i := range events {
		e := &events[i]
		if done&(1<<i) != 0 || mustWait(events, done, i) {
			continue
		}
		next, f := r.s.step(e)
		if f != fine {
			if n > r.reached {
				r.reached, r.fault, r.culprit = n, f, e
			}
			continue
		}
		changed := next != r.s
		r.forked = r.forked || changed && n+1 < len(events)
		r.take(e, next)
		if r.entry(events, done|1<<i, n+1) {
			return true
		}
		if !changed || r.gaveUp {
			return false // in another place it would change nothing either
		}
		e.wrote = false
		r.s, r.made, r.given = before.s, before.made, before.given
	}
	return false
}

// take takes one step.
func (r *replay) take(e *event, next state) {
	if next == r.s {
		return
	}
	switch {
	case e.Code != OK || e.Duplicate || e.Op == Get || e.Op == RunNow:
	case e.Op == Claim: // returned again, it may show a lease that was extended meanwhile
		e.wrote = next.fence != r.s.fence
		r.given = e
	default:
		e.wrote = true
	}
	r.s, r.made = next, e
}

// mustWait reports whether another call without a place had returned before the i-th was made.
func mustWait(events []event, done uint64, i int) bool {
	for j := range events {
		if done&(1<<j) == 0 && events[j].ReturnNS < events[i].CallNS {
			return true
		}
	}
	return false
}

// shown returns the records that show the fault: the last claim, the last change, and the record that does not fit.
func (r *replay) shown() (shown []*Record) {
	if r.given != nil && r.given != r.made {
		shown = append(shown, r.given.Record)
	}
	if r.made != nil {
		shown = append(shown, r.made.Record)
	}
	if r.culprit != nil {
		shown = append(shown, r.culprit.Record)
	}
	return shown
}
