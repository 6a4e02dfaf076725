package engine

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/lanes"
)

// A new leader reads the lanes of a queue bit by bit (see lanes/read.go): Tick reads the lanes of one queue after the other.

// readLater has Tick read the lanes of a queue that are left.
func (r *Round) readLater(q *Queue) {
	if q.lanes.Partial() && !slices.Contains(r.l.reading, q) {
		r.l.reading = append(r.l.reading, q)
	}
}

// readOn reads more lanes, of one queue.
func (r *Round) readOn() {
	if len(r.l.reading) == 0 {
		return
	}
	q := r.l.reading[0]
	if r.l.queues[q.queueName] == q { // else it was deleted
		r.lanes.ReadMore(q.lanes, lanes.Bounds.TickRead)
		if q.starved {
			q.starved = false
			r.wake(q)
		}
		if q.lanes.Partial() {
			return
		}
	}
	r.l.reading = r.l.reading[1:]
}

// readForClaim reads more lanes for a claim that found nothing, as long as the round may.
func (r *Round) readForClaim(q *Queue, types []string) bool {
	for q.lanes.Partial() && q.mayRun(r.now) && r.lanes.Read < lanes.Bounds.ClaimRead {
		r.lanes.ReadMore(q.lanes, lanes.Bounds.ClaimRead-r.lanes.Read)
		if q.runnable(r.now, types) {
			return true
		}
	}
	q.starved = q.starved || q.lanes.Partial()
	return false
}
