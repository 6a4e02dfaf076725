package lanes

// HeldTasks returns the number of tasks in lanes that must not run now.
func (s *Set) HeldTasks() (n int64) {
	n = s.heldTasks
	for p := range s.cold.byType {
		for _, t := range s.cold.byType[p] {
			if t.held {
				n += t.tasks
			}
		}
		for _, t := range s.cold.released[p] {
			if s.held[t.typ] { // held again
				n += t.tasks
			}
		}
	}
	for _, l := range s.trials {
		if l != nil {
			n-- // the probe
		}
	}
	return n
}

// countHeld updates heldTasks after the length of a lane, or what may hold it, has changed. Counting all of them when
// asked would hold up a round with many keys.
func (s *Set) countHeld(l *Lane) {
	s.heldTasks -= l.held
	if l.held = 0; l.flow.Held != 0 || s.held[l.Type] {
		l.held = l.count
	}
	s.heldTasks += l.held
}
