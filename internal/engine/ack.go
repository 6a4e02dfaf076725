package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Ack ends a task with success, and lets what follows it be born. Repeated with the same token it gives the first answer again.
func Ack(r *Round, h Hold, result schema.Result) (Settled, error) {
	from, ended, err := r.held("ack", h)
	if err != nil {
		if ended != nil && ended.Outcome == task.OutcomeSucceeded {
			return Settled{State: task.Succeeded}, nil
		}
		return Settled{}, err
	}
	to := *from
	q := r.queueOf(h.Namespace, from)
	r.finish(h.Namespace, h.ID, q, from, &to, task.Succeeded, "")
	r.judge(q, h.ID, from.Type, task.OutcomeSucceeded, schema.Failure{})
	if len(result.Data) > 0 {
		r.tx.Set(schema.IDKey(h.Namespace, schema.TableResult, h.ID), result.Encode())
	}
	if to.Links != nil {
		r.succeeded(h.Namespace, h.ID, &to, result)
	}
	return Settled{State: task.Succeeded}, nil
}

// succeeded does what others wait for that are bound to a task.
func (r *Round) succeeded(ns string, id task.ID, x *schema.Exec, result schema.Result) {
	var born []Birth
	if x.Links.Followed {
		born = r.follow(ns, id, x, result)
	}
	if x.Links.Member() {
		r.tell(ns, id, x, result, born)
	}
}
