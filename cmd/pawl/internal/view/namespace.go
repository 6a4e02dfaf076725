package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
)

// Namespace is a namespace for programs.
type Namespace struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	CreatedBy string    `json:"created_by,omitempty"`
	Quotas    Quota     `json:"quotas"`
	Usage     *Usage    `json:"usage,omitempty"`
	Missing   []Missing `json:"missing,omitempty"` // shards whose part of the usage is missing
}

// Quota and Usage are a namespace's quotas and what it uses of them, for programs.
type (
	Quota struct {
		MaxBacklog           int64 `json:"max_backlog"`
		MaxBacklogBytes      int64 `json:"max_backlog_bytes"`
		MaxRunning           int64 `json:"max_running"`
		MaxQueues            int64 `json:"max_queues"`
		MaxSchedules         int64 `json:"max_schedules"`
		MaxRequestsPerSecond int64 `json:"max_requests_per_second"`
		MaxBytesPerSecond    int64 `json:"max_bytes_per_second"`
	}
	Usage struct {
		Backlog      int64 `json:"backlog"`
		BacklogBytes int64 `json:"backlog_bytes"`
		Running      int64 `json:"running"`
		Queues       int64 `json:"queues"`
		Schedules    int64 `json:"schedules"`
	}
)

// NewNamespace converts a namespace.
func NewNamespace(n *admin.Namespace) Namespace {
	return Namespace{Name: n.Name, CreatedAt: n.CreatedAt, CreatedBy: n.CreatedBy, Quotas: Quota(n.Quotas), Usage: (*Usage)(n.Usage),
		Missing: NewMissing(n.Missing)}
}
