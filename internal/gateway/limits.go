package gateway

import (
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// boundary is a limit on requests, as GetLimits returns it and docs/limits.md explains it.
type boundary struct {
	name  string
	value int64
	unit  string
}

// boundaries returns the limits of this gateway.
func (g *Gateway) boundaries() []boundary {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return []boundary{
		{"payload", int64(g.limits.Payload), "bytes"},
		{"result", int64(g.limits.Payload), "bytes"},
		{"name", int64(g.limits.Name), "bytes"},
		{"batch", int64(g.limits.Batch), "tasks"},
		{"body", contract.MaxMessage, "bytes"},
		{"http_headers", maxHTTPHeaders, "bytes"}, // includes the URL
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
		{"connections", int64(g.acceptor.max), "connections"},
		{"connections_per_address", int64(g.acceptor.perAddress), "connections"},
	}
}
