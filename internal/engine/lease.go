package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// leaseEnds ends the claim of a worker that vanished, or that wanted it to end then.
func (c *Change) leaseEnds() {
	r, x, to := c.r, c.From, c.To
	orphaned := x.Claim.Orphaned || x.Claim.Until <= r.l.term.Began
	grace := r.l.term.Began.Add(min(x.Claim.Lease, LeaderGrace))
	if !orphaned { // the graces of several leaders don't add up
		grace = min(grace, x.Claim.RunUntil.Add(LeaderGrace))
	}
	if r.now < grace {
		to.Claim.Until, to.Claim.Orphaned = grace, orphaned
		c.Move()
		return
	}
	outcome := task.OutcomeLeaseLost
	switch {
	case x.Claim.Orphaned:
		outcome = task.OutcomeLeaderless
		c.requeueInPlace()
	case x.Claim.GivesBack > 0:
		outcome = task.OutcomeReleased
		to.Releases++
		c.requeueInPlace()
	case x.Claim.Until >= x.Claim.RunUntil:
		outcome = task.OutcomeTimedOut
		c.retry(FailRequest{Failure: timedOut})
	default:
		to.Crashes++
		if to.Used() >= c.q.maxAttempts(to) {
			c.makeDead(task.ReasonLeaseLost, vanished)
		} else {
			c.requeueInPlace()
		}
	}
	c.endAttempt(outcome, failures[outcome])
	c.noteLost(task.StaleExpired)
}

// requeueInPlace makes a claimed task ready at its old place, unless a newer task replaces it.
func (c *Change) requeueInPlace() {
	c.To.State, c.To.ReadyAt = task.Ready, c.r.now
	c.requeue()
}

var (
	timedOut = schema.Failure{Type: "timeout", Message: "the run exceeded its timeout"}
	vanished = schema.Failure{Type: "lease_lost", Message: "the worker vanished: its lease ended"}
)

var failures = map[task.Outcome]schema.Failure{task.OutcomeTimedOut: timedOut, task.OutcomeLeaseLost: vanished}
