package administration

import (
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/task"
)

// Bound is a limit on requests, as GetLimits returns it and docs/limits.md explains it.
type Bound struct {
	name  string
	value int64
	unit  string
}

// Bounds returns the limits of a gateway with some limits on tasks, and on connections: in total, and from one address.
func Bounds(l task.Limits, conns, perAddress int) []Bound {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return []Bound{
		{"payload", int64(l.Payload), "bytes"},
		{"result", int64(l.Payload), "bytes"},
		{"name", int64(l.Name), "bytes"},
		{"batch", int64(l.Batch), "tasks"},
		{"body", contract.MaxMessage, "bytes"},
		{"http_headers", listen.MaxHTTPHeaders, "bytes"}, // includes the URL
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
		{"connections", int64(conns), "connections"},
		{"connections_per_address", int64(perAddress), "connections"},
	}
}
