package forward

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Moved means that a call certainly did not run, because its queue is no longer in the shard. It is returned by EnsureQueue, through the
// broker that called it.
type Moved struct {
	Namespace, Name string
	Shard           uint32 // where the queue is now, along with Parts
	Parts           []queues.Part
	Moved           uint64
	Own             bool
	Config          task.QueueConfig
}

// MovedTo returns the error for a call on a queue that has moved.
func MovedTo(q queues.Queue) *Moved {
	return &Moved{q.Namespace, q.Name, q.Shard, q.Parts, q.Moved, q.Own, q.Config}
}

func (e *Moved) queue() queues.Queue {
	return queues.Queue{Namespace: e.Namespace, Name: e.Name, Shard: e.Shard, Parts: e.Parts, Moved: e.Moved, Own: e.Own, Config: e.Config}
}

func (e *Moved) Error() string {
	return fmt.Sprintf("queue %q is now in shards %v", e.Name, e.queue().Shards())
}

// LearnMoved updates the map with where a queue is now, if that is what an error says.
func (f *Forwarder) LearnMoved(err error) bool {
	var m *Moved
	if !errors.As(err, &m) {
		return false
	}
	f.cfg.Map.Learned(m.queue())
	return true
}

// translateMoved returns the API's error for a task whose queue has moved to other shards: the task can't follow.
func (f *Forwarder) translateMoved(err error) error {
	var m *Moved
	if !errors.As(err, &m) {
		return err
	}
	f.cfg.Map.Learned(m.queue())
	return &task.Error{Code: task.CodeWrongState,
		Message: fmt.Sprintf("queue %q has left the shard of the task since that ended: enqueue it as a new one", m.Name)}
}
