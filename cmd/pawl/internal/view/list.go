package view

import "time"

// FailureGroup groups dead letters that failed alike.
type FailureGroup struct {
	Queue        string    `json:"queue"`
	Queues       int       `json:"queues"` // number of queues; Queue is the one with the most
	Fingerprint  string    `json:"fingerprint"`
	Type         string    `json:"type"`
	Message      string    `json:"message"`
	Count        int64     `json:"count"`
	FirstAt      time.Time `json:"first_at,omitzero"`
	LastAt       time.Time `json:"last_at,omitzero"`
	SampleTaskID string    `json:"sample_task_id"`
	Trend        []int64   `json:"trend"` // tasks that ended in each of the last 24 hours, oldest first
}

// List is a list as in the REST API.
type List[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}
