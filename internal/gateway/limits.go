package gateway

import (
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// boundary is a bound of what calls may send, as GetLimits tells it and docs/limits.md explains it.
type boundary struct {
	name  string
	value int64
	unit  string
}

// boundaries are those that hold for this gateway.
func (g *Gateway) boundaries() []boundary {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return []boundary{
		{"payload", int64(g.limits.Payload), "bytes"},
		{"result", int64(g.limits.Payload), "bytes"},
		{"name", int64(g.limits.Name), "bytes"},
		{"batch", int64(g.limits.Batch), "tasks"},
		{"body", contract.MaxMessage, "bytes"},
		{"http_headers", maxHTTPHeaders, "bytes"}, // with the URL
		{"checkpoint", task.MaxCheckpoint, "bytes"},
		{"error_text", task.MaxErrorText, "bytes"},
		{"once_result", task.MaxOnceResult, "bytes"},
		{"task_headers", task.MaxHeaderBytes, "bytes"},
		{"tags", task.MaxTags, "tags"},
		{"attempts", contract.MaxAttempts, "attempts"},
		{"delay", seconds(task.MaxDelay), "seconds"},
		{"page", contract.MaxPage, "items"},
		{"wait", seconds(contract.MaxWait), "seconds"},
		{"claim", task.MaxClaim, "tasks"},
		{"claim_bytes", contract.MaxClaimBytes, "bytes"},
		{"lease", seconds(task.MaxLease), "seconds"},
		{"run", seconds(task.MaxRun), "seconds"},
		{"connections", int64(g.door.max), "connections"},
		{"connections_per_address", int64(g.door.each), "connections"},
	}
}
