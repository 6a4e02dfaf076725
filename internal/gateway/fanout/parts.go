package fanout

import (
	"errors"

	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
)

// EachPart calls do for the parts of a queue, one after the other. It skips shards that no task of the queue has come to yet.
func EachPart(q queues.Queue, do func(shard uint32) error) error {
	for _, shard := range q.Shards() {
		if err := do(shard); err != nil && !errors.Is(err, task.ErrNotFound) {
			return err
		}
	}
	return nil
}
