package schema

import (
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// ReadSettings reads the settings of a queue, or returns the defaults if the queue is gone.
func ReadSettings(from store.Reader, ns, queue string) task.Settings {
	row, ok := from.Get(QueueKey(ns, TableQueue, queue))
	if !ok {
		return task.DefaultSettings()
	}
	return Must(task.DecodeQueueConfig(row)).Settings
}
