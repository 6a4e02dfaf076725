package router

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
)

// moved means that a call certainly did not run, because its queue is no longer in the shard. It is returned by EnsureQueue, through the
// broker that called it.
type moved struct {
	Namespace, Name string
	Shard           uint32 // where the queue is now, along with Parts
	Parts           []queues.Part
	Moved           uint64
	Own             bool
	Config          task.QueueConfig
}

func movedTo(q queues.Queue) *moved {
	return &moved{q.Namespace, q.Name, q.Shard, q.Parts, q.Moved, q.Own, q.Config}
}

func (e *moved) queue() queues.Queue {
	return queues.Queue{Namespace: e.Namespace, Name: e.Name, Shard: e.Shard, Parts: e.Parts, Moved: e.Moved, Own: e.Own, Config: e.Config}
}

func (e *moved) Error() string {
	return fmt.Sprintf("queue %q is now in shards %v", e.Name, e.queue().Shards())
}

// learnMoved updates the map with where a queue is now, if that is what an error says.
func (r *Router) learnMoved(err error) bool {
	var m *moved
	if !errors.As(err, &m) {
		return false
	}
	r.cfg.Map.Learned(m.queue())
	return true
}

// translateMoved returns the API's error for a task whose queue has moved to other shards: the task can't follow.
func (r *Router) translateMoved(err error) error {
	var m *moved
	if !errors.As(err, &m) {
		return err
	}
	r.cfg.Map.Learned(m.queue())
	return &task.Error{Code: task.CodeWrongState,
		Message: fmt.Sprintf("queue %q has left the shard of the task since that ended: enqueue it as a new one", m.Name)}
}
