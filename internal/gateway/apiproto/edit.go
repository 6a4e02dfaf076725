package apiproto

import (
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// EditOf decodes and validates the changes to a waiting task.
func EditOf(r *pawlv1.UpdateTaskRequest) (e broker.Edit, err error) {
	if r.GetRunAt() != nil {
		at, err := TimeOf("run_at", r.GetRunAt())
		if err != nil {
			return e, err
		}
		if at.Year() < 1970 { // the upper bound is 9999 anyway
			return e, task.Invalid("run_at", "%s is not between the years 1970 and 9999", at.Format(time.RFC3339))
		}
		e.RunAt = &at
	}
	if e.Priority, err = priorityOf(r.GetPriority()); err != nil {
		return e, err
	}
	if n := r.GetMaxAttempts(); n < 0 || n > contract.MaxAttempts {
		return e, task.Invalid("max_attempts", "%d is not between 1 and %d", n, contract.MaxAttempts)
	}
	e.MaxAttempts = int(r.GetMaxAttempts())
	if r.Payload != nil {
		payload := r.GetPayload()
		e.Payload = &payload
	}
	if e == (broker.Edit{}) {
		return e, task.Invalid("run_at", "is required unless priority, payload or max_attempts is given: nothing would change")
	}
	e.IfETag = r.GetIfEtag()
	return e, nil
}
