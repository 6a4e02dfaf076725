package engine

import (
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Runnable reports whether a claim would get a task.
func Runnable(r *Round, c *ClaimRequest) bool {
	p := claiming{r: r, c: c}
	for _, s := range c.Queues {
		if p.runnable(s.Queue) != nil {
			return true
		}
	}
	return false
}

// pick chooses the queue of the next task, or returns nil if no queue has one.
func (p *claiming) pick() *Queue {
	if p.credit == nil {
		for _, s := range p.c.Queues {
			if q := p.runnable(s.Queue); q != nil {
				return q
			}
		}
		return nil
	}
	copy(p.before, p.credit)
	at := p.credit.Next(func(i int) int {
		if p.runnable(p.c.Queues[i].Queue) == nil {
			return 0
		}
		return p.c.Queues[i].Weight
	})
	if at < 0 {
		return nil
	}
	return p.runnable(p.c.Queues[at].Queue)
}

// undo reverts the last pick, whose task did not fit.
func (p *claiming) undo() { copy(p.credit, p.before) }

func (p *claiming) runnable(name string) *Queue {
	q := p.r.Queue(p.c.Namespace, name)
	switch {
	case q == nil || q.expiring == p.r.tx.Index():
	case q.runnable(p.r.now, p.c.Types) || q.in(p.r).readForClaim(p.c.Types):
		return q
	case q.space.Full():
		q.space.Block(&q.waits)
	}
	return nil
}

// runnable reports whether the queue has a task of one of the types that may run now.
func (q *Queue) runnable(now store.Time, types []string) bool {
	if !q.mayRun(now) {
		return false
	}
	for i, p := range task.Priorities {
		switch {
		case q.lanes.Has(p, types):
			return true
		case q.lanes.MayFind(i, types) && !q.config.Settings.Weighted():
			return false // this priority must be read further before a lower one is served
		}
	}
	return false
}
