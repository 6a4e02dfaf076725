package limit

// Block records that a claim on the queue found the namespace at its running limit.
func (s *Space) Block(w *Waiter) {
	if !w.blocked {
		w.blocked = true
		s.refused[2]++
		s.blocked = append(s.blocked, w)
	}
}

// QuotaRound records what a round has freed.
type QuotaRound struct {
	spaces []*Space // that may run more tasks and have blocked queues
}

// RoomIn records that a namespace may run more tasks, if it has blocked queues.
func (r *QuotaRound) RoomIn(s *Space) {
	if len(s.blocked) > 0 && !s.Full() && !s.freed {
		s.freed = true
		r.spaces = append(r.spaces, s)
	}
}

// Next unblocks and returns the next queue of a namespace that may run more tasks after this round, if there is one. It
// goes one queue at a time, so that a namespace with thousands of them costs a round only as much as the round can use.
func (r *QuotaRound) Next() (ns, queue string, some bool) {
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
func (r *QuotaRound) Seal() {
	for _, s := range r.spaces {
		s.freed = false
	}
	r.spaces = nil
}
