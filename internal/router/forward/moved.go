package forward

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Moved means that a call certainly did not run, because its queue is no longer in the shard. It is returned by EnsureQueue, through the
// broker that called it.
type Moved struct {
	queues.Queue // as it is now
}

// MovedTo returns the error for a call on a queue that has moved.
func MovedTo(q queues.Queue) *Moved { return &Moved{q} }

func (e *Moved) Error() string {
	return fmt.Sprintf("queue %q is now in shards %v", e.Name, e.Shards())
}

// LearnMoved updates the map with where a queue is now, if that is what an error says.
func (f *Forwarder) LearnMoved(err error) bool {
	var m *Moved
	if !errors.As(err, &m) {
		return false
	}
	f.cfg.Map.Learned(m.Queue)
	return true
}

// translateMoved returns the API's error for a task whose queue has moved to other shards: the task can't follow.
func (f *Forwarder) translateMoved(err error) error {
	var m *Moved
	if !errors.As(err, &m) {
		return err
	}
	f.cfg.Map.Learned(m.Queue)
	return &task.Error{Code: task.CodeWrongState,
		Message: fmt.Sprintf("queue %q has left the shard of the task since that ended: enqueue it as a new one", m.Name)}
}
