package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Ack ends a task with success and starts what follows it. Repeating it with the same token returns the first answer.
func Ack(r *Round, h Hold, result schema.Result) (Settled, error) {
	from, ended, err := r.Held("ack", h)
	if err != nil {
		if ended != nil && ended.Outcome == task.OutcomeSucceeded {
			return Settled{State: task.Succeeded}, nil
		}
		return Settled{}, err
	}
	c := h.change(r, from)
	c.To.HasResult = len(result.Data) > 0
	c.Finish(task.Succeeded, "")
	c.judge(task.OutcomeSucceeded, schema.Failure{})
	if c.To.HasResult {
		r.tx.Set(schema.IDKey(h.Namespace, schema.TableResult, h.ID), result.Encode())
	}
	if c.To.Links != nil {
		c.notifyLinked(result)
	}
	return Settled{State: task.Succeeded}, nil
}
