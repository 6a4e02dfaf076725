package history

// facts checks what does not depend on the order of events: each request created one task (I9), accepted tasks exist at
// the end (I1) and have ended (I16), and dead letters are listed once (I18).
func (b *book) facts() {
	b.requests()
	if b.o.Final != nil {
		for _, l := range b.lives {
			b.present(l)
		}
		b.stuck()
	}
	if b.o.DeadLetters != nil {
		b.deadLetters()
	}
}

// requests: one request id, or idempotency key of a queue, names one task, and conflicts have a cause.
func (b *book) requests() {
	first := make(map[name]*Record, len(b.lives))
	for _, l := range b.lives {
		for i := range l.events {
			r := l.events[i].Record
			if r.Op != Enqueue || r.Code != OK {
				continue
			}
			for n := range r.names {
				if was := first[n]; was == nil {
					first[n] = r
				} else if was.Task != r.Task {
					b.violation(fault{Doubled, "one request, two tasks"}, l.id, was, r)
					l.judged = true
				}
			}
		}
	}
	b.conflicts()
}

// name identifies the task of an enqueue: a request id, or a queue's idempotency key.
type name struct{ request, queue, key string }

// names yields the names in an enqueue.
func (r *Record) names(yield func(name) bool) {
	if r.RequestID != "" && !yield(name{request: r.RequestID}) {
		return
	}
	if r.Key != "" {
		yield(name{queue: r.Queue, key: r.Key})
	}
}

// conflicts: an enqueue may be refused with a conflict only if its request id or key was used with different content.
func (b *book) conflicts() {
	var refused []*Record
	uses := map[name][]content{} // by the names that were refused
	b.each(func(r *Record) {
		if r.Op == Enqueue && r.Code == Refused && r.Reason == Conflict {
			refused = append(refused, r)
			for n := range r.names {
				uses[n] = nil
			}
		}
	})
	if len(refused) == 0 {
		return
	}
	b.each(func(r *Record) {
		if r.Op != Enqueue || r.Code == Nope {
			return
		}
		for n := range r.names {
			if all, asked := uses[n]; asked {
				uses[n] = append(all, content{r.Queue, r.Payload})
			}
		}
	})
	for _, r := range refused {
		caused := false
		for n := range r.names {
			for _, c := range uses[n] {
				caused = caused || c != content{r.Queue, r.Payload}
			}
		}
		if !caused {
			b.violation(fault{Doubled, "refused as a conflict, and nobody asked for anything else"}, r.Task, r)
		}
	}
}

// each calls fn for every record.
func (b *book) each(fn func(*Record)) {
	for i := range b.loose {
		fn(b.loose[i].Record)
	}
	for _, l := range b.lives {
		for i := range l.events {
			fn(l.events[i].Record)
		}
	}
}

// present: a task that an answer mentioned exists at the end.
func (b *book) present(l *life) {
	if !l.known || l.final {
		return
	}
	shown := l.enqueue()
	if shown == nil {
		shown = l.events[0].Record
	}
	b.violation(fault{Lost, "it is not there at the end"}, l.id, shown)
	l.judged = true
}

// stuck: at the end, nothing waits that should have moved on.
func (b *book) stuck() {
	late := b.o.Overdue.Microseconds()
	for i := range b.o.Final {
		r := &b.o.Final[i]
		where := place(r.State)
		switch {
		case r.Code != OK:
		case b.o.Drained && where&ended == 0:
			b.violation(fault{Stuck, "it has not ended"}, r.Task, r)
		case late == 0:
		case where == claimed && r.LeaseUntilUS != 0 && r.TimeUS > r.LeaseUntilUS+late:
			b.violation(fault{Stuck, "its lease was over long ago"}, r.Task, r)
		case where&(scheduled|retrying) != 0 && r.DueUS != 0 && r.TimeUS > r.DueUS+late:
			b.violation(fault{Stuck, "it was due long ago"}, r.Task, r)
		}
	}
}

// deadLetters: the listing has every dead task once, and nothing else.
func (b *book) deadLetters() {
	listed := make(map[string]int, len(b.o.DeadLetters))
	for _, id := range b.o.DeadLetters {
		listed[id]++
	}
	for i := range b.o.Final {
		r := &b.o.Final[i]
		n := listed[r.Task]
		delete(listed, r.Task)
		isDead := r.Code == OK && place(r.State) == dead
		switch {
		case isDead && n == 0:
			b.violation(fault{DeadLetter, "dead, and not listed as a dead letter"}, r.Task, r)
		case !isDead && n > 0:
			b.violation(fault{DeadLetter, "listed as a dead letter, and is not dead"}, r.Task, r)
		case n > 1:
			b.violation(fault{DeadLetter, "listed as a dead letter more than once"}, r.Task, r)
		}
	}
	for id := range listed {
		b.violation(fault{DeadLetter, "listed as a dead letter, and is not there"}, id)
	}
}
