package tracing

import (
	"context"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// A program gets its task's trace in the environment, never the worker's.
func TestTraceEnv(t *testing.T) {
	env := []string{"TRACEPARENT=old", "A=b", "TRACESTATE=old"}
	if got := Env(t.Context(), env); !slices.Equal(got, []string{"A=b"}) {
		t.Errorf("the environment without a trace is %q", got)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled})
	got := Env(trace.ContextWithSpanContext(context.Background(), span), env)
	if want := []string{"A=b", "TRACEPARENT=00-01000000000000000000000000000000-0200000000000000-01"}; !slices.Equal(got, want) {
		t.Errorf("the environment with a trace is %q, want %q", got, want)
	}
}
