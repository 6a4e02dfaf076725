package view

import (
	"time"

	"github.com/pawlq/pawl/pawltype"
)

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
	Items      []T       `json:"items"`
	NextCursor string    `json:"next_cursor,omitempty"`
	Missing    []Missing `json:"missing,omitempty"`
}

// Missing is a shard or a node whose part is missing.
type Missing struct {
	Node   string  `json:"node,omitempty"`
	Shard  *uint32 `json:"shard,omitempty"`
	Reason string  `json:"reason"`
}

// NewMissing returns the view of what is missing.
func NewMissing(list []pawltype.Missing) (out []Missing) {
	for _, m := range list {
		v := Missing{Node: m.Node, Reason: m.Reason}
		if m.Node == "" {
			v.Shard = &m.Shard
		}
		out = append(out, v)
	}
	return out
}
