package engine

import (
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// tickLimit bounds the deadlines of one round, so that 100,000 tasks due at once do not hold up other calls.
const tickLimit = 1000

// CreateLimit bounds the tasks that schedules create in one round, for the same reason: a new task costs more than one that becomes ready.
const CreateLimit = 25

// LeaderGrace is the minimum time that a lease lasts after a change of leader, so that holders can extend or settle
// what they could not while there was no leader. A lease that did not end meanwhile lasts no longer than this after the
// end of its run.
const LeaderGrace = 15 * time.Second

// clockDoubt is how far the time of a new leader may be ahead of the previous one. Beyond it the clock may be wrong,
// and what retention deletes can't be recovered, so retention deletes nothing for that long.
const clockDoubt = time.Hour

// Doubted reports whether the clock is in doubt, and until when retention then deletes nothing.
func (o LeaderTerm) Doubted() (until store.Time, doubted bool) {
	return o.Began.Add(clockDoubt), o.Before != 0 && o.Began > o.Before.Add(clockDoubt)
}

// NextDeadline returns a time before which Tick has nothing to do.
func (l *Leader) NextDeadline() store.Time {
	if len(l.reading) > 0 {
		return 0
	}
	return l.FirstDeadline()
}

// FirstDeadline returns a time before which there is no deadline.
func (l *Leader) FirstDeadline() store.Time { return l.timelines.First() }

// Tick does what is due, up to a bound, and reads more of the lanes that a new leader has not read yet. NextDeadline
// then returns when to call it again.
func Tick(r *Round) {
	readMoreLanes(r)
	if r.l.FirstDeadline() > r.now {
		return
	}
	all := readDue(r)
	due := all.Deadlines
	warmDue(r, due)
	done := 0
	for done < len(due) && r.created < CreateLimit {
		d, n := schema.Joined(due[done:])
		for i := range n {
			r.tx.Delete(due[done+i].Key())
		}
		done += n
		r.l.points.due[d.Kind](r, d)
	}
	for _, line := range all.Lines {
		switch {
		case all.Whole && done == len(due):
			r.l.timelines.Skip(r.tx, line, r.now)
		case done > 0:
			r.l.timelines.Advance(line, due[done-1])
		}
	}
}

// readDue reads what is due, and sets rows apart that are no deadlines.
func readDue(r *Round) deadline.Due {
	known := func(kind schema.DeadlineKind) bool { return r.l.points.due[kind] != nil }
	due := r.l.timelines.ReadDue(r.tx, r.now, deadline.Bounds{Acts: tickLimit, Births: CreateLimit}, known)
	for _, row := range due.Unknown {
		setApart(r, row)
	}
	return due
}

// warmDue reads the states of the tasks that become ready or expire. A deadline of a lease names its tasks itself.
func warmDue(r *Round, due []schema.Deadline) {
	ids := map[string][]task.ID{}
	for i := range due {
		if d := &due[i]; d.Kind == schema.OnDue || d.Kind == schema.OnExpiry {
			ids[d.Namespace] = append(ids[d.Namespace], d.ID())
		}
	}
	for ns, ids := range ids {
		r.Warm(ns, ids)
	}
}

// taskDue acts on a task's deadline, if it still is the task's.
func taskDue(r *Round, d schema.Deadline) { oneTaskDue(r, d, d.ID()) }

// leasesEnd does the same for the leases of all tasks that share a deadline.
func leasesEnd(r *Round, d schema.Deadline) {
	r.Warm(d.Namespace, d.Shared)
	for _, id := range d.Shared {
		oneTaskDue(r, d, id)
	}
}

// expire discards a task that was not started in time.
func expire(r *Round, ns string, id task.ID, x *schema.Exec) {
	c := r.Change(ns, id, x)
	c.Finish(task.Discarded, task.ReasonExpired)
}

// discardExpired discards an expired task that a claim has met. After tickLimit of them claims leave the queue alone
// until the next Tick, which wakes them.
func (h roundQueue) discardExpired(id task.ID, x *schema.Exec) {
	r, q := h.r, h.q
	expire(r, q.ns, id, x)
	if r.expired++; r.expired < tickLimit {
		return
	}
	q.expiring, q.starved = r.tx.Index(), true
	if !slices.Contains(r.l.reading, q) {
		r.l.reading = append(r.l.reading, q)
	}
}

func oneTaskDue(r *Round, d schema.Deadline, id task.ID) {
	x, err := r.Exec(d.Namespace, id)
	if err != nil {
		return
	}
	if d.Kind == schema.OnExpiry {
		if x.AwaitsStart() && x.ExpiresAt == d.At {
			expire(r, d.Namespace, id, x)
		}
		return
	}
	if at, kind := x.Deadline(); kind != d.Kind || at != d.At {
		return
	}
	switch d.Kind {
	case schema.OnDue:
		c := r.Change(d.Namespace, id, x)
		r.MakeReady(c.To)
		c.Move()
	case schema.OnLease:
		c := r.Change(d.Namespace, id, x)
		c.leaseEnds()
	}
}
