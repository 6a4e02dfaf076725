package router

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// moved says that a call certainly did not run: its queue does not lie in the shard any more. It comes from EnsureQueue, through
// the broker that asked for it.
type moved struct {
	Namespace, Name string
	Shard           uint32 // where the queue lies by now, with Parts
	Parts           []cluster.Part
	Moved           uint64
	Own             bool
	Config          task.QueueConfig
}

func movedTo(q cluster.Queue) *moved {
	return &moved{q.Namespace, q.Name, q.Shard, q.Parts, q.Moved, q.Own, q.Config}
}

func (e *moved) queue() cluster.Queue {
	return cluster.Queue{Namespace: e.Namespace, Name: e.Name, Shard: e.Shard, Parts: e.Parts, Moved: e.Moved, Own: e.Own, Config: e.Config}
}

func (e *moved) Error() string {
	return fmt.Sprintf("queue %q lies in shards %v by now", e.Name, e.queue().Shards())
}

// learned takes over where a queue lies by now, if that is what an error says.
func (r *Router) learned(err error) bool {
	var m *moved
	if !errors.As(err, &m) {
		return false
	}
	r.cfg.Map.Learned(m.queue())
	return true
}
