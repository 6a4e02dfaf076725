package schema

import "github.com/pawlq/pawl/internal/task"

// EditedOf returns the parts of a task that Update can change.
func EditedOf(x *Exec, payload []byte) task.Edited {
	if payload == nil {
		payload = []byte{}
	}
	return task.Edited{{Field: "run_at", Value: int64(x.RunAt)}, {Field: "priority", Value: x.Priority}, {Field: "payload", Value: payload},
		{Field: "max_attempts", Value: x.MaxAttempts}}
}
