package engine

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/task"
)

// A new leader reads the lanes of a queue bit by bit (see lanes/read.go): Tick reads them queue by queue.

// readLater makes Tick read the remaining lanes of the queue.
func (h roundQueue) readLater() {
	if l := h.r.l; h.q.lanes.Partial() && !slices.Contains(l.reading, h.q) {
		l.reading = append(l.reading, h.q)
	}
}

// readMoreLanes reads more lanes, of one queue.
func readMoreLanes(r *Round) {
	if len(r.l.reading) == 0 {
		return
	}
	q := r.l.reading[0]
	if r.l.queues[q.queueName] == q { // else it was deleted
		r.lanes.ReadMore(q.lanes, lanes.Bounds.TickRead)
		if q.starved {
			q.starved = false
			q.in(r).Wake()
		}
		if q.lanes.Partial() {
			return
		}
	}
	r.l.reading = r.l.reading[1:]
}

// readForClaim reads more lanes for a claim that found nothing, as long as the round may.
func (h roundQueue) readForClaim(types []string) bool {
	r, q := h.r, h.q
	for q.lanes.Partial() && q.mayRun(r.now) && r.lanes.Read < lanes.Bounds.ClaimRead {
		r.lanes.ReadMore(q.lanes, lanes.Bounds.ClaimRead-r.lanes.Read)
		if q.runnable(r.now, types) {
			return true
		}
	}
	q.starved = q.starved || q.lanes.Partial()
	return false
}

// ChildID returns the id of the n-th task that a schedule or a task creates in this round.
func ChildID(r *Round, parent task.ID, n uint64) task.ID {
	return task.ChildID(parent, n, int64(r.now)/1000)
}
