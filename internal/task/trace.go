package task

import "maps"

// The headers in which a task carries its trace, by W3C Trace Context.
const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)

// WithTrace gives headers the trace of others: those of the task that they follow, say. Headers that name a trace of their own stay as
// they are, and so do those that have no room for one. Neither map is changed.
func WithTrace(headers, of map[string]string) map[string]string {
	parent := of[HeaderTraceParent]
	if parent == "" || named(headers, HeaderTraceParent) || named(headers, HeaderTraceState) {
		return headers
	}
	out := make(map[string]string, len(headers)+2)
	maps.Copy(out, headers)
	out[HeaderTraceParent] = parent
	if state := of[HeaderTraceState]; state != "" {
		out[HeaderTraceState] = state
	}
	if checkHeaders(out) != nil {
		return headers
	}
	return out
}

func named(headers map[string]string, name string) bool {
	_, ok := headers[name]
	return ok
}
