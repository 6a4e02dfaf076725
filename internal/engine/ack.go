package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Ack ends a task with success, and lets what follows it be born. Repeated with the same token it gives the first answer again.
func Ack(r *Round, h Hold, result schema.Result) (Settled, error) {
	from, ended, err := r.Held("ack", h)
	if err != nil {
		if ended != nil && ended.Outcome == task.OutcomeSucceeded {
			return Settled{State: task.Succeeded}, nil
		}
		return Settled{}, err
	}
	to := *from
	q := r.QueueOf(h.Namespace, from)
	r.Finish(h.Namespace, h.ID, q, from, &to, task.Succeeded, "")
	r.judge(q, h.ID, from.Type, task.OutcomeSucceeded, schema.Failure{})
	if len(result.Data) > 0 {
		r.tx.Set(schema.IDKey(h.Namespace, schema.TableResult, h.ID), result.Encode())
	}
	if to.Links != nil {
		r.tellEnded(h.Namespace, h.ID, &to, result)
	}
	return Settled{State: task.Succeeded}, nil
}
