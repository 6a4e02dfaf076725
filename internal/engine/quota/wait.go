package quota

// Block remembers that a queue was asked for tasks which its namespace keeps from running.
func (s *Space) Block(w *Waiter) {
	if !w.blocked {
		w.blocked = true
		s.refused[2]++
		s.blocked = append(s.blocked, w)
	}
}

// Round is what a round has freed.
type Round struct {
	spaces []*Space // that may run more, while queues wait for that
}

// RoomIn notes that a namespace may run more, if somebody waits for that.
func (r *Round) RoomIn(s *Space) {
	if len(s.blocked) > 0 && !s.Full() && !s.freed {
		s.freed = true
		r.spaces = append(r.spaces, s)
	}
}

// Next is the next queue of a namespace that may run more by what the round has done, if there is one. It waits no longer. A queue a step,
// so that a namespace with thousands of them costs each round what it uses.
func (r *Round) Next() (ns, queue string, some bool) {
	for len(r.spaces) > 0 {
		s := r.spaces[len(r.spaces)-1]
		if len(s.blocked) > 0 && !s.Full() {
			w := s.blocked[0]
			s.blocked[0] = nil
			s.blocked = s.blocked[1:]
			w.blocked = false
			return s.ns, w.Queue, true
		}
		s.freed = false
		r.spaces = r.spaces[:len(r.spaces)-1]
	}
	return "", "", false
}

// Seal ends the round.
func (r *Round) Seal() {
	for _, s := range r.spaces {
		s.freed = false
	}
	r.spaces = nil
}
