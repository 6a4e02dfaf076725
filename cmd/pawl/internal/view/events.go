package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// Event is an event for programs, one per line.
type Event struct {
	Kind        admin.EventKind `json:"kind"`
	Time        time.Time       `json:"time,omitzero"`
	Queue       string          `json:"queue,omitempty"`
	Type        string          `json:"type,omitempty"`
	Key         string          `json:"key,omitempty"`
	TaskID      string          `json:"task_id,omitempty"`
	State       pawltype.State  `json:"state,omitempty"`
	Attempt     int             `json:"attempt,omitempty"`
	Worker      string          `json:"worker,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Error       string          `json:"error,omitempty"`
	Name        string          `json:"name,omitempty"`
	OperationID string          `json:"operation_id,omitempty"`
	Count       int64           `json:"count,omitempty"`
	Shard       uint32          `json:"shard"`
	Index       uint64          `json:"index"`
	Cursor      string          `json:"cursor"`
}
