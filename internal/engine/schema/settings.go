package schema

import (
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// ReadSettings are the queue's, or the defaults for a queue that is gone.
func ReadSettings(from store.Reader, ns, queue string) task.Settings {
	row, ok := from.Get(QueueKey(ns, TableQueue, queue))
	if !ok {
		return task.DefaultSettings()
	}
	c, err := task.DecodeQueueConfig(row)
	Must(err)
	return c.Settings
}
