package view

import "time"

// FailureGroup is the dead letters that failed alike.
type FailureGroup struct {
	Queue        string    `json:"queue"`
	Queues       int       `json:"queues"` // in how many; queue is the one with the most
	Fingerprint  string    `json:"fingerprint"`
	Type         string    `json:"type"`
	Message      string    `json:"message"`
	Count        int64     `json:"count"`
	FirstAt      time.Time `json:"first_at,omitzero"`
	LastAt       time.Time `json:"last_at,omitzero"`
	SampleTaskID string    `json:"sample_task_id"`
	Trend        []int64   `json:"trend"` // how many ended in each of the last 24 hours, the oldest first
}

// List is a list as REST answers it.
type List[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}
