package gateway

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/tasktrace"
	"github.com/pawlq/pawl/internal/task"
)

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A task without a trace joins the trace of its call, over gRPC and REST. An invalid trace is ignored.
func TestTasksJoinTheTraceOfTheirCall(t *testing.T) {
	headers := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	for _, c := range []struct {
		what          string
		parent, state []string
		own, want     map[string]string
	}{
		{what: "nothing"},
		{what: "a trace", parent: []string{someTrace}, want: headers("traceparent", someTrace)},
		{what: "with a state", parent: []string{someTrace}, state: []string{"a=b"}, want: headers("traceparent", someTrace,
			"tracestate", "a=b")},
		{what: "a bad state", parent: []string{someTrace}, state: []string{"=="}, want: headers("traceparent", someTrace)},
		{what: "a state alone", state: []string{"a=b"}},
		{what: "no trace", parent: []string{"00-zz"}},
		{what: "two", parent: []string{someTrace, someTrace}},
		{what: "beside others", parent: []string{someTrace}, own: headers("a", "b"), want: headers("a", "b", "traceparent", someTrace)},
		{what: "one of its own", parent: []string{someTrace}, own: headers("traceparent", "mine"), want: headers("traceparent", "mine")},
	} {
		web := httptest.NewRequest(http.MethodPost, "/", nil)
		web.Header["Traceparent"], web.Header["Tracestate"] = c.parent, c.state
		rest, call := callinfo.Begin(t.Context(), "rest", "test")
		call.Web = web
		rpc, _ := callinfo.Begin(metadata.NewIncomingContext(t.Context(), metadata.MD{"traceparent": c.parent, "tracestate": c.state}),
			"grpc", "test")
		for iface, ctx := range map[task.Interface]context.Context{task.InterfaceREST: rest, task.InterfaceGRPC: rpc} {
			spec := &pawlv1.TaskSpec{Headers: maps.Clone(c.own)}
			tasktrace.JoinCall(ctx, spec, nil)
			if !maps.Equal(spec.Headers, c.want) {
				t.Errorf("%s over %s: headers = %v, want %v", c.what, iface, spec.Headers, c.want)
			}
		}
	}
	ctx, _ := callinfo.Begin(metadata.NewIncomingContext(t.Context(), metadata.Pairs(task.HeaderTraceParent, someTrace)), "grpc", "test")
	spec := func() *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a"} }
	group := &pawlv1.CreateGroupRequest{Tasks: []*pawlv1.TaskSpec{spec()}, OnComplete: spec(), OnSuccess: spec(), OnDeath: spec()}
	if _, err := (newGateway(newFake()).services.group).CreateGroup(ctx, group); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*pawlv1.TaskSpec{group.Tasks[0], group.OnComplete, group.OnSuccess, group.OnDeath} {
		if s.Headers[task.HeaderTraceParent] != someTrace {
			t.Errorf("a group's task has the headers %v, want the call's trace", s.Headers)
		}
	}
}

// A call with more tasks than allowed is refused before spans are created.
func TestTooManyTasksHaveNoSpans(t *testing.T) {
	ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	spans := tracetest.NewSpanRecorder()
	f := newFake(1)
	cfg := f.config()
	cfg.Tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	g := New(cfg)
	many := make([]*pawlv1.TaskSpec, task.DefaultLimits().Batch+1)
	for i := range many {
		many[i] = &pawlv1.TaskSpec{Type: "t"}
	}
	if _, err := (g.services.producer).EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: many}); err == nil {
		t.Error("EnqueueBatch accepted too many tasks")
	}
	if _, err := (g.services.group).CreateGroup(ctx, &pawlv1.CreateGroupRequest{Tasks: many}); err == nil {
		t.Error("CreateGroup accepted too many tasks")
	}
	if n := len(spans.Started()); n != 0 {
		t.Errorf("%d spans were started, want none", n)
	}
	if _, err := (g.services.producer).EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: many[1:]}); err != nil {
		t.Error(err)
	}
	if n := len(spans.Ended()); n != len(many)-1 {
		t.Errorf("%d spans have ended, want one per task", n)
	}
}

// A call that ends a claim has a span in the trace of its headers, and a cancel has one in the trace of its task. Other calls have none.
func TestSpansOfSingleCalls(t *testing.T) {
	s := newStage(t)
	for _, x := range s.f.tasks {
		x.view.Headers = map[string]string{task.HeaderTraceParent: someTrace}
	}
	spans := tracetest.NewSpanRecorder()
	s.g.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	s.g.wire()
	for _, c := range []struct{ name, want string }{
		{"WorkerService/Extend", ""}, {"OperatorService/RunTaskNow", ""}, {"OperatorService/RetryTask", ""},
		{"OperatorService/DiscardTask", ""}, {"GroupService/AddGroupTasks", "enqueue default"}, {"GroupService/CreateGroup",
			"enqueue default"}, {"ProducerService/ExplainTask", ""},
		{"WorkerService/Release", "release mail"}, {"ProducerService/CancelTask", "cancel mail"},
	} {
		spans.Reset()
		ctx, _ := callinfo.Begin(metadata.NewIncomingContext(t.Context(), metadata.Pairs(task.HeaderTraceParent, someTrace)), "grpc",
			c.name)
		request := goodCalls[c.name]
		if c.name == "ProducerService/CancelTask" {
			request = `{"task_id":"$later"}`
		}
		if _, err := s.calls[c.name](ctx, s.fill(request)); err != nil {
			t.Fatal(c.name, err)
		}
		got := ""
		for _, span := range spans.Ended() {
			got += span.Name()
		}
		if got != c.want {
			t.Errorf("%s: spans %q, want %q", c.name, got, c.want)
		}
	}
	s.g.tracer = nil
	s.g.wire()
	for name, request := range goodCalls { // all calls succeed without a tracer
		s := newStage(t)
		ctx, _ := callinfo.Begin(metadata.NewIncomingContext(t.Context(), metadata.Pairs(task.HeaderTraceParent, someTrace)), "grpc", name)
		if _, err := s.calls[name](ctx, s.fill(request)); err != nil {
			t.Errorf("%s without a tracer: %v", name, err)
		}
	}
}
