package schema

import "github.com/pawlq/pawl/internal/task"

// EditedOf is what Update can change of a task.
func EditedOf(x *Exec, payload []byte) task.Edited {
	if payload == nil {
		payload = []byte{}
	}
	return task.Edited{{Field: "run_at", Value: int64(x.RunAt)}, {Field: "priority", Value: x.Priority}, {Field: "payload", Value: payload}, {Field: "max_attempts", Value: x.MaxAttempts}}
}
