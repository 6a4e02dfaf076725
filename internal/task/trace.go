package task

import "maps"

// Headers in which a task carries its trace, according to W3C Trace Context.
const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)

// WithTrace adds to headers the trace of other headers, for example those of the task that they follow. Headers that already name a trace
// are returned unchanged, and so are those without room for one. Neither map is modified.
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
	if checkHeaders(out, DefaultLimits()) != nil {
		return headers
	}
	return out
}

func named(headers map[string]string, name string) bool {
	_, ok := headers[name]
	return ok
}
