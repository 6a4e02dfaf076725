package router

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/task"
)

// stranded returns the API's error for a task whose queue has moved to other shards: the task can't follow.
func (r *Router) stranded(err error) error {
	var m *moved
	if !errors.As(err, &m) {
		return err
	}
	r.cfg.Map.Learned(m.queue())
	return &task.Error{Code: task.CodeWrongState,
		Message: fmt.Sprintf("queue %q has left the shard of the task since that ended: enqueue it as a new one", m.Name)}
}
