package query

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// EndOfClaim returns the reason why a task is no longer claimed with a fence. x is the task's row.
func EndOfClaim(from store.Reader, ns string, id task.ID, fence uint64, x *schema.Exec) (stale string) {
	attempts := schema.ReadAttempts(from, ns, id)
	if x.State == task.Succeeded {
		attempts = append(attempts, x.Success())
	}
	for _, a := range attempts {
		if a.Fence == fence {
			return staleReason(a.Outcome)
		}
	}
	return task.StaleExpired
}

// staleReason maps the outcome of an attempt to the reason that its holder gets.
func staleReason(o task.Outcome) string {
	switch o {
	case task.OutcomeCancelled:
		return task.StaleCancelled
	case task.OutcomeLeaseLost, task.OutcomeTimedOut, task.OutcomeLeaderless:
		return task.StaleExpired
	}
	return task.StaleCompleted
}
