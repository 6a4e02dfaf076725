package lanes

// HeldTasks returns the number of tasks in lanes that must not run now.
func (s *Set) HeldTasks() (n int64) {
	if len(s.held) == 0 && len(s.flows) == 1 && s.flows[""] != nil {
		return n
	}
	for _, l := range s.byName {
		if l.flow.Held != 0 || s.held[l.Type] {
			n += l.count
		}
	}
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
